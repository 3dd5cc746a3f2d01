"""One bar for the whole job: it is there at once, never goes back, and says what is being done."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import folder

from tpca_cli.cli.console import STAGES, Bar, Console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


CALLS = st.lists(
    st.tuples(
        st.sampled_from([*STAGES["encode"], "of a later version"]), st.integers(0, 9), st.integers(0, 9)
    ),
    max_size=40,
)


@given(CALLS)
def test_the_share_that_is_done_never_falls_and_ends_below_one(calls) -> None:
    bar = Bar(STAGES["encode"])
    before = 0.0
    for stage, done, total in calls:
        share = bar.advance(stage, min(done, total), total)
        assert before <= share < 1.0
        before = share


def test_a_stage_that_comes_again_is_counted() -> None:
    bar = Bar(STAGES["encode"])
    first = bar.advance("encoding", 5, 10)
    assert bar.label == "encoding"
    bar.advance("encoding", 10, 10)
    assert bar.advance("encoding", 0, 10) >= first
    assert bar.label == "encoding (pass 2)"


def test_the_bar_is_there_before_the_first_report(monkeypatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    console = Console()
    console.begin("encode")
    assert "starting" in terminal.getvalue() and "0%" in terminal.getvalue()
    console.close()


def test_notes_leave_the_bar_where_it_is(monkeypatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    console = Console()
    console.begin("encode")
    console.progress("encoding", 5, 10)
    seen = console.share
    console.say("step 8 gave 30 dB: trying 7")
    console.progress("encoding", 6, 10)
    assert "step 8 gave 30 dB" in terminal.getvalue() and console.share >= seen > 0
    console.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ("encode", "photos", "-o", "a.h5", "--psnr", "34"),
        ("encode", "photos", "-o", "a.h5", "--append"),
        ("fit-basis", "photos", "-o", "b.h5", "--tile", "8", "--components", "20"),
        ("fit-basis", "photos", "-o", "c.h5", "--size", "64x64", "--solver", "fast", "--components", "4"),
        ("decode", "a.h5", "-o", "out"),
        ("verify", "a.h5", "--against", "photos", "--decode"),
        ("repack", "a.h5", "-o", "r.h5"),
        ("inspect", "a.h5", "--rd", "photos", "rd.png"),
        ("merge", "b.h5", "-o", "m.h5"),
    ],
    ids=lambda words: " ".join(words[:1] + words[4:]),
)
def test_every_stage_of_a_command_has_its_place_in_the_bar(arguments, tmp_path_factory, monkeypatch) -> None:
    from command import tpca

    place = tmp_path_factory.getbasetemp() / "stages"
    if not place.exists():
        folder(place / "photos", 12, sizes=[(96, 128)])
    monkeypatch.chdir(place)
    told: list[str] = []
    known = Console.progress
    monkeypatch.setattr(Console, "progress", lambda self, *call: told.append(call[0]) or known(self, *call))
    tpca(*arguments, *([] if arguments[0] == "verify" else ["--force"]))
    stages = {re.sub(r" [0-9]+$", "", stage) for stage in told}
    assert stages <= set(STAGES[arguments[0]]), f"no share for {stages - set(STAGES[arguments[0]])}"
