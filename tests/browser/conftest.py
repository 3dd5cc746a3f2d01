"""The browser that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chromium import Browser


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests."""
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """The window at the size of a desk; afterwards: nothing on the console, nothing asked of the network."""
    window.requests()  # what other tests asked for
    window.resize(1100, 900)
    yield window
    assert window.complaints() == []
    asked = window.requests()
    assert asked and all(url.startswith(("file:", "data:")) for url in asked)
