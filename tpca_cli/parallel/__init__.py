"""Many items at once, with results in order and memory bounded: by threads or by forked processes."""

from tpca_cli.parallel.forks import busy_map, can_fork, forked_map
from tpca_cli.parallel.threads import alone, ordered_map, side_by_side

__all__ = ["alone", "busy_map", "can_fork", "forked_map", "ordered_map", "side_by_side"]
