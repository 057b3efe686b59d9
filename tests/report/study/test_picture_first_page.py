"""The first page of studies of pictures: a card per task, which answers what the study can answer.

Until now these studies had one large number on their first page. Each task has a card now: its numbers, the margin,
the smallest detectable drop and the protocol beside the verdict.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from worlds.picture_results import (
    TASK,
    World,
    failed,
    make_results,
    with_answers,
    with_runs,
    with_settings,
)
from worlds.some_analyses import analyse_without
from worlds.study_pages import first_of, first_part, html_of

BELOW_THE_FIRST_PAGE = ("groups", "cases", "calibration", "lesion against normal", "abstention")


def analysed(results):
    """The numbers of a study that its first page reads, and no resamples."""
    return analyse_without(results, *BELOW_THE_FIRST_PAGE, resamples=0)


NESTED = World(kinds=("leave-one-dataset-out", "nested"), seeds=(1,), inputs=("whole", "roi"), analyses={})


@pytest.fixture(scope="module")
def roi():
    """Three seeds: with fewer, the internal tests of the smallest dataset have too few patients to compare."""
    return make_results(models=("cnn",), inputs=("roi",), analyses={})


@pytest.fixture(scope="module")
def nested():
    """A study whose nested runs choose a method, and its numbers."""
    results = make_results(NESTED)
    return results, analysed(results)


def numbers_of(card):
    return dict(card["numbers"])


def test_the_answer_is_on_the_first_page(picture_summary):
    told = picture_summary.headline["tasks"][TASK]
    first = first_part(html_of(picture_summary))
    assert f"{abs(told['difference']):.3f}" in first
    assert f"falls from {told['internal']:.3f} internally to {told['external']:.3f} externally" in first
    assert "The study declares no margin, so there is no verdict." in first
    assert f"a margin below {told['one_sided_below_margin']:.3f} would have given BELOW" in first
    assert "grade C" in first and "BUS-UCLM: 7 patients carry both labels" in first


def test_margin_protocol_and_smallest_detectable_drop_stand_beside_the_verdict(picture_summary):
    (card,) = first_of(picture_summary).extra["cards"]
    numbers = numbers_of(card)
    low, high = picture_summary.headline["tasks"][TASK]["smallest_detectable_drop"]
    assert numbers["Smallest detectable drop"].text == f"{low:.3f} to {high:.3f}"
    assert numbers["Margin"].text == "none declared"
    assert numbers["Protocol"].text == "plain" and numbers["Protocol"].sub.startswith("version ")


@pytest.mark.parametrize(
    ("margin", "word"), [(0.3, "EQUIVALENT"), pytest.param(0.01, "BELOW", marks=pytest.mark.slow)]
)
def test_a_margin_gives_a_verdict(roi, margin, word):
    made = analysed(with_settings(roi, analyses={"verdict_margin": margin}))
    first = html_of(made)
    assert f'<p class="word">{word}</p>' in first and "declared in the study file" in first
    assert f"tone-{word.lower()}" in first
    (card,) = first_of(made).extra["cards"]
    assert any(line.startswith("AUROC falls") and "90 % interval" in line for line in card["lines"])


@pytest.mark.parametrize("analyses", [{}, {"verdict_margin": 0.3}])
def test_two_hospitals_have_no_verdict(analyses):
    """The transfers keep theirs, which rest on patients."""
    sizes = {"Harbour": (120, 100, 0, 200), "Hill": (120, 100, 0, 200)}
    world = World(sizes=sizes, seeds=(1, 2), models=("cnn",), inputs=("whole",), analyses=analyses)
    made = analysed(make_results(world))
    told, first = made.headline["tasks"][TASK], first_part(html_of(made))
    assert told["verdict"] == ("NOT ASSESSED" if analyses else "")
    assert "2 datasets: a verdict over datasets takes at least 4" in first
    assert ", spread" in first and "95 %" not in first and "Declared in advance" not in first
    verdicts = set(made.tables["transfers"]["verdict"])
    assert verdicts & {"EQUIVALENT", "INCONCLUSIVE", "BELOW"} if analyses else verdicts == {""}


def test_a_leak_is_an_alarm(roi):
    few = with_runs(roi, roi.runs[roi.runs["seed"] == 1])
    leaky = with_answers(few, lambda held: held | {"validation": held["test"].iloc[:50]})
    made = html_of(analysed(leaky), "audit")
    assert "Alarm." in first_part(made) and "No data leakage" not in made
    assert "No data leakage" in html_of(analysed(few), "audit")


def test_failed_runs_are_counted(roi):
    few = with_runs(roi, roi.runs[roi.runs["seed"] == 1])
    first = first_part(html_of(analysed(failed(few, [0]))))
    assert "15 of 16 runs" in first and "Runs that failed" in first
    assert "1 of 16 runs are not done" in first


def test_a_study_of_found_boxes_leads_with_what_they_cost():
    world = World(
        kinds=("external",), inputs=("roi", "found"), found=("found",), models=("cnn",), seeds=(1, 2)
    )
    made = analysed(make_results(world, analyses={}))
    paired = made.tables["paired"]
    cost = paired[(paired["what"] == "boxes") & (paired["metric"] == "auroc")]["difference"].iloc[0]
    (card,) = first_of(made).extra["cards"]
    cell = numbers_of(card)["AUROC, found − annotated boxes"]
    assert f"{abs(cost):.3f}" in cell.text and cell.sub.startswith("[")


def test_a_method_chosen_on_the_sources_leads(nested):
    """ST-12: nested runs choose and stand in no average; what was chosen is the headline, all attempts are shown."""
    _, made = nested
    assert set(made.tables["run_metrics"]["kind"]) == {"leave-one-dataset-out"}
    assert len(made.tables["selection"]) == 5 and len(made.tables["selection_attempts"]) == 16
    chosen = made.headline["tasks"][TASK]["chosen"]
    page = html_of(made, "several sources")
    first = first_part(page)
    counts = {name: cell.text for name, cell in first_of(made).figures}
    assert counts["Scenarios"] == "4" and counts["Scenarios to choose by"] == "12"
    assert "AUROC at hospitals left out" in first and f"{chosen:.3f}" in first
    assert "Every attempt" in page and "may not be claimed" in page
    plain = make_results(NESTED, kinds=("external",), models=("cnn",), inputs=("roi",))
    assert "Scenarios to choose by" not in html_of(analysed(plain))


def test_a_choice_without_the_annotated_outline_stands_beside_it(nested):
    results, seeing = nested
    assert "do not see the annotated outline" not in html_of(seeing, "several sources")
    inputs = {"roi": {"kind": "roi", "outline": True}, "whole": {"kind": "whole"}}
    made = analysed(with_settings(results, inputs=inputs))
    assert not made.tables["selection_without_outline"]["members"].str.contains("roi").any()
    page = html_of(made, "several sources")
    plain = made.tables["selection_without_outline"]["ensemble_auroc"].iloc[-1]
    assert "do not see the annotated outline" in page
    assert f"without these it is {plain:.3f}" in first_part(page), "the headline says what it rests on"


def test_only_external_scenarios_measure_no_drop(roi):
    external = with_runs(roi, roi.runs[roi.runs["kind"] == "external"])
    made = analysed(external)
    assert made.headline["tasks"][TASK]["verdict"] == ""
    assert "the study has no internal scenario to compare with" in first_part(html_of(made))
    judged = analysed(with_settings(external, analyses={"verdict_margin": 0.1}))
    told = judged.headline["tasks"][TASK]
    assert told["verdict"] == "NOT ASSESSED" and "internal" in told["reason"]
    assert '<p class="word">NOT ASSESSED</p>' in html_of(judged)


def test_every_picture_as_a_patient_is_on_the_masthead(picture_summary):
    plain = first_of(picture_summary).masthead
    images = replace(picture_summary, headline=picture_summary.headline | {"ids": "image"})
    assert first_of(images).masthead == [*plain, "every picture counts as a patient"]
