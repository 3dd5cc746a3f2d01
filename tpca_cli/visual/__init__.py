"""What people see of an error: SSIMULACRA 2, in compiled code, and what regions lose of structure."""

from tpca_cli.visual.ssimulacra2 import Evidence, evidence, score, structure_lost

__all__ = ["Evidence", "evidence", "score", "structure_lost"]
