"""The edge of the program: parsing, the console, and how each ending becomes an exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import click
import pytest
from command import tpca
from hypothesis import given
from hypothesis import strategies as st
from pictures import folder

from tpca_cli import errors
from tpca_cli.cli import main as cli
from tpca_cli.cli.console import human, plain
from tpca_cli.cli.options import ByteSize, FrameSize


def run(monkeypatch: pytest.MonkeyPatch, failure: BaseException, *arguments: str) -> int:
    def fail(**_: object) -> None:
        raise failure

    monkeypatch.setattr(cli.tpca, "main", fail)
    return cli._run(list(arguments))


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (errors.TpcaError("x"), 1),
        (errors.UsageError("x"), 2),
        (click.UsageError("x"), 2),
        (errors.FileRefused("x"), 4),
        (errors.StorageError("x"), 5),
        (OSError(28, "No space left on device", "out.h5"), 5),
        (errors.OutputExists("x"), 6),
        (errors.Interrupted(signal.SIGTERM), 143),
        (errors.Interrupted(signal.SIGHUP), 129),
        (KeyboardInterrupt(), 130),
        (MemoryError(), 1),
        (ZeroDivisionError("x"), 1),
    ],
)
def test_every_failure_is_one_line_and_its_code(monkeypatch, capsys, failure, code) -> None:
    assert run(monkeypatch, failure, "encode") == code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("tpca: ") and err.count("\n") == 1

    assert run(monkeypatch, failure, "encode", "--json") == code
    out, err = capsys.readouterr()
    assert err == "" and json.loads(out)["code"] == code


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(
            ("4096", 4096),
            ("20M", 20 << 20),
            ("1.5G", 3 << 29),
            ("1K", 1024),
            ("1k", 1024),
            ("2MiB", 2 << 20),
        ),
        *(("20MB", 20_000_000), ("1kB", 1000), ("1e6", 1_000_000), ("1.5e3", 1500)),
    ],
)
def test_sizes_parse(text: str, size: int) -> None:
    assert ByteSize().convert(text, None, None) == size


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "20 M", "20MBB", "20Mi", "1e-3", "1e99", "M", "B", "1.5.2G", "٣M", "nan"]
)
def test_odd_sizes_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        ByteSize().convert(text, None, None)


def test_frame_sizes_parse() -> None:
    assert (
        FrameSize().convert("640x480", None, None) == FrameSize().convert("640X480", None, None) == (640, 480)
    )


@pytest.mark.parametrize("text", ["64", "64x", "0x64", "64x-1", "64XX64", "1000000x1"])
def test_odd_frame_sizes_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        FrameSize().convert(text, None, None)


@given(st.binary(max_size=40))
def test_printable_paths_are_one_line_without_control_bytes(path: bytes) -> None:
    assert all(ch.isprintable() for ch in errors.printable(path))


@given(st.floats(min_value=0, max_value=1e14))
def test_human_sizes_have_at_most_three_digits_before_the_point(count: float) -> None:
    number, unit = human(count).split()
    assert float(number) < 1000 and unit in {"B", "kB", "MB", "GB", "TB"}


def test_plain_holds_only_what_json_can() -> None:
    import numpy as np

    data = {"a": np.arange(2), "b": float("inf"), "c": b"\xff", "d": (np.float64(0.5),)}
    assert json.loads(json.dumps(plain(data), allow_nan=False)) == {
        "a": [0, 1],
        "b": None,
        "c": "\\xff",
        "c_bytes": "ff",
        "d": [0.5],
    }


def test_options_read_their_variables(monkeypatch) -> None:
    @click.command()
    @click.option("--memory", type=ByteSize())
    def command(memory: int) -> int:
        return memory

    import types

    monkeypatch.setitem(cli.COMMANDS, "probe", "")
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: types.SimpleNamespace(command=command))
    monkeypatch.setenv("TPCA_MEMORY", "2K")
    assert cli._run(["probe"]) == 2048
    monkeypatch.setenv("TPCA_PROBE_MEMORY", "3K")
    assert cli._run(["probe"]) == 3072
    assert cli._run(["probe", "--memory", "4K"]) == 4096


@pytest.mark.parametrize(
    "words", ["ls", "ls --json", "ls --names", "ls --print0", "cat", "inspect", "inspect --json"]
)
def test_a_reader_that_goes_away_is_no_error_of_its_own(tmp_path, words) -> None:
    folder(tmp_path / "in", 3, sizes=[(16, 16)])
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 8, "--force")
    name, *more = words.split()
    command = [sys.executable, "-m", "tpca_cli", name, tmp_path / "a.h5", *more]
    command += ["image_0000.png"] if name == "cat" else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.close()  # long before anything is written
        assert run.stderr.read() == b""
    assert run.returncode == 128 + signal.SIGPIPE
