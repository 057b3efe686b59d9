"""The sections on margins of the crop, several sources, and the choice on the sources alone (US-22, US-31, ST-12)."""

from __future__ import annotations

import pytest

from elsewhere.analysis.study.design import KIND_LABELS
from elsewhere.errors import UserError
from worlds.picture_results import World, context_of, make_results, with_runs
from worlds.some_analyses import analyse_without
from worlds.study_pages import first_part, html_of, table_of

OTHERS = ("groups", "cases", "calibration", "lesion against normal", "abstention")
"""Analyses whose sections are not looked at here."""
CHOICE = World(kinds=("leave-one-dataset-out", "nested"), seeds=(1, 2, 3), inputs=("roi",), analyses={})


@pytest.fixture(scope="module")
def choice():
    return make_results(CHOICE)


def page_without(results, gone):
    made = analyse_without(with_runs(results, results.runs[~gone]), *OTHERS, resamples=0)
    return made, html_of(made, "several sources")


def test_a_margin_study_is_compared_with_the_published_margins():
    margins = {"roi-00": 0.0, "roi-10": 0.1, "roi-12": 0.12, "roi-20": 0.2}
    four = ["BUS-UCLM>BUSI", "BUSI>BUS-BRA", "BUS-BRA>BUSI", "BrEaST>BUS-UCLM"]
    world = World(
        kinds=("external",), inputs=tuple(margins), margins=margins, seeds=(1, 2), models=("cnn",),
        analyses={"reference": "ultrasound", "margin_reference": 0.12},
    )  # fmt: skip
    made = make_results(world)
    summary = analyse_without(
        with_runs(made, made.runs[made.runs["scenario"].isin(four)]), *OTHERS, resamples=0
    )
    assert summary.tables["margins"].set_index("margin").loc[0.0, "published_auroc"] == 0.778
    page = html_of(summary, "margins")
    assert 'id="classification-margins"' in page and "its smallest possible value is 0.125" in page
    assert "A drop cannot be estimated" in first_part(page)


def test_several_sources_have_their_section():
    world = World(kinds=("external", "leave-one-dataset-out"), seeds=(1,), models=("cnn",), inputs=("roi",))
    page = html_of(analyse_without(make_results(world), *OTHERS, resamples=0), "several sources")
    table = table_of(page, "AUROC where all other datasets train")
    assert "Single source, mean" in table and "Single source, best" in table


def test_a_configuration_with_fewer_seeds_says_so(choice):
    """Nested runs too: a mean over fewer seeds is a weaker ensemble."""
    page = html_of(analyse_without(choice, *OTHERS, resamples=0), "several sources")
    assert " of 3</" not in page and "Fewer seeds than the others" not in page
    runs = choice.runs
    fewer, page = page_without(
        choice, (runs["model"] == "vit") & (runs["kind"] == "nested") & (runs["seed"] == 3)
    )
    attempts = fewer.tables["selection_attempts"].set_index("model")
    assert set(attempts.loc["vit", "nested_seeds"]) == {2} and set(attempts.loc["vit", "seeds"]) == {3}
    assert set(attempts.loc["cnn", "nested_seeds"]) == {3}
    assert table_of(page, "Every attempt").count("2 of 3") == 4
    assert "a weaker ensemble or a less certain choice: ViT, ROI." in page
    assert "2 to 3 seeds: their means differ in weight (fewer: vit-roi)" in first_part(page)


def test_a_choice_by_one_seed_for_all_is_no_weaker_for_some(choice):
    _, page = page_without(choice, (choice.runs["kind"] == "nested") & (choice.runs["seed"] != 1))
    attempts = table_of(page, "Every attempt")
    assert " of 3" not in attempts and attempts.count(">3<") == attempts.count(">1<") == 8
    assert "Fewer seeds than the others" not in page, "all were chosen by one seed and tested with three"
    assert "differ in weight" not in page


def test_a_mean_over_targets_needs_every_target(choice):
    one = with_runs(choice, choice.runs[choice.runs["seed"] == 1])
    runs = one.runs
    gone = (runs["model"] == "vit") & (runs["kind"] != "nested") & (runs["target"] == "BUSI")
    _, page = page_without(one, gone)
    table = table_of(page, "AUROC where all other datasets train")
    cnn, vit = (row for row in table.split("<tr>") if "ROI" in row)
    assert cnn.count("—") == 0 and vit.count("—") == 1
    assert "Single source" not in table, "no single source was trained"


def test_an_attempt_that_could_not_be_weighed_is_shown(choice):
    one = with_runs(choice, choice.runs[choice.runs["seed"] == 1])
    gone = (one.runs["model"] == "vit") & (one.runs["scenario"] == "nested BrEaST+BUS-UCLM>BUSI")
    assert gone.sum() == 1
    made, page = page_without(one, gone)
    attempts = made.tables["selection_attempts"].set_index(["target", "model"])
    assert len(attempts) == 8 and attempts.loc[("BUS-BRA", "vit"), "left_out"] == "2 of 3 choices done"
    assert not attempts.loc[("BUS-BRA", "vit"), "chosen"]
    assert table_of(page, "Every attempt").count("2 of 3 choices done") == 1


def test_nested_runs_have_a_name():
    """They stand in no average and on no leaderboard: a study that has no others has nothing to report."""
    assert KIND_LABELS["nested"] == "a source left out, to choose"
    world = World(kinds=("nested",), seeds=(1,), models=("cnn",), inputs=("roi",), analyses={})
    results = make_results(world)
    context = context_of(results)
    assert context.runs.empty and context.boards == [] and len(context.planned) == 12
    with pytest.raises(UserError, match="no method of the study could be ranked"):
        analyse_without(results, *OTHERS, resamples=0)
