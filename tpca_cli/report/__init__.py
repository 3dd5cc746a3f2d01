"""What people look at: the text page, contact sheets, plots and the HTML report of a tpca file.

`facts` reads what a file says of itself; `terminal`, `sheets`, `plots` and `page` draw it and never touch a
file; `samples` makes the reconstructions that pictures compare. Modules are imported one by one, when they
are needed: the text page must not wait for what only a picture uses.
"""
