"""The page of many models at two domains: plain sentences, trade-off, strata, kinds; from the summary alone (LN-13, LN-18)."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest

from elsewhere.commands.generalise import GeneraliseSettings, generalise
from elsewhere.phantom.patch_scores import PatchWorld, draw_patch_scores
from elsewhere.report.generalise.plain_words import plain_words
from elsewhere.report.generalise.plots import best_of_both
from elsewhere.report.generalise.tables import difference_cell
from elsewhere.report.result.many_models import generalise_rows
from elsewhere.report.result.prepare import prepare
from elsewhere.report.summary import build_sections, figure_specs, render_report


@pytest.fixture(scope="module")
def summary():
    world = PatchWorld(internal=40, external=25, models=7)
    scores = draw_patch_scores(world, np.random.default_rng(3))
    settings = GeneraliseSettings(by=["stage"], standardise=["stage"], resamples=0, ensembles=True)
    return generalise(scores, margins=["dice=0.08", "fpr=0.004"], settings=settings).summary


def said(**models) -> str:
    """The sentences about models whose verdict is given by name: (verdict, non-inferior)."""
    part = {
        "models": [
            {"model": name, "verdict": word, "non_inferior": fine} for name, (word, fine) in models.items()
        ],
        "rows": [
            {
                "model": name, "metric": metric, "stratum_of": "", "internal": 0.8, "external": 0.6, "difference": -0.2,
                "verdict": word, "non_inferior": fine, "margin": 0.05, "smallest_provable_margin": 0.3,
                "standardised_difference": -0.1,
            }
            for name, (word, fine) in models.items()
            for metric in ("dice",)
        ],
        "standardised_by": ["stage"],
    }  # fmt: skip
    section = plain_words(prepare({"task": "x", "generalise": part}), {})
    return " ".join(section.blocks[0].paragraphs)


def test_sentences_for_who_buys_or_publishes():
    text = said(a=("EQUIVALENT", True), b=("BELOW", False), c=("INCONCLUSIVE", False))
    assert "1 of 3 models is shown to work no worse at the other hospital than the margins allow (a)." in text
    assert "1 is shown to work worse (b)." in text
    assert "For 1, these slides do not settle the question." in text
    assert "Dice on tumour patches is 0.800 at the internal hospital and 0.600 at the external one" in text
    assert "another mix of cases explains about 50 % of it" in text
    assert "the smallest one that these slides could have proved is about 0.300" in text
    assert "a model that was chosen here because it passed is best confirmed on other patients" in text


def test_one_model_that_fails_is_spoken_of_as_one():
    text = said(only=("INCONCLUSIVE", False))
    assert text.startswith("The model is not shown to work as well at the other hospital. For it, these")
    assert "models" not in text.split("To buy")[0]


def test_no_model_can_be_assessed():
    text = said(a=("NOT ASSESSED", None), b=("NOT ASSESSED", None))
    assert "For 2, it could not be put to these slides." in text
    assert "smallest one that these slides could have proved" not in text


def test_the_sections_and_figures_of_a_study(summary):
    ids = [section.id for section in build_sections(prepare(summary))]
    assert ids[:6] == [
        "generalise-plain",
        "generalise-trade-off",
        "generalise",
        "generalise-strata",
        "generalise-kinds",
        "generalise-by-fold",
    ]
    names = set(figure_specs(summary))
    assert names >= {
        "generalise-trade-off", "generalise-dice", "generalise-fpr", "generalise-fpr-ratio", "generalise-dice-mix",
        "generalise-heat-0", "generalise-heat-1", "generalise-dice-fold",
        "generalise-kind-share-dice", "generalise-kind-share-fpr",
    }  # fmt: skip
    assert any(name.startswith("generalise-stratum-") for name in names)
    page = render_report(summary)
    assert "None" not in page and "nan" not in page.split("<style")[0]
    for name in names:
        assert f'id="fig-{name}"' in page, name


def test_the_heat_map_has_stages_in_clinical_order_and_rates_in_per_cent(summary):
    specs = figure_specs(summary)
    rates = next(s for s in specs.values() if s.name.startswith("generalise-heat") and "positive" in s.title)
    assert "per cent" in rates.title
    places = [rates.alt.index(f"{stage} int.") for stage in ("negative", "itc", "micro", "macro")]
    assert places == sorted(places)
    from elsewhere.report.page.canvas import LIGHT, drawing

    with drawing():
        texts = [text.get_text() for text in rates.build(LIGHT).axes[0].texts]
    row = next(
        r
        for r in summary["generalise"]["rows"]
        if r["metric"] == "fpr" and r["stratum"] == "macro" and r["model"] == "histopathology-0"
    )
    assert f"{100 * row['internal']:.2f}" in texts and f"{100 * row['external']:.2f}" in texts


def test_models_with_other_names_have_no_section_by_kind_and_a_table_gives_it_back():
    scores = draw_patch_scores(PatchWorld(internal=20, external=12, models=2), np.random.default_rng(1))
    names = dict(zip(sorted(set(scores["model"])), ["unet", "deeplab"], strict=True))
    scores["model"] = scores["model"].map(names)
    plain = generalise(scores, margins=["0.1"], settings=GeneraliseSettings(resamples=0)).summary
    assert "kinds" not in plain["generalise"]
    table = pd.DataFrame({"model": ["unet", "deeplab"], "share": ["5", "40"], "set": ["own", "own"]})
    settings = GeneraliseSettings(resamples=0, models=table, clustering="set")
    made = generalise(scores, margins=["0.1"], settings=settings).summary["generalise"]
    assert [row["value"] for row in made["kinds"]["rows"]] == ["5", "40", "5", "40"]
    assert {row["model"]: row["share"] for row in made["models"]} == {"unet": "5", "deeplab": "40"}


def test_the_best_of_both_are_those_that_no_model_beats_in_both():
    rows = [("a", 0.9, 0.02), ("b", 0.8, 0.01), ("c", 0.8, 0.015), ("d", 0.7, 0.01), ("e", 0.6, 0.001)]
    points = [{"model": m, "dice_external": d, "fpr_external": f} for m, d, f in rows]
    assert best_of_both(points) == ["a", "b", "e"]


def test_all_numbers_of_a_rate_have_the_same_decimals():
    cell = difference_cell({"d": -0.00123, "lo": -0.0044, "hi": 0.00019}, "d", "lo", "hi", 4)
    assert (cell.text, cell.sub) == ("−0.0012", "[−0.0044, +0.0002]")
    assert difference_cell({}, "d", "lo", "hi", 4).kind == "undefined"


def test_tables_for_a_paper(summary):
    tables = generalise_rows(summary["generalise"])
    assert len(tables["generalise_dice"]) == 7 and len(tables["generalise_strata"]) == 7 * 7
    assert {"model", "difference", "lo", "hi", "verdict", "fold_p"} <= set(tables["generalise_dice"][0])


@pytest.mark.parametrize("models", [1, pytest.param(105, marks=pytest.mark.slow)])
def test_one_model_and_as_many_as_a_whole_study(summary, models):
    changed = copy.deepcopy(summary)
    part = changed["generalise"]
    first = part["models"][0]["model"]
    rows = [row for row in part["rows"] if row["model"] == first and not row["stratum_of"]]
    part["rows"] = [{**row, "model": f"m{k}"} for k in range(models) for row in rows]
    part["models"] = [{**part["models"][0], "model": f"m{k}"} for k in range(models)]
    part["kinds"] = None
    page = render_report(changed)
    assert f"m{models - 1}" in page
    assert len(page) < 6_000_000
