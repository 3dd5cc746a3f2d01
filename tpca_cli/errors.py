"""Every error that a user can meet, each with its exit code.

Messages are one line: what was found, the bound, the path, and what to do next. Library code raises
these and never prints or exits; `cli.main` turns them into a line on stderr (or JSON) and an exit code.
"""

from __future__ import annotations

import os


def printable(path: bytes | str | os.PathLike[str]) -> str:
    """A path as one line of text that no terminal will obey: control and undecodable bytes escaped."""
    return one_line(os.fsencode(path).decode("utf-8", "backslashreplace"))


def one_line(text: str) -> str:
    """Text from a file as a terminal may have it: whatever does not print is escaped."""
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in text)


def human(count: float) -> str:
    """Bytes for people: 812 B, 3.4 kB, 1.2 MB (units of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def counted(number: int, noun: str) -> str:
    """`1 image`, `62 images`, `10,000 images`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class TpcaError(Exception):
    """Something failed for a reason that the user can act on; `skipped` are inputs and the reasons."""

    exit_code = 1
    skipped: tuple[tuple[bytes, str], ...] = ()


class UsageError(TpcaError):
    """Options that contradict one another or the data."""

    exit_code = 2


class ImageRefused(TpcaError):
    """One input image cannot be used; the run skips it or, with `--on-error fail`, stops."""


class TargetError(TpcaError):
    """A quality or size target that cannot be reached; the message names what can be."""


class ConvergenceError(TpcaError):
    """An iterative solve stopped before its tolerance."""


class FileRefused(TpcaError):
    """A tpca file that is corrupt, foreign, hostile or newer than this program."""

    exit_code = 4


class OtherFormat(FileRefused):
    """A tpca file of another `format` than was expected."""

    def __init__(self, message: str, format: str = "") -> None:
        super().__init__(message)
        self.format = format


class StorageError(TpcaError):
    """The disk or the system said no: full, unreadable, not permitted."""

    exit_code = 5

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno

    @classmethod
    def of(cls, error: OSError, path: bytes | str | os.PathLike[str], doing: str = "access") -> StorageError:
        """The same failure with the path and what we were doing."""
        reason = error.strerror or str(error)
        return cls(f"cannot {doing} {printable(path)}: {reason}", error.errno)


class OutputExists(TpcaError):
    """The output is already there, or another run holds it."""

    exit_code = 6


class Interrupted(BaseException):
    """A signal asked us to stop: raised in the main thread so that every cleanup runs."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
        self.exit_code = 128 + signum
