"""The shape of the package: who may import whom, who may touch the outside, how long a file may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "tpca_cli"

# a unit imports only from rows below its own; inside one unit (a package) everything may be imported
ROWS = (
    ("cli",),
    ("pipeline",),
    ("report", "rate", "cluster"),
    ("archive", "tensors", "basisfile"),
    ("codec",),
    ("bases", "fixed"),
    ("images", "scan", "framing", "operators", "eigen", "store"),
    ("names", "formats", "quality", "parallel", "wasm"),
    ("errors",),
)
RANK = {unit: row for row, units in enumerate(ROWS) for unit in units}
# the package itself offers names of every row to the user, and `python -m` starts the command line
FREE = ("__init__", "__main__")

OWNERS = {
    "h5py": "store",
    "PIL": "images",
    "simplejpeg": "images",
    "click": "cli",
    "tqdm": "cli",
    "dask": "cluster",
    "distributed": "cluster",
    "matplotlib": "report",
    "wasmtime": "wasm",
}
NEVER = ("pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle")
NUMERIC = ("operators", "eigen", "bases", "fixed", "codec")
FILES = ("pathlib", "tempfile", "shutil", "glob", "io")
LINES = 450

MODULES = sorted((ROOT / PACKAGE).rglob("*.py"))
SOURCES = MODULES + sorted((ROOT / "tests").rglob("*.py"))


def unit_of(module: Path) -> str:
    """`tpca_cli/codec/context.py` -> `codec`."""
    return module.relative_to(ROOT / PACKAGE).parts[0].removesuffix(".py")


def imports(source: str, module: str, is_package: bool) -> Iterator[tuple[str, ast.stmt]]:
    """Absolute dotted names that a module imports, wherever in the file, with their statements."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = module.split(".") if is_package else module.split(".")[:-1]
                base = ".".join([*here[: len(here) - node.level + 1], *filter(None, [base])])
            yield from ((f"{base}.{alias.name}", node) for alias in node.names)


def imports_of(path: Path) -> list[tuple[str, ast.stmt]]:
    """The imports of a file of the package."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    return list(imports(path.read_text(), ".".join(parts[: -1 if is_package else None]), is_package))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    unit = unit_of(path)
    if unit in FREE:
        return
    assert unit in RANK, f"{unit} has no row: give it one in the table of this test"
    for name, node in imports_of(path):
        parts = name.split(".")
        if parts[0] != PACKAGE or len(parts) < 2 or parts[1] == unit or parts[1].startswith("__"):
            continue
        assert parts[1] in RANK, f"line {node.lineno}: {name} is not a module of the table"
        assert RANK[parts[1]] > RANK[unit], f"line {node.lineno}: {unit} may not import {parts[1]}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_each_library_has_one_owner(path: Path) -> None:
    for name, node in imports_of(path):
        library = name.split(".")[0]
        assert library not in NEVER, f"line {node.lineno}: {library} runs code that a file brings along"
        owner = OWNERS.get(library)
        assert owner in (None, unit_of(path)), f"line {node.lineno}: only {owner} imports {library}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_drawing_is_imported_late(path: Path) -> None:
    top = ast.parse(path.read_text()).body
    late = {"matplotlib", "dask", "distributed"}
    for node in top:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        assert not late & {name.split(".")[0] for name in names}, (
            f"line {node.lineno}: import it where it is used"
        )


@pytest.mark.parametrize("path", [p for p in MODULES if unit_of(p) in NUMERIC], ids=name_of)
def test_numeric_modules_know_no_files(path: Path) -> None:
    for name, node in imports_of(path):
        assert name.split(".")[0] not in FILES, f"line {node.lineno}: {name} in an arrays-only module"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "open", f"line {node.lineno}: a file in an arrays-only module"


@pytest.mark.parametrize("path", [p for p in MODULES if unit_of(p) not in ("cli", "__main__")], ids=name_of)
def test_library_code_never_prints_or_exits(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            banned = ("print", "exit", "quit", "sys.exit", "os._exit", "eval", "exec", "input")
            assert called not in banned, f"line {node.lineno}: {called}()"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES, "two ideas in one file: split it"


@pytest.mark.parametrize(
    ("source", "module", "is_package", "expected"),
    [
        ("from .sink import Sink", "tpca_cli.store.write", False, "tpca_cli.store.sink.Sink"),
        ("from ..errors import X", "tpca_cli.store.write", False, "tpca_cli.errors.X"),
        ("from .lock import lock", "tpca_cli.store", True, "tpca_cli.store.lock.lock"),
        ("from . import store", "tpca_cli.scan", False, "tpca_cli.store"),
        ("def f():\n    import h5py.h5d", "tpca_cli.scan", False, "h5py.h5d"),
    ],
)
def test_the_reader_of_imports_reads_them(source: str, module: str, is_package: bool, expected: str) -> None:
    assert [name for name, _ in imports(source, module, is_package)] == [expected]
