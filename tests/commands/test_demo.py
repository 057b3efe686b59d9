"""`demo`: the planted faults are found, and every report is there."""

from __future__ import annotations

import json

import pytest

from elsewhere.commands.demo import demo, look_for
from elsewhere.errors import UserError
from elsewhere.phantom.hospitals import MAKERS, World


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, demo(out, resamples=100)


def test_all_four_faults_are_found(shown):
    _, found = shown
    assert set(found.found) == {"drop", "subgroup_gap", "leak", "id_mistake"}
    assert {name: fault["found"] for name, fault in found.found.items()} == dict.fromkeys(found.found, True)
    assert found.exit_code == 0
    assert set(found.reports) == {"classification", "response", "segmentation", "detection", "slides"}
    for page in found.reports.values():
        assert page.exists()
        assert page.stat().st_size < 2_000_000
    assert found.to_dict()["all_found"] is True
    assert any("found" in line for line in found.lines())


def test_a_world_without_faults_shows_none(shown, tmp_path):
    """The look-out must be able to say no: a fair world has no drop, no gap, no leak, no id mistake."""
    world = World(drop=0, subgroup_gap=0, leaked_patients=0, file_name_ids=0, respelt_site_rows=0)
    out, _ = shown
    planted = json.loads((out / "classification" / "summary.json").read_text())
    assert look_for(planted, World().planted())["leak"]["found"] is True
    from numpy.random import default_rng

    from elsewhere.commands.score import score
    from elsewhere.phantom.hospitals import make

    tables = make("classification", default_rng(5), world)
    assert tables.planted == {}
    fair = score(
        "classification",
        tables.cases,
        tables.predictions,
        resamples=100,
        reference_site="Alder",
        margin=0.05,
        group_by=("breast_density",),
    )
    found = look_for(fair.summary, World().planted())
    assert {name: fault["found"] for name, fault in found.items()} == dict.fromkeys(found, False)


def test_a_second_demo_replaces_its_own_and_nothing_else(tmp_path, monkeypatch):
    """`make demo` is run again and again, in a folder where people try things out."""
    import elsewhere.commands.demo as command

    monkeypatch.setattr(command, "MAKERS", {"classification": MAKERS["classification"]})
    out = tmp_path / "demo-out"
    demo(out, resamples=20)
    notes = (
        out / "notes.txt",
        out / "classification" / "notes.txt",
        out / "data" / "classification" / "my.csv",
    )
    for file in notes:
        file.write_text("mine")
    demo(out, resamples=20, seed=8)
    assert [file.read_text() for file in notes] == ["mine"] * 3
    table = out / "data" / "classification" / "predictions.csv"
    table.write_text(table.read_text() + "# my change\n")
    page = (out / "classification" / "report.html").read_bytes()
    with pytest.raises(UserError, match=r"predictions\.csv was changed"):
        demo(out, resamples=20)
    assert table.read_text().endswith("# my change\n")
    assert (out / "classification" / "report.html").read_bytes() == page
