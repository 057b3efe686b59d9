"""The page in a browser: silent, no sideways scroll, legible, and a slider that reorders the board."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources

import pandas as pd
import pytest

from elsewhere.report.page.blocks import Section
from elsewhere.report.page.shell import environment
from elsewhere.report.page.slider import script
from elsewhere.report.result.first_page import FirstPage
from elsewhere.report.study.leaderboard import slider
from elsewhere.report.study.page import StudyPage
from worlds.browser_pages import CONTRAST, visit
from worlds.recipe_results import published

pytestmark = pytest.mark.browser


@pytest.fixture
def path(mri_page_folder):
    return mri_page_folder / "report.html"


@pytest.fixture(scope="module")
def board(mri_summary, tmp_path_factory):
    """A page with the published board of responses alone."""
    first = FirstPage(
        title="board", question="Board", masthead=[], word="", tone="none", plain="", sentence="", badges=[], facts=[],
        claims=None, figures=[], hero=None, grades=[], alarms=[], warnings=[],
    )  # fmt: skip
    boards = [{"task": "response", "leading": True, "baseline": "Baseline", "protocol": "mamamia-paper"}]
    nobody = {"runs": pd.DataFrame(columns=["method", "model", "input"])}
    summary = replace(mri_summary, headline={**mri_summary.headline, "boards": boards}, tables=nobody)
    block = slider(StudyPage(summary=summary, task="response"), published(), reference=0.5)
    templates = resources.files("elsewhere.report").joinpath("templates")
    css = "".join(templates.joinpath(name).read_text() for name in ("style.css", "study.css"))
    html = (
        environment()
        .get_template("page.html.j2")
        .render(
            first=first, verdict_figure="", verdict_alt="", css=css, version="", created="", cohort="",
            sections=[Section(id="board", title="Board", short="Board", blocks=[block])], script=script(),
        )
    )  # fmt: skip
    file = tmp_path_factory.mktemp("board") / "board.html"
    file.write_text(html)
    return file


@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.slow)])
def test_silent_and_without_sideways_scroll(browser, path, width):
    context, page = visit(browser, path, width=width)
    assert page.noise == [] and page.requests == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        "w => [...document.querySelectorAll('body *')]"
        ".filter(e => !e.closest('.scroll, .skip, svg, script') && e.getBoundingClientRect().right > w + 1)"
        ".map(e => e.className)",
        width,
    )
    assert outside == []
    context.close()


def test_tables_fit_a_wide_screen(browser, path):
    context, page = visit(browser, path, width=1280)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    wide = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)"
        ".map(e => e.getAttribute('aria-label'))"
    )
    assert wide == []
    context.close()


@pytest.mark.parametrize("dark", [pytest.param(False, marks=pytest.mark.slow), True])
def test_contrast_in_light_and_dark(browser, path, dark):
    context, page = visit(browser, path, width=1280, dark=dark)
    result = page.evaluate(CONTRAST)
    assert result["seen"] > 500 and result["bad"] == []
    context.close()


def order(page):
    return page.eval_on_selector_all(
        "#weights-response tbody tr", "rows => rows.map(r => r.cells[0].firstChild.textContent.trim())"
    )


def moved(page):
    return page.eval_on_selector_all(
        "#weights-response .w-change", "cells => cells.filter(c => c.textContent !== '·').length"
    )


def test_the_slider_reorders_the_board_by_keyboard(browser, board):
    """MRI-10, the published table: at 0.4 six of fifteen teams change rank, at 0.2 thirteen, at 0 PM is first."""
    context, page = visit(browser, board, width=1280)
    before = order(page)
    assert before[0] == "pimed-lab" and before[12] == "PM" and moved(page) == 0
    page.focus("#w-response")
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    assert page.text_content("output") == "0.40" and moved(page) == 6
    assert "6 of 15 change rank against 0.50" in page.text_content(".weights-said")
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    assert page.text_content("output") == "0.20" and moved(page) == 13
    page.keyboard.press("Home")
    after = order(page)
    assert after[0] == "PM" and sorted(after) == sorted(before) and after != before
    assert "▲ 12" in page.text_content("#weights-response tbody tr")
    page.keyboard.press("End")
    assert order(page)[0] == "pimed-lab" and page.get_attribute("#w-response", "aria-valuetext") == "1.00"
    assert page.noise == []
    context.close()


def test_the_slider_by_pointer_and_on_a_phone(browser, board):
    context, page = visit(browser, board, width=390)
    box = page.locator("#w-response").bounding_box()
    page.mouse.click(box["x"] + 2, box["y"] + box["height"] / 2)
    assert order(page)[0] == "PM"
    context.close()


def test_without_javascript_the_board_stands_at_the_protocols_weight(browser, board):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(board.as_uri())
    assert page.locator("#weights-response tbody tr th").first.text_content().strip() == "pimed-lab"
    assert "needs JavaScript" in page.text_content("body") and page.locator("#w-response").is_disabled()
    context.close()
