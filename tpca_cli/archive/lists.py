"""Lists of an archive that are stored as JSON: held to their form, their texts made fit for a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tpca_cli.errors import FileRefused

MAX_REASONS, MAX_TEXT = 64, 1000  # texts that one image may have, and characters of one


def json_list(arrays: Mapping[str, Any], name: str) -> list[Any]:
    """One of the datasets that hold a list as JSON; empty where it is absent."""
    if name not in arrays:
        return []
    try:
        found = json.loads(arrays[name].tobytes())
    except (ValueError, RecursionError):
        raise FileRefused(f"the list '{name}' is not JSON") from None
    if not isinstance(found, list):
        raise FileRefused(f"'{name}' is not a list")
    return found


def skipped_pair(item: Any) -> tuple[str, str]:
    """An input that was left out: its path and why."""
    if not (isinstance(item, list) and len(item) == 2 and all(isinstance(text, str) for text in item)):
        raise FileRefused("the list of skipped files is malformed")
    return one_line(item[0]), one_line(item[1])


def metadata_kinds(item: Any) -> dict[str, int]:
    """The kinds of metadata of an image, and where they are."""
    if not isinstance(item, dict) or any(type(at) is not int for at in item.values()):
        raise FileRefused("the list of metadata is malformed")
    return {one_line(kind): at for kind, at in item.items()}


def reason_texts(item: Any) -> tuple[str, ...]:
    """Why an image is kept in part."""
    if not isinstance(item, list) or len(item) > MAX_REASONS or any(not isinstance(t, str) for t in item):
        raise FileRefused("the list of reasons is malformed")
    return tuple(one_line(text[:MAX_TEXT]) for text in item)


def one_line(text: str) -> str:
    """Text from a file as a terminal may have it: whatever does not print is escaped."""
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in text)
