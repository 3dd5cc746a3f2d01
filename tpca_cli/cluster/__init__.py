"""Work on a Dask cluster: pure functions go out to its workers, results come back in order or as one sum.

The only package that knows Dask. Whoever calls it hands over module-level functions and plain data; a task
may run twice, on any worker, and must not change its arguments. Dask itself brings back what dies with a
worker. Sums are taken pairwise in the order of the items, so their bits do not depend on the workers.

    connect   to a scheduler, or to workers started on this machine
    cluster   map and reduce over tasks
    worker    what runs on a worker
    paths     names of files there and here, and how files are shared out
"""
