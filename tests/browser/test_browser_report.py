"""The report that `tpca inspect --report` writes of the sample images, opened as a user opens it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from chromium import Browser

SAMPLES = Path(__file__).resolve().parents[2] / "sample_data"


def tpca(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "tpca_cli", *map(str, arguments), "--quiet"], check=True)


@pytest.mark.parametrize("known", [True, False], ids=["with originals", "without"])
def test_report_of_an_archive_works_from_a_file(browser: Browser, tmp_path: Path, known: bool) -> None:
    archive, report = tmp_path / "a.h5", tmp_path / "a.html"
    tpca("encode", SAMPLES, "-o", archive, "--step", 40)
    tpca("inspect", archive, "--report", report, *(("--source", SAMPLES) if known else ()))
    archive.unlink()  # the page must not need it
    browser.open(report)
    pictures = browser.run("return document.querySelectorAll('#pictures input').length")
    assert pictures == 8
    for number in range(pictures):
        browser.run("document.querySelectorAll('#pictures input')[arguments[0]].click()", number)
        seen = set()
        for position in range(int(browser.run("return document.getElementById('components').max")) + 1):
            browser.run(
                "const s = document.getElementById('components'); s.value = arguments[0];"
                "s.dispatchEvent(new Event('input'))",
                position,
            )
            browser.run("return document.getElementById('after').decode().then(() => true)")
            seen.add(browser.run("return document.getElementById('after').src"))
        assert len(seen) >= 3
        words = browser.run("return document.getElementById('status').textContent")
        assert words.endswith(" dB") == known
    charts = browser.run("return document.querySelectorAll('svg').length")
    assert charts == (3 if known else 2)
