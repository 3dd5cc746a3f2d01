"""The HTML report in a real browser: from a file, by mouse and keyboard, asking nobody for anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from chromium import Browser
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tpca_cli import images
from tpca_cli.report import page
from tpca_cli.report.charts import Curve
from tpca_cli.report.facts import Facts, Section
from tpca_cli.report.sheets import basis_sheet

HOSTILE = '<img src=x onerror="document.title=1">&amp;</script><script>document.title=2</script>.png'


def png(shade: int, size: tuple[int, int] = (48, 64)) -> bytes:
    y, x = np.mgrid[: size[0], : size[1]]
    pixels = np.stack([x * 3, y * 4, np.full_like(x, shade)], axis=-1).astype(np.uint8)
    return images.encode_file(pixels, "RGB")


def report() -> str:
    values = 1e9 / np.arange(1, 193) ** 1.7
    facts = Facts(
        kind="archive",
        name=HOSTILE,
        headline=f"archive of 3 images made from {HOSTILE}",
        sections=(Section("quality", (("target", "PSNR 36 dB"), ("measured", HOSTILE))),),
        parts=(("coefficients", 90_000), ("<b>basis</b>", 10_000)),
        values=values,
        total=float(values.sum()),
    )
    comparisons = tuple(
        page.Comparison(
            name,
            png(0),
            192,
            tuple(
                page.Step(m, png(m), psnr) for m, psnr in ((4, 22.5), (16, 27.0), (64, None), (192, np.inf))
            ),
        )
        for name in (HOSTILE, "clouds/clouds-01.jpg", "x" * 200)
    )
    sheet = basis_sheet(np.random.default_rng(0).normal(size=(24, 8, 8, 3)), [str(k) for k in range(24)])
    pictures = page.Pictures(
        comparisons,
        note=f"from {HOSTILE}",
        basis_sheet=images.encode_file(sheet, "RGB"),
        curves=(
            Curve("tpca, basis included", (0.2, 0.5, 1.0), (28, 32, 36)),
            Curve(HOSTILE, (0.4, 0.8, 1.6), (27, 31, 35)),
        ),
    )
    listed = [{"name": HOSTILE, "height": 48, "width": 64, "mode": "RGB", "psnr": p} for p in (36.5, np.inf)]
    return page.render(facts, pictures, listed)


@pytest.fixture(autouse=True)
def opened(browser: Browser, tmp_path: Path) -> None:
    """The page, freshly opened."""
    (tmp_path / "report.html").write_text(report(), encoding="utf-8")
    browser.open(tmp_path / "report.html")


def press(browser: Browser, key: str) -> None:
    """Press a key in the focused element, as a person would."""
    ActionChains(browser).send_keys(key).perform()


def value(browser: Browser, element: str, attribute: str) -> str:
    return str(browser.run(f"return String(document.getElementById('{element}').{attribute})"))


def test_slider_changes_the_image(browser: Browser) -> None:
    seen = set()
    for position in range(4):
        browser.run(
            "const s = document.getElementById('components'); s.value = arguments[0];"
            "s.dispatchEvent(new Event('input'))",
            position,
        )
        seen.add(value(browser, "after", "src"))
        decoded = "const i = document.getElementById('after'); return i.decode().then(() => i.naturalWidth)"
        assert browser.run(decoded) == 64
    assert len(seen) == 4
    assert value(browser, "components-value", "textContent") == "192 of 192"
    assert "identical" in value(browser, "status", "textContent")


def test_keyboard_reaches_and_moves_everything(browser: Browser) -> None:
    reached = []
    for _ in range(5):
        press(browser, Keys.TAB)
        reached.append(browser.run("const e = document.activeElement; return e.id || e.name || e.className"))
    assert reached == ["components", "divider", "picture", "pan", "scroll"]

    browser.run("document.getElementById('components').focus()")
    press(browser, Keys.HOME)
    first = value(browser, "after", "src")
    press(browser, Keys.ARROW_RIGHT)
    assert value(browser, "after", "src") != first
    assert browser.run("return document.getElementById('components').getAttribute('aria-valuetext')") == (
        "16 of 192 components, 27.00 dB"
    )

    browser.run("document.getElementById('divider').focus()")
    press(browser, Keys.HOME)
    assert value(browser, "after", "style.clipPath") == "inset(0px 0px 0px 0%)"
    press(browser, Keys.END)
    assert value(browser, "after", "style.clipPath") == "inset(0px 0px 0px 100%)"

    browser.run("document.querySelector('#pictures input').focus()")
    press(browser, Keys.ARROW_RIGHT)
    assert value(browser, "status", "textContent").startswith("clouds/clouds-01.jpg: M = ")


def test_divider_follows_the_mouse(browser: Browser) -> None:
    stage = browser.find_element("id", "stage")
    quarter = stage.size["width"] // 4
    ActionChains(browser).click_and_hold(stage).move_by_offset(-quarter, 0).release().perform()
    assert abs(int(value(browser, "divider", "value")) - 25) <= 1


def test_charts_are_lines_and_not_areas(browser: Browser) -> None:
    drawn = browser.run(
        "return [...document.querySelectorAll('svg polyline')].map((e) => getComputedStyle(e))"
        ".map((s) => [s.fill, s.stroke !== 'none', parseFloat(s.strokeWidth) > 0].join())"
    )
    assert len(drawn) > 10 and set(drawn) == {"none,true,true"}
    colors = browser.run(
        "return [...document.querySelectorAll('svg circle')].map((e) => getComputedStyle(e).fill)"
    )
    assert len(set(colors)) == 2  # two codecs


@pytest.mark.parametrize("width", [360, 1100])
def test_words_of_charts_do_not_overlap(browser: Browser, width: int) -> None:
    browser.resize(width, 800)
    hidden = browser.run(
        """
        const hits = [];
        for (const chart of document.querySelectorAll('svg')) {
          const words = [...chart.querySelectorAll('text')];
          const boxes = words.map((e) => e.getBoundingClientRect());
          boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b, k) => {
            if (a.left < b.right && b.left < a.right && a.top < b.bottom - 1 && b.top < a.bottom - 1)
              hits.push(words[i].textContent + ' / ' + words[i + 1 + k].textContent);
          }));
        }
        return hits;
        """
    )
    assert hidden == []


def test_hostile_names_stay_text(browser: Browser) -> None:
    assert browser.run("return document.title") == HOSTILE
    assert browser.run("return document.querySelector('h1').textContent") == HOSTILE
    assert browser.run("return document.querySelectorAll('script').length") == 2
    assert browser.run("return document.querySelectorAll('img[src=x], [onerror]').length") == 0
    assert browser.run("return document.querySelectorAll('b').length") == 0
    assert HOSTILE in browser.run("return document.querySelector('.scroll[role] tbody').textContent")


@pytest.mark.parametrize(("width", "dark"), [(360, False), (360, True), (768, False), (1400, True)])
def test_page_fits_phones_and_desks_in_both_themes(browser: Browser, width: int, dark: bool) -> None:
    browser.resize(width, 800, dark=dark)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    ink = browser.run("return getComputedStyle(document.body).color")
    levels = [sum(map(int, color[4:-1].split(", "))) / 3 for color in (paper, ink)]
    assert (levels[0] < 60 and levels[1] > 200) if dark else (levels[0] > 200 and levels[1] < 60)
    small = (
        "return [...document.querySelectorAll('input[type=range]')].filter(e => e.offsetHeight < 24).length"
    )
    assert browser.run(small) == 0


def test_every_control_has_a_name(browser: Browser) -> None:
    unnamed = browser.run(
        "const named = (e) => e.labels.length && e.labels[0].textContent;"
        "return [...document.querySelectorAll('input')].filter((e) => !named(e)).length"
    )
    assert unnamed == 0
    assert browser.run("return [...document.querySelectorAll('img:not([alt])')].length") == 0
