"""Registered sections and figures: place, order, the tables that they need, and those of other packages."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from elsewhere.analysis.study.summary import analyse
from elsewhere.report.page.blocks import Note
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.study.page import study_figures, study_sections
from elsewhere.report.study.registry import PLACES, figure, figures, ordered_sections, section, sections
from worlds.picture_results import TASK, make_results
from worlds.study_pages import page_of


@pytest.fixture
def own(monkeypatch):
    """What a test registers is forgotten after it."""
    for registry in (sections, figures):
        registry.names()
        monkeypatch.setattr(registry, "_things", dict(registry._things))
        monkeypatch.setattr(registry, "_owners", dict(registry._owners))


@pytest.fixture(scope="module")
def small():
    return analyse(
        make_results(models=("cnn",), inputs=("roi",), seeds=(1,), kinds=("external",), analyses={}),
        resamples=0,
    )


def with_table(summary, name, table):
    return replace(summary, tables=summary.tables | {name: table})


def ids_of(summary):
    return [one.id for one in study_sections(page_of(summary))]


def test_sections_stand_by_place_then_by_module():
    entries = ordered_sections()
    places = [PLACES.index(entry.place) for entry in entries]
    assert places == sorted(places)
    trust = [entry.name for entry in entries if entry.place == "trust"]
    assert trust == ["calibration", "recall and reliability", "lesion against normal", "abstention"]
    audit = [entry.name for entry in entries if entry.place == "audit"]
    assert audit == ["audit", "methods of the analysis", "provenance"]


def test_the_order_does_not_depend_on_what_was_imported_first(own):
    """A module that is imported by itself, before the others, registers its sections first."""
    names = [entry.name for entry in ordered_sections()]
    last = max(entry.number for _, entry in sections)
    for number, name in enumerate(reversed(names)):
        sections._things[name] = replace(sections.get(name), number=last + number + 1)
    order = [entry.name for entry in ordered_sections()]
    assert order.index("calibration") < order.index("abstention") < order.index("hardest cases")
    assert order.index("leaderboard") < order.index("internal and external")


def test_there_is_no_such_place():
    with pytest.raises(ValueError, match="there is no place 'attic'"):
        section("dust", place="attic")


def test_a_section_of_another_package_appears_when_its_table_exists(small, own):
    @section("noise", place="trust", tables=("noise", "more noise"))
    def noise(page):
        values = [str(row["value"]) for row in page.rows("noise")]
        return page.section("noise", "Noise of the pictures", [Note(text=", ".join(values))])

    assert f"{TASK}-noise" not in ids_of(small)
    loud = with_table(small, "noise", pd.DataFrame({"task": [TASK, "another task"], "value": [0.5, 0.9]}))
    found = ids_of(loud)
    at = found.index(f"{TASK}-noise")
    assert found[at - 1] == f"{TASK}-abstention", "after those of Elsewhere in the same place"
    assert found[at + 1].endswith("-hardest") or found[at + 1].endswith("-sizes")
    made = study_sections(page_of(loud))[at]
    assert made.blocks[0].text == "0.5", "the rows of its task alone"


def test_a_section_without_content_is_left_out(small, own):
    section("empty", place="cases")(lambda page: page.section("empty", "Nothing", []))
    section("none", place="cases")(lambda page: None)
    assert not [one for one in ids_of(small) if one.endswith(("empty", "none"))]


def test_a_section_of_the_whole_study_is_written_once(small, own):
    seen = []

    @section("weather", place="audit", whole_study=True)
    def weather(page):
        seen.append(page.task)
        return page.section("weather", "Weather", [Note(text="Rain.")])

    assert ids_of(small)[-1] == "weather" and seen == [""]


def test_the_title_names_the_task_where_a_study_has_several(small):
    alone = page_of(small, task=TASK).section("x", "Noise", [Note(text="a")])
    assert (alone.id, alone.title) == (f"{TASK}-x", "Noise")
    headline = small.headline | {"tasks": {TASK: {}, "response": {}}}
    several = page_of(replace(small, headline=headline), task=TASK).section("x", "Noise", [Note(text="a")])
    assert several.title == "Classification: noise"


def test_a_figure_needs_all_of_its_tables(small, own):
    @figure("noise", tables=("noise", "hardest"))
    def noise(page):
        yield FigureSpec(name="noise", title="Noise", alt="Noise.", build=lambda palette: None)

    table = pd.DataFrame({"task": [TASK], "value": [0.5]})
    loud = with_table(small, "noise", table)
    assert study_figures(loud)[f"{TASK}-noise"].title == "Noise"
    assert f"{TASK}-noise" not in study_figures(small)
    quiet = replace(loud, tables={n: t for n, t in loud.tables.items() if n != "hardest"})
    assert f"{TASK}-noise" not in study_figures(quiet)


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_every_section_and_figure_copes_without_any_one_table(picture_summary, step):
    """A study may lack any of them: what is not declared as needed must not be missed. `runs` is always there."""
    for name in list(picture_summary.tables)[::step]:
        if name == "runs":
            continue
        fewer = {n: table for n, table in picture_summary.tables.items() if n != name}
        summary = replace(picture_summary, tables=fewer)
        study_figures(summary)
        assert study_sections(page_of(summary)), name


def test_one_name_has_one_owner(own):
    from elsewhere.errors import UserError

    with pytest.raises(UserError, match="called 'audit'"):
        section("audit", place="audit")(lambda page: None)
