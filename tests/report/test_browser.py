"""The page in a browser: silent, no sideways scroll, legible in the dark, its verdict on the first sheet."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from elsewhere.report.summary import write_report

sys.path.insert(0, str(Path(__file__).parent))
from pdf_text import pages_of
from sample import TASKS, WORDS, make_summary

SLOW = ("groups", "sites", "ranking", "comparison", "case_mix", "clinical")
pytestmark = pytest.mark.browser
SHOTS = os.environ.get("ELSEWHERE_SHOTS")
CONTRAST = """() => {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const bend = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * bend(c[0] / 255) + 0.7152 * bend(c[1] / 255) + 0.0722 * bend(c[2] / 255);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = rgba(getComputedStyle(e).backgroundColor);
      if (c[3] > 250) return c;
    }
    return [255, 255, 255, 255];
  };
  const bad = [];
  let seen = 0;
  const texts = 'h1,h2,h3,p,dt,dd,th,td,li,figcaption,caption,.sub,.word,svg.fig text';
  for (const e of document.querySelectorAll(texts)) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const picture = e.tagName === 'text' ? e.ownerSVGElement : null;
    if (picture && style.fill === getComputedStyle(document.body).backgroundColor) continue;
    const a = light(rgba(picture ? style.fill : style.color));
    const b = light(behind(picture ? picture.parentElement : e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen += 1;
    if (ratio < 4.5) bad.push([e.tagName, e.textContent.slice(0, 30), ratio]);
  }
  return {seen, bad: bad.slice(0, 10)};
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("pages")
    for task in TASKS:
        write_report(make_summary(task), made / f"{task}.html")
    return made


def visit(browser, path: Path, *, width: int, dark: bool = False):
    """A page that has been listened to from before it was opened."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
    )
    page = context.new_page()
    page.noise = []
    page.requests = []
    page.on("console", lambda message: page.noise.append(message.text))
    page.on("pageerror", lambda error: page.noise.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(path.as_uri())
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{SHOTS}/{path.stem}-{width}{'-dark' if dark else ''}.png", full_page=True)
    return context, page


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("width", [390, 1280])
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


@pytest.mark.parametrize("word", [*WORDS, None])
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
