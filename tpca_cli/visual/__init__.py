"""What people see of an error: SSIMULACRA 2, in compiled code."""

from tpca_cli.visual.ssimulacra2 import Evidence, evidence, score

__all__ = ["Evidence", "evidence", "score"]
