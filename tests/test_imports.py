"""The shape of the package: who may import whom, who may touch the outside, how long a file may be."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "tpca_cli"

# a unit (a module or a package of the top level) imports only from rows below its own
ROWS = (
    ("cli",),
    ("fit", "encode", "decode", "report"),  # the flows: in one row, so that none imports another
    ("checkpoint", "cluster", "rate", "scores", "estimator", "torch"),
    ("training",),
    ("archive",),
    ("basisfile", "frames"),
    ("sources", "codec", "exact"),
    ("tensor_pca", "images", "framing", "store", "visual"),
    ("parallel", "wasm", "quality", "names", "formats", "interfaces", "tensors", "memory"),
    ("errors",),
)
RANK = {unit: row for row, units in enumerate(ROWS) for unit in units}
# the package itself offers names of every row to the user, and `python -m` starts the command line
FREE = ("__init__", "__main__")

OWNERS = {
    "h5py": "store",
    "PIL": "images",
    "simplejpeg": "images",
    "pillow_heif": "images",
    "pillow_jxl": "images",
    "click": "cli",
    "tqdm": "cli",
    "dask": "cluster",
    "distributed": "cluster",
    "wasmtime": "wasm",
    "fsspec": "store",
    "torch": "torch",
    "pyarrow": "decode",
    "mfusepy": "decode",
    "numkong": "tensor_pca",
}
LATE = ("dask", "distributed", "fsspec", "pyarrow", "mfusepy", "numkong")
NEVER = ("pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle")
NUMERIC = ("tensor_pca", "codec")
FILES = ("pathlib", "tempfile", "shutil", "glob", "io")
FILE_LINES, FUNCTION_LINES = 450, 60
PACKAGE_FILES, PACKAGE_LINES = 193, 37_300

MODULES = sorted((ROOT / PACKAGE).rglob("*.py"))
SOURCES = MODULES + sorted((ROOT / "tests").rglob("*.py"))
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def unit_of(path: Path) -> str:
    """`tpca_cli/codec/contexts.py` -> `codec`."""
    return path.relative_to(ROOT / PACKAGE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    """`tpca_cli/codec/grid.py` -> `tpca_cli.codec.grid`; `tpca_cli/codec/__init__.py` -> `tpca_cli.codec`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def nodes(tree: ast.AST, for_types: bool) -> Iterator[ast.AST]:
    """All nodes of a syntax tree, with or without what only a type checker sees."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING") and not for_types:
            for other in child.orelse:
                yield from nodes(other, for_types)
        else:
            yield from nodes(child, for_types)


def imports(
    source: str, module: str, is_package: bool, for_types: bool = True
) -> Iterator[tuple[str, ast.stmt]]:
    """Absolute dotted names that a module imports, wherever in the file, with their statements."""
    for node in nodes(ast.parse(source), for_types):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = module.split(".") if is_package else module.split(".")[:-1]
                base = ".".join([*here[: len(here) - node.level + 1], *filter(None, [base])])
            yield from ((f"{base}.{alias.name}", node) for alias in node.names)


def imports_of(path: Path, for_types: bool = True) -> list[tuple[str, ast.stmt]]:
    """The imports of a file of the package."""
    return list(imports(path.read_text(), module_of(path), path.stem == "__init__", for_types))


def graph(files: dict[str, str], packages: set[str]) -> dict[str, set[str]]:
    """Which module imports which, by dotted name: also inside functions, but not for types alone."""
    edges: dict[str, set[str]] = {}
    for module, source in files.items():
        edges[module] = set()
        for name, _ in imports(source, module, module in packages, for_types=False):
            # `from a.b import c` imports the module a.b.c if there is one, and the module a.b otherwise
            target = next((t for t in (name, name.rpartition(".")[0]) if t in files), None)
            if target not in (None, module):
                edges[module].add(str(target))
    return edges


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Modules that import one another in a ring; empty if there is none."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


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


def test_every_row_is_there() -> None:
    assert set(RANK) == {unit_of(path) for path in MODULES} - set(FREE)


def test_no_modules_import_one_another() -> None:
    files = {module_of(path): path.read_text() for path in MODULES}
    packages = {module_of(path) for path in MODULES if path.stem == "__init__"}
    found = cycle(graph(files, packages))
    assert not found, " -> ".join(found)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_each_library_has_one_owner(path: Path) -> None:
    for name, node in imports_of(path):
        library = name.split(".")[0]
        assert library not in NEVER, f"line {node.lineno}: {library} runs code that a file brings along"
        owner = OWNERS.get(library)
        assert owner in (None, unit_of(path)), f"line {node.lineno}: only {owner} imports {library}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_optional_libraries_are_imported_where_they_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text())
    lazy = {
        node for function in ast.walk(tree) if isinstance(function, FUNCTIONS) for node in ast.walk(function)
    }
    for node in set(nodes(tree, for_types=False)) - lazy:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] not in LATE, f"import {name} in the function that uses it"


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


def undocumented(source: str) -> list[str]:
    """Public functions, classes and methods of a module that have no docstring, and the module itself."""
    missing = []

    def visit(node: ast.Module | ast.ClassDef, prefix: str) -> None:
        for child in node.body:
            if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            decorators = [ast.unparse(decorator) for decorator in child.decorator_list]
            again = any(name.endswith(("overload", ".setter", ".deleter")) for name in decorators)
            if child.name.startswith("_") or again:
                continue
            if ast.get_docstring(child) is None:
                missing.append(f"line {child.lineno}: {prefix}{child.name}")
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")

    tree = ast.parse(source)
    if ast.get_docstring(tree) is None:
        missing.append("line 1: the module")
    visit(tree, "")
    return missing


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_public_name_says_what_it_is(path: Path) -> None:
    missing = undocumented(path.read_text())
    assert not missing, "no docstring: " + "; ".join(missing)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_file_holds_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_function_can_be_read_at_once(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, FUNCTIONS):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= FUNCTION_LINES, f"line {node.lineno}: {node.name} has {lines} lines"


def test_the_package_stays_small() -> None:
    assert len(MODULES) <= PACKAGE_FILES
    assert sum(len(path.read_text().splitlines()) for path in MODULES) <= PACKAGE_LINES


@pytest.mark.parametrize(
    ("source", "module", "is_package", "expected"),
    [
        ("from .sink import Sink", "tpca_cli.store.write", False, "tpca_cli.store.sink.Sink"),
        ("from ..errors import X", "tpca_cli.store.write", False, "tpca_cli.errors.X"),
        ("from .files import lock", "tpca_cli.store", True, "tpca_cli.store.files.lock"),
        ("from . import store", "tpca_cli.rate", False, "tpca_cli.store"),
        ("def f():\n    import h5py.h5d", "tpca_cli.rate", False, "h5py.h5d"),
        ("if TYPE_CHECKING:\n    import h5py", "tpca_cli.rate", False, "h5py"),
    ],
)
def test_the_reader_of_imports_reads_them(source: str, module: str, is_package: bool, expected: str) -> None:
    assert [name for name, _ in imports(source, module, is_package)] == [expected]


@pytest.mark.parametrize(
    ("first", "second", "ring"),
    [
        ("from a.two import f", "from a.one import g", True),
        ("from a import two", "def f():\n    from .one import g", True),
        ("from a import two", "if TYPE_CHECKING:\n    from a import one", False),
        ("from a import two", "if typing.TYPE_CHECKING:\n    pass\nelse:\n    from a import one", True),
        ("from a import two", "from a import name_of_the_package", True),
        ("from a import two", "import b.one", False),
    ],
)
def test_the_finder_of_rings_finds_them(first: str, second: str, ring: bool) -> None:
    files = {"a": "from a.one import h", "a.one": first, "a.two": second}
    assert bool(cycle(graph(files, {"a"}))) == ring


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('"""."""\ndef f(): ...', ["f"]),
        ('"""."""\ndef _f(): ...\nclass _C:\n    def m(self): ...', []),
        ('"""."""\nclass C:\n    """."""\n    def m(self): ...\n    def __len__(self): ...', ["C.m"]),
        ("x = 1", ["the module"]),
        ('"""."""\n@overload\ndef f(): ...\ndef f():\n    """."""', []),
    ],
)
def test_the_reader_of_docstrings_misses_none(source: str, names: list[str]) -> None:
    assert [text.partition(": ")[2] for text in undocumented(source)] == names
