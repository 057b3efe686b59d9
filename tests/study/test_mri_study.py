"""The study that ships: it asks the house's question, at home and elsewhere, and says its margin beforehand."""

from __future__ import annotations

import pytest

from elsewhere.study.file import load_study


@pytest.mark.parametrize(("profile", "home"), [(None, "internal"), ("small", "folds")])
def test_mri_is_tested_at_home_and_elsewhere_against_a_declared_margin(tmp_path, profile, home):
    study = load_study("mri", data=tmp_path, profile=profile).study
    assert study.scenarios.kinds == ("leave-one-dataset-out", home)
    assert {name: task.verdict_margin for name, task in study.tasks.items()} == {
        "segmentation": 0.05,
        "response": 0.05,
    }
    kept = [name for name, section in study.recipes.items() if not section.skip]
    assert len(kept) == (14 if profile is None else 7)
