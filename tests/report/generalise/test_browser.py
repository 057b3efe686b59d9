"""The page of 21 models in a browser: silent, no sideways scroll, legible in the dark."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from elsewhere.commands.generalise import GeneraliseSettings, generalise
from elsewhere.phantom.patch_scores import PatchWorld, draw_patch_scores
from elsewhere.report.summary import write_report
from worlds.browser_pages import CONTRAST, visit

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    world = PatchWorld(internal=40, external=25, models=21)
    scores = draw_patch_scores(world, np.random.default_rng(3))
    settings = GeneraliseSettings(by=["stage"], standardise=["stage"], resamples=0, ensembles=True)
    summary = generalise(scores, margins=["dice=0.08", "fpr=0.004"], settings=settings).summary
    return write_report(summary, tmp_path_factory.mktemp("page") / "report.html")


@pytest.mark.parametrize("width", [390, 1280])
def test_silent_and_without_sideways_scroll(browser, path, width):
    context, page = visit(browser, path, width=width)
    page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
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
def test_contrast_and_names_in_light_and_dark(browser, path, dark):
    context, page = visit(browser, path, width=1280, dark=dark)
    assert page.evaluate(CONTRAST)["bad"] == []
    unnamed = page.evaluate(
        "[...document.querySelectorAll('svg.fig')].filter(e => !(e.getAttribute('aria-label') || '').trim()).length"
    )
    assert unnamed == 0
    assert page.evaluate(
        "new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size"
    ) == page.evaluate("document.querySelectorAll('[id]').length")
    context.close()


def test_names_of_21_models_do_not_overlap_in_the_forest(browser, path):
    """On a phone too, the lines of a forest's names lie below each other."""
    context, page = visit(browser, path, width=390)
    tops = page.evaluate(
        "[...document.querySelectorAll('#fig-generalise-dice text')]"
        ".filter(e => /^(histopathology|imagenet|single)-/.test(e.textContent))"
        ".map(e => { const b = e.getBoundingClientRect(); return [b.top, b.bottom]; })"
    )
    assert len(tops) == 21
    tops.sort()
    assert all(below[0] >= above[1] - 3 for above, below in pairwise(tops))
    context.close()
