"""Pictured lesions in a browser: scrolled by keys, boxes that can be switched off, no sideways scroll, silent."""

from __future__ import annotations

import dataclasses

import pytest

from elsewhere.privacy import Redactor
from elsewhere.report.summary import write_report
from worlds.browser_pages import CONTRAST, visit
from worlds.pictured_lesions import VOLUMES, pictured

pytestmark = pytest.mark.browser
FIRST = ".strip-card >> nth=0"
SHOWN = "e => [...e.querySelectorAll('.sbox')].filter(b => getComputedStyle(b).display != 'none').map(b => b.dataset.layer).sort()"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    shown = pictured().shared(Redactor(VOLUMES))
    return write_report(
        {"task": "detection", "metrics": {}},
        tmp_path_factory.mktemp("page") / "report.html",
        pictured=shown,
    )


@pytest.fixture(scope="module")
def opened(browser, path):
    context, page = visit(browser, path, width=1280)
    yield page
    context.close()


@pytest.fixture
def strip(opened):
    """The strip of a lesion that both models find, on its middle slice."""
    opened.reload()
    return opened.locator("#lesion-3")


def sliced(strip) -> int:
    return int(strip.locator("output").inner_text().split()[1])


def test_arrow_keys_change_the_slice_and_its_picture(opened, strip):
    view, picture = strip.locator(".strip-view"), strip.locator("img")
    before = sliced(strip), picture.get_attribute("src")
    view.focus()
    opened.keyboard.press("ArrowRight")
    assert sliced(strip) == before[0] + 1 and picture.get_attribute("src") != before[1]
    assert picture.get_attribute("alt") == f"Lesion 3 (volume 3), slice {before[0] + 1}"
    opened.keyboard.press("ArrowLeft")
    assert (sliced(strip), picture.get_attribute("src")) == before
    opened.keyboard.press("Home")
    opened.keyboard.press("ArrowLeft")
    assert sliced(strip) == before[0] - 5 and strip.locator("button").first.is_disabled()
    opened.keyboard.press("End")
    opened.keyboard.press("ArrowUp")
    assert sliced(strip) == before[0] + 5 and strip.locator("button").last.is_disabled()


def test_every_slice_is_a_picture_that_opens(opened, strip):
    view = strip.locator(".strip-view")
    view.focus()
    opened.keyboard.press("Home")
    widths = []
    for _ in range(11):
        strip.locator("img").evaluate("e => e.decode()")
        widths.append(strip.locator("img").evaluate("e => e.naturalWidth"))
        opened.keyboard.press("ArrowRight")
    assert min(widths) == max(widths) > 0


def test_buttons_and_slider_change_the_slice(strip):
    start = sliced(strip)
    strip.locator("button").last.click()
    assert sliced(strip) == start + 1
    strip.locator("button").first.click()
    strip.locator("button").first.click()
    assert sliced(strip) == start - 1
    strip.locator("input[type=range]").fill(str(start + 3))
    assert sliced(strip) == start + 3


def test_boxes_are_shown_on_their_slices_alone(opened, strip):
    assert strip.evaluate(SHOWN) == ["0", "1", "truth"]
    strip.locator("input[type=range]").fill(str(sliced(strip) + 4))
    assert strip.evaluate(SHOWN) == ["truth"]
    assert "dashed" in strip.locator(".sbox[data-layer=truth]").get_attribute("class")


def test_the_legend_hides_the_boxes_of_a_model(opened, strip):
    opened.locator(".strips-legend label", has_text="north").click()
    assert strip.evaluate(SHOWN) == ["1", "truth"]
    opened.locator(".strips-legend label", has_text="Annotated").click()
    assert strip.evaluate(SHOWN) == ["1"]
    strip.locator("button").last.click()
    assert strip.evaluate(SHOWN) == ["1"], "a change of the slice brings no hidden box back"
    opened.locator(".strips-legend label", has_text="north").click()
    assert strip.evaluate(SHOWN) == ["0", "1"]


def test_the_box_lies_on_the_bright_lesion_on_the_screen(strip):
    """The pixels under the box, as the browser shows them: bright inside, dim outside of it."""
    inside, outside = strip.evaluate(
        """async e => {
          const image = e.querySelector('img');
          await image.decode();
          const box = e.querySelector('.sbox.subject rect').getBoundingClientRect();
          const all = image.getBoundingClientRect();
          const canvas = document.createElement('canvas');
          canvas.width = image.naturalWidth;
          canvas.height = image.naturalHeight;
          const pen = canvas.getContext('2d');
          pen.drawImage(image, 0, 0);
          const unit = canvas.width / all.width;
          const mean = (x, y, w, h) => {
            const data = pen.getImageData(x, y, w, h).data;
            let sum = 0;
            for (let i = 0; i < data.length; i += 4) sum += data[i];
            return 4 * sum / data.length;
          };
          const x = (box.x - all.x) * unit, y = (box.y - all.y) * unit, w = box.width * unit, h = box.height * unit;
          return [mean(x + 2, y + 2, w - 4, h - 4), mean(x - 6, y, 4, h)];
        }"""
    )
    assert inside > 240 and outside < 180


@pytest.mark.parametrize("width", [390, 1280])
def test_silent_and_without_sideways_scroll(browser, path, width):
    context, page = visit(browser, path, width=width)
    page.locator(".strip-card button").last.click()
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
def test_contrast_in_light_and_dark(browser, path, dark):
    context, page = visit(browser, path, width=1280, dark=dark)
    assert page.evaluate(CONTRAST)["bad"] == []
    context.close()


def test_everything_has_a_name_for_those_who_hear_the_page(opened, strip):
    names = opened.evaluate(
        "[...document.querySelectorAll('#pictures button, #pictures input, .strip-view, #pictures img')]"
        ".map(e => e.getAttribute('aria-label') || e.getAttribute('alt') || e.closest('label')?.innerText || '')"
    )
    assert len(names) > 30 and all(name.strip() for name in names)
    assert strip.locator("output").get_attribute("aria-live") == "polite"


def test_without_javascript_the_middle_slice_stands_there(browser, path):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    card = page.locator("#lesion-3")
    assert card.locator("img").is_visible() and card.locator("button").first.is_disabled()
    assert card.locator(".sbox.subject").count() == 1
    assert "Scrolling needs JavaScript" in page.content()
    context.close()


def test_boxes_below_the_threshold_are_a_layer(browser, tmp_path):
    shown = pictured().shared(Redactor(VOLUMES))
    (first,) = [one for one in shown.lesions if one.models[0].says == "found" and one.models[1].score]
    boxes = tuple(dataclasses.replace(box, full=box.model != 1) for box in first.boxes)
    low = dataclasses.replace(shown, lesions=(dataclasses.replace(first, boxes=boxes),))
    path = write_report({"task": "detection", "metrics": {}}, tmp_path / "low.html", pictured=low)
    context, page = visit(browser, path, width=1280)
    strip = page.locator(".strip-card").first
    assert strip.evaluate(SHOWN) == ["0", "1", "truth"]
    page.locator(".strips-legend label", has_text="below").click()
    assert strip.evaluate(SHOWN) == ["0", "truth"]
    context.close()
