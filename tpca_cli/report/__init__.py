"""What people look at: the text page, contact sheets, charts and the HTML report of a tpca file.

`describe` reads what a file says of itself into `facts`; what draws (`terminal`, `sheets`, `page` and the
charts) never touches a file; `samples` makes the reconstructions that pictures compare; `album` puts it all
together. Modules are imported one by one, when they are needed: the text page must not wait for what only a
picture uses.
"""
