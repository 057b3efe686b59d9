"""The lesions of several models: their groups, and results of earlier versions that describe them less."""

from __future__ import annotations

import numpy as np
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.predictions.boxes import boxes_from_frame
from elsewhere.protocols import protocols
from elsewhere.scoring.detection.found import (
    difficulty_of,
    lesions_of_models,
    lesions_table,
    paired_lesions,
    strata_of,
)
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.statistics.resampling import Resampling

LATER = ["lesion_diagonal_px", "lesion_distortion"]


def scores_of(found, protocol="dbtex-code"):
    """Twelve volumes of six patients with a lesion each; the model finds those that are named."""
    views = ["lcc", "RMLO"]
    ids = [f"S{i // 2}/{views[i % 2]}" for i in range(12)]
    cases = pd.DataFrame(
        {
            "case_id": ids,
            "patient_id": [f"P{i // 2}" for i in range(12)],
            "view": views * 6,
            "vendor": ["A"] * 6 + ["B"] * 6,
        }
    )
    sides = np.arange(12) * 20.0 + 60
    lesions = pd.DataFrame(
        {
            "case_id": ids,
            "lesion_id": "1",
            "x": 500,
            "y": 500,
            "width": sides,
            "height": sides,
            "slice": 20,
            "volume_slices": 60,
            "class": ["cancer", "cancer", "benign"] * 4,
            "ad": [1, 0] * 6,
        }
    )
    box = {"x": 500, "y": 500, "width": 90, "height": 90, "z": 20, "depth": 0, "score": 0.9}
    said = boxes_from_frame(pd.DataFrame([{"case_id": ids[i], **box} for i in found]))
    cohort = Cohort.from_frame(cases, lesions=lesions)
    return tasks.get("detection").score(cohort, said, protocols.get(protocol), ScoreOptions())


def test_lesions_are_divided_by_what_is_known_of_them():
    held = lesions_of_models({"A": scores_of(range(8)), "B": scores_of(range(4, 12))})
    assert list(held.strata) == ["size", "class", "architectural distortion", "projection", "vendor"]
    assert held.strata["size"].value_counts().tolist() == [4, 4, 4]
    assert held.strata["projection"].value_counts().to_dict() == {"CC": 6, "MLO": 6}
    part = difficulty_of(held)
    rows = {(row["attribute"], row["level"]): row for row in part["difficulty"]["strata"]}
    assert rows["vendor", "A"]["models"] == [
        {"model": "A", "sensitivity": 1.0},
        {"model": "B", "sensitivity": 2 / 6},
    ]
    assert part["who_finds_what"]["by_all"] == 4 and part["who_finds_what"]["by_none"] == 0
    assert set(part["difficulty"]["hardest"][0]) >= {"rank", "size", "class", "projection"}
    assert "vendor" not in part["difficulty"]["hardest"][0]


def test_the_table_of_lesions_has_their_ids_and_what_each_model_pays():
    held = lesions_of_models({"A": scores_of(range(8)), "B": scores_of(range(4, 12))})
    table = lesions_table(held).set_index("case_id")
    assert table.loc["S0/lcc", "detected_by"] == 1 and np.isnan(table.loc["S0/lcc", "fp_per_volume B"])
    assert table.loc["S2/lcc", "fp_per_volume A"] == table.loc["S2/lcc", "fp_per_volume B"] == 0.0
    assert table["difficulty_rank"].tolist()[:8] == [1] * 8


def test_attributes_with_one_level_divide_nothing():
    lesions = pd.DataFrame(
        {
            "case_id": ["a", "b"],
            "lesion_id": ["1", "1"],
            "lesion_diagonal_px": [90.0, 90.0],
            "lesion_class": "x",
        }
    )
    assert strata_of(lesions, pd.DataFrame({"case_id": ["a", "b"], "view": ["lcc", "rcc"]})) == {}
    many = lesions.iloc[[0] * 9 + [1]].assign(lesion_diagonal_px=[90.0] * 9 + [300.0])
    groups = strata_of(many.reset_index(drop=True), pd.DataFrame({"case_id": ["a", "b"]}))["size"]
    assert groups.value_counts().to_dict() == {"up to 90 px": 9, "over 90 px": 1}


def test_a_result_of_an_earlier_version_describes_its_lesions_less():
    import dataclasses

    old = scores_of(range(8))
    old = dataclasses.replace(old, events=old.events.drop(columns=LATER))
    alone = lesions_of_models({"old": old})
    assert list(alone.strata) == ["class", "projection", "vendor"]
    both = lesions_of_models({"old": old, "new": scores_of(range(4))})
    assert list(both.strata)[:3] == ["size", "class", "architectural distortion"]
    assert len(both.lesions) == 12


def test_models_that_cannot_be_compared():
    nothing = Resampling(key="k", resamples=0)
    one = lesions_of_models({"A": scores_of(range(8))})
    assert paired_lesions(one, baseline=None, resampling=nothing) == {}
    assert one.warnings() == []
    many = lesions_of_models({f"m{i}": scores_of(range(i + 1)) for i in range(10)})
    part = paired_lesions(many, baseline=None, resampling=nothing)["lesions_paired"]
    assert part["baseline"] == "m0" and part["baseline_is_the_first_model"] is True
    assert len(part["pairs"]) == 9 and part["strata"]
    chosen = paired_lesions(many, baseline="m3", resampling=nothing)["lesions_paired"]
    assert chosen["baseline_is_the_first_model"] is False and {row["b"] for row in chosen["pairs"]} == {"m3"}
