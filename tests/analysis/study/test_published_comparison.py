"""Published numbers stand beside ours where the study file names them, and only where they are comparable (US-25)."""

from __future__ import annotations

import pytest

from elsewhere.analysis.study.warnings import notes_on_published
from worlds.picture_results import context_of, tables_of, with_runs, with_settings

NAMES = (
    "averages",
    "comparisons of inputs and models",
    "calibration",
    "comparison with published numbers",
    "datasets and runs",
)


def test_the_published_numbers_are_there_where_they_were_asked_for(picture_summary):
    tables = picture_summary.tables
    assert tables["overall"]["published_external_auroc"].iloc[-1] == 0.719
    assert len(tables["published_comparison"]) > 80
    patients = tables["datasets"].set_index("dataset")["published_patients"]
    assert patients[["BUS-BRA", "BUSI"]].to_dict() == {"BUS-BRA": 1875, "BUSI": 780}


def test_ours_published_and_their_difference(picture_summary):
    table = picture_summary.tables["published_comparison"]
    assert (table["difference"] - (table["value"] - table["published"])).abs().max() < 1e-12
    known = table[table["lo"].notna()]
    inside = (known["published"] >= known["lo"]) & (known["published"] <= known["hi"])
    assert (known["inside"].astype(bool) == inside).all()
    row = table[(table["what"] == "external, overall mean") & (table["metric"] == "AUROC")].iloc[0]
    assert row["published"] == 0.719


def test_no_published_number_without_the_reference(half):
    plain = tables_of(with_settings(half, analyses={}), *NAMES)
    assert {"datasets", "overall"} <= set(plain) and "published_comparison" not in plain
    assert not [c for table in plain.values() for c in table.columns if c.startswith("published")]
    assert notes_on_published(context_of(with_settings(half, analyses={}))) == []


def test_a_part_of_the_study_is_not_compared_with_the_published_average(half):
    part = with_runs(half, half.runs[half.runs["target"] != "BUS-UCLM"])
    tables = tables_of(part, *NAMES)
    assert "published_external_auroc" not in tables["overall"].columns
    assert any(
        "external scenarios are not those of the published study" in note
        for note in notes_on_published(context_of(part))
    )
    printed = tables["external_scenarios"]["published_auroc"]
    assert printed.notna().sum() > 0, "a single transfer may be compared"


@pytest.mark.parametrize(
    ("models", "sentence"),
    [
        (
            {"cnn": {"network": "efficientnet-lite0"}},
            "Our CNN is another network than the paper's: EfficientNet-Lite0 instead of EfficientNet-B0.",
        ),
        (
            {"cnn": {"network": "efficientnet-b0", "weights": "none"}},
            "Our CNN starts from random weights, the paper's from ImageNet's",
        ),
    ],
)
def test_another_network_is_named(half, models, sentence):
    notes = notes_on_published(context_of(with_settings(half, models=models)))
    assert any(note.startswith(sentence) for note in notes)
    assert not any("Our CNN" in note for note in notes_on_published(context_of(half)))
