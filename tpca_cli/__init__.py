"""tpca: compress folders of images with a tensor-PCA basis learned from the folder itself.

For Python code: `Archive` is a lazy, picklable sequence of images; `Basis` reads a basis file and offers
`project` and `reconstruct`. Both load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpca_cli.archive.reader import Archive
    from tpca_cli.basisfile import Basis

__version__ = "0.1.0"
__all__ = ["Archive", "Basis", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Archive":
        from tpca_cli.archive.reader import Archive

        return Archive
    if name == "Basis":
        from tpca_cli.basisfile import Basis

        return Basis
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
