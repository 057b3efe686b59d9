"""What a team adds is the merge of all against the merge that never had its file."""

from __future__ import annotations

import pytest

from elsewhere.analysis.merging.merging import MergeChoice, MergeInputs, merge_teams
from elsewhere.analysis.merging.settings import MergeSetting
from elsewhere.phantom.detectors import DetectorWorld, draw_detectors
from elsewhere.phantom.detectors_layout import write_detectors


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = draw_detectors(DetectorWorld(patients=12, seed=4))
    folder = write_detectors(made, tmp_path_factory.mktemp("teams") / "world")
    return made, sorted((folder / "phase1" / "test").glob("*.csv"))[:3]


def merged_value(made, files, **choice):
    inputs = MergeInputs(files=files, cohort=made.cohort("test"))
    setting = MergeSetting(normalisation="percentile", iou=0.4)
    return merge_teams(inputs, MergeChoice(setting=setting, resamples=50, **choice)).summary["merging"]


@pytest.mark.parametrize("weighted", [False, True])
def test_it_equals_a_merge_of_the_other_files(world, weighted):
    made, files = world
    weights = {files[0].stem: 2.0, files[2].stem: 0.5} if weighted else {}
    part = merged_value(made, files, weights=weights)
    value = part["merged"]["test"]["metrics"][part["metric"]]["value"]
    assert [row["team"] for row in part["without_one_team"]] == [file.stem for file in files]
    for file, row in zip(files, part["without_one_team"], strict=True):
        rest = [other for other in files if other != file]
        names = {other.stem for other in rest}
        alone = merged_value(made, rest, weights={k: v for k, v in weights.items() if k in names})
        without = alone["merged"]["test"]["metrics"][alone["metric"]]["value"]
        assert row["test"]["difference"] == pytest.approx(value - without, abs=1e-12)
        assert row["test"]["lo"] <= row["test"]["difference"] <= row["test"]["hi"]


def test_two_teams_have_no_rest_to_compare_with(world):
    made, files = world
    assert merged_value(made, files[:2])["without_one_team"] == []
