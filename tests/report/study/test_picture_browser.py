"""The page of a study of pictures in a browser: silent, no sideways scroll, legible in light and dark."""

from __future__ import annotations

import pytest

from elsewhere.analysis.study.summary import analyse
from elsewhere.report.study.page import write_study_report
from worlds.browser_pages import CONTRAST, visit
from worlds.picture_results import cnn_alone, with_settings

pytestmark = pytest.mark.browser


@pytest.fixture
def path(picture_page_folder):
    return picture_page_folder / "report.html"


@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.slow)])
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


@pytest.mark.parametrize("dark", [pytest.param(False, marks=pytest.mark.slow), True])
def test_contrast_in_light_and_dark(browser, path, dark):
    context, page = visit(browser, path, width=1280, dark=dark)
    result = page.evaluate(CONTRAST)
    assert result["seen"] > 800 and result["bad"] == []
    context.close()


@pytest.mark.parametrize("margin", [None, pytest.param(0.1, marks=pytest.mark.slow)])
def test_tables_fit_a_wide_screen(browser, path, margin, tmp_path):
    """With a margin too: a column of verdicts makes the tables wider."""
    if margin is not None:
        judged = with_settings(cnn_alone(), analyses={"verdict_margin": margin, "reference": "ultrasound"})
        path = write_study_report(analyse(judged, resamples=0), tmp_path)
    context, page = visit(browser, path, width=1280)
    wide = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)"
        ".map(e => e.getAttribute('aria-label'))"
    )
    assert wide == []
    context.close()
