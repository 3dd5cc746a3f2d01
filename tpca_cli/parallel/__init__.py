"""Many items at once, with results in order and memory bounded: by threads or by forked processes."""

from tpca_cli.parallel.forks import can_fork, forked_map
from tpca_cli.parallel.threads import ordered_map

__all__ = ["can_fork", "forked_map", "ordered_map"]
