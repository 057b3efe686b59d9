"""Masks of slides in a browser: contours over the picture, silent, no sideways scroll, legible in the dark."""

from __future__ import annotations

import pytest

from elsewhere.commands.score import score
from worlds.browser_pages import CONTRAST, visit
from worlds.masked_slides import write_slides

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slides")
    cohort, said = write_slides(folder)
    score("slides", cohort, said, protocol="lymph-nodes", resamples=0, pictures=1, out=folder / "result")
    return folder / "result" / "report.html"


@pytest.mark.parametrize("width", [390, 1280])
def test_silent_and_without_sideways_scroll(browser, path, width):
    context, page = visit(browser, path, width=width)
    assert page.noise == [] and page.requests == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        "w => [...document.querySelectorAll('body *')]"
        ".filter(e => !e.closest('.scroll, .skip, svg') && e.getBoundingClientRect().right > w + 1)"
        ".map(e => e.className)",
        width,
    )
    assert outside == []
    context.close()


@pytest.mark.parametrize("dark", [False, True])
def test_contrast_and_names(browser, path, dark):
    context, page = visit(browser, path, width=1280, dark=dark)
    assert page.evaluate(CONTRAST)["bad"] == []
    names = page.evaluate(
        "[...document.querySelectorAll('.slide-view')].map(e => e.getAttribute('aria-label'))"
    )
    assert len(names) >= 4 and all("contours" in name for name in names)
    context.close()


def test_the_contour_lies_on_its_picture(browser, path):
    """Contour and picture share a frame of the slide's shape."""
    context, page = visit(browser, path, width=1280)
    boxes = page.evaluate(
        "[...document.querySelectorAll('.slide-view')].filter(e => e.querySelector('img')).map(e => {"
        " const i = e.querySelector('img').getBoundingClientRect(), s = e.querySelector('svg').getBoundingClientRect();"
        " const t = e.querySelector('path').getBoundingClientRect();"
        " return [i.width / i.height, s.width - i.width, t.left - i.left, i.right - t.right, t.width]; })"
    )
    assert len(boxes) >= 4
    for shape, apart, left, right, width in boxes:
        assert 0.5 < shape < 2 and abs(apart) < 1 and left > -3 and right > -3 and width > 5
    assert boxes[0][0] == pytest.approx(1.5, abs=0.02)
    context.close()
