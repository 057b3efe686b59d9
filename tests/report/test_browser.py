"""The page in a browser: silent, no sideways scroll, legible in the dark, its verdict on the first sheet."""

from __future__ import annotations

import pytest

from elsewhere.report.summary import write_report
from worlds.browser_pages import CONTRAST, visit
from worlds.pdf_text import pages_of
from worlds.result_summaries import TASKS, WORDS, make_summary

SLOW = ("groups", "sites", "ranking", "comparison", "case_mix", "clinical")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("pages")
    for task in TASKS:
        write_report(make_summary(task), made / f"{task}.html")
    return made


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.slow)])
def test_silent_and_without_sideways_scroll(browser, folder, task, width):
    path = folder / f"{task}.html"
    context, page = visit(browser, path, width=width)
    assert page.noise == []
    assert page.requests == [path.as_uri()]
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
def test_contrast_in_light_and_dark(browser, folder, dark):
    context, page = visit(browser, folder / "classification.html", width=1280, dark=dark)
    result = page.evaluate(CONTRAST)
    assert result["seen"] > 400
    assert result["bad"] == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(19, 22, 27)") == dark
    context.close()


@pytest.mark.parametrize(
    "word", [WORDS[0], *(pytest.param(w, marks=pytest.mark.slow) for w in WORDS[1:]), None]
)
def test_the_first_printed_page_holds_the_verdict_and_nothing_of_the_rest(browser, tmp_path, word):
    summary = {k: v for k, v in make_summary("classification", word=word).items() if k not in SLOW}
    path = write_report(summary, tmp_path / "page.html")
    context, page = visit(browser, path, width=1280, dark=True)
    pages = pages_of(page.pdf(prefer_css_page_size=True, print_background=True))
    assert len(pages) > 2
    first = pages[0]
    assert (word or "0.842") in first
    assert "grade B" in first
    assert "Before you believe it".upper() in first.upper()
    assert "Who was tested" not in first
    assert "Who was tested" in pages[1]
    if word:
        assert "Smallest detectable drop" in first
        assert "Margin" in first
    context.close()


def test_long_names_do_not_break_the_phone(browser, tmp_path):
    summary = make_summary("segmentation")
    long = "Universitaetsklinikumsverwaltungsgebaeude" * 3
    summary["sites"][long] = summary["sites"]["Harbour"]
    summary["warnings"].append(long)
    summary["provenance"]["command"] = "elsewhere score " + "x" * 300
    summary["provenance"]["id_grades"][long] = {"grade": "C", "why": long}
    context, page = visit(browser, write_report(summary, tmp_path / "long.html"), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
