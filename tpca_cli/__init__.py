"""tpca: compress folders of images with a tensor-PCA basis learned from the folder itself.

For Python code: `Archive` is a lazy, picklable sequence of images; `Basis` reads a basis file and offers
`project` and `reconstruct`; `Scores` reads coefficients as numbers;
`TensorPCA` fits arrays as scikit-learn does. Whatever goes wrong for a reason that the
caller can act on is a `TpcaError`; the kinds are in `tpca_cli.errors`. Everything loads on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpca_cli.archive.reader import Archive
    from tpca_cli.basisfile import Basis
    from tpca_cli.errors import FileRefused, StorageError, TpcaError, UsageError
    from tpca_cli.estimator import TensorPCA
    from tpca_cli.scores.reader import Scores

__version__ = "0.1.0"
__all__ = [
    "Archive",
    "Basis",
    "FileRefused",
    "Scores",
    "StorageError",
    "TensorPCA",
    "TpcaError",
    "UsageError",
    "__version__",
]

_HOMES = {
    "Archive": "archive.reader",
    "Basis": "basisfile",
    "Scores": "scores.reader",
    "TensorPCA": "estimator",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tpca_cli.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
