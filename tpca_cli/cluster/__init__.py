"""Work on a Dask cluster: pure functions go out to its workers, results come back in order or as one sum.

The only module that knows Dask. Whoever calls it hands over module-level functions and plain data; a task
may run twice, on any worker, and must not change its arguments. Dask itself brings back what dies with a
worker. Sums are taken pairwise in the order of the items, so their bits do not depend on the workers.
"""

from tpca_cli.cluster.reach import connect, local_workers
from tpca_cli.cluster.work import Cluster

__all__ = ["Cluster", "connect", "local_workers"]
