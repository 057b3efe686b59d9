"""The section of pictured lesions and false positives: what its markup holds, and what it does not."""

from __future__ import annotations

import dataclasses
import re

import pytest

from elsewhere.privacy import Redactor
from elsewhere.report.page.strips import colour_of
from elsewhere.report.result.strips import pictures_section
from elsewhere.report.summary import render_report
from worlds.pictured_lesions import VOLUMES, pictured

SUMMARY = {"task": "detection", "metrics": {}}


@pytest.fixture(scope="module")
def shown():
    return pictured()


@pytest.fixture(scope="module")
def html(shown):
    return render_report(SUMMARY, pictured=shown.shared(Redactor(VOLUMES)))


def test_the_page_names_numbers_and_no_case(shown, html):
    assert "Lesion 1 (volume 1)" in html and "False positive 1 (volume 4)" in html
    text = re.sub(r"data:image/jpeg;base64,[^\"]*|<script type=\"application/json\">[^<]*", "", html)
    assert "secret" not in text
    for line in shown.key.values():
        assert line not in html


def test_the_page_says_that_it_holds_images_and_how_large_they_are(shown, html):
    assert f"{shown.bytes / 1e6:.1f} MB" in html
    assert "parts of patients&#39; images" in html
    assert shown.bytes < len(html) < shown.bytes + 400_000


def test_a_page_without_pictures_holds_nothing_of_the_viewer():
    html = render_report(SUMMARY)
    assert "strip-view" not in html and "<script" not in html


def test_names_of_models_are_text(shown):
    odd = dataclasses.replace(shown, models=("<b>&\"'", "</script><script>alert(1)</script>"))
    html = render_report(SUMMARY, pictured=odd)
    assert "<b>&" not in html and "alert(1)</script>" not in html
    assert "&lt;b&gt;" in html


def test_volumes_without_pictures_are_named_with_the_reason(shown):
    first, *others = shown.lesions
    broken = dataclasses.replace(first, slices=(), boxes=(), problem="frame 40 is cut off")
    html = render_report(SUMMARY, pictured=dataclasses.replace(shown, lesions=(broken, *others)))
    assert "No pictures: frame 40 is cut off" in html
    assert html.count('class="strip-view"') == len(shown.places) - 1


def test_a_single_slice_has_nothing_to_scroll(shown):
    first = shown.lesions[0]
    flat = dataclasses.replace(first, slices=first.slices[:1], first=0, start=0, depth=1)
    html = render_report(
        SUMMARY, pictured=dataclasses.replace(shown, lesions=(flat,), false_positives=(), notes=())
    )
    assert 'class="strip-control" hidden' in html and "arrow keys change" not in html


def test_notes_stand_even_without_pictures(shown):
    none = dataclasses.replace(shown, lesions=(), false_positives=(), notes=("The cohort lists no lesions.",))
    section = pictures_section(none)
    assert section is not None and [block.text for block in section.blocks] == [
        "The cohort lists no lesions."
    ]
    assert pictures_section(dataclasses.replace(none, notes=())) is None


def test_colours_of_models_differ():
    assert len({colour_of(k) for k in range(30)}) == 30


def test_low_boxes_of_many_models_are_hidden_at_first(shown):
    names = tuple(f"model {k}" for k in range(6))
    first = shown.lesions[0]
    low = dataclasses.replace(first.boxes[0], model=3, score=0.1, full=False, centre=None, subject=False)
    place = dataclasses.replace(first, boxes=(*first.boxes, low), models=())
    few = dataclasses.replace(shown, lesions=(place,), false_positives=(), models=names[:4])
    many = dataclasses.replace(few, models=names)
    for pictured_, hidden in ((few, False), (many, True)):
        html = render_report(SUMMARY, pictured=pictured_)
        assert ('value="low" disabled' in html) == hidden and ('value="low" checked' in html) != hidden
        assert ('class="sbox dashed away"' in html) == hidden
    assert 'value="low"' not in render_report(
        SUMMARY,
        pictured=dataclasses.replace(
            few, lesions=(dataclasses.replace(place, boxes=first.boxes),), false_positives=()
        ),
    )
