"""Run `tpca` inside the test process, as the console script would: exit code, stdout, stderr."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

from tpca_cli.cli.main import _run


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        data = json.loads(self.out)
        assert isinstance(data, dict)
        return data


def tpca(*arguments: object, code: int | None = 0) -> Outcome:
    """The outcome of a command; it must end with `code` unless that is None."""
    raw = io.BytesIO()
    out, err = io.TextIOWrapper(raw, "utf-8", newline=""), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        got = _run([str(argument) for argument in arguments])
    out.flush()
    outcome = Outcome(got, raw.getvalue().decode("utf-8", "surrogateescape"), err.getvalue())
    assert code is None or got == code, f"exit {got}, expected {code}\n{outcome.out}\n{outcome.err}"
    return outcome
