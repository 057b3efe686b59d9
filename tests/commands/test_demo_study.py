"""The demo's study: phantoms drawn, planned, handed to a trainer, and a report at the end."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.commands import demo as demo_module
from elsewhere.commands.demo import Demo, StudyPart, run_demo_study
from elsewhere.engine.training import Outcome
from elsewhere.phantom.ultrasound import hospital_from
from elsewhere.predictions.answers import Probabilities
from elsewhere.study.file import load_study


def guess(units, work, *, finished, **_):
    """A trainer that says nothing of the pictures: logits of the unit's own generator."""
    for unit in units:
        rng = np.random.default_rng(unit.seed)
        rows = work.cases.rows(unit.predict)
        signs = np.where(work.cases.label[rows] == 1, 0.5, -0.5)
        logit = (signs + rng.normal(0, 1, len(rows))).astype(np.float32)
        finished(
            unit,
            Outcome(
                case=unit.predict,
                fingerprint=unit.fingerprints(work.cases)[rows],
                answers={"classification": Probabilities.from_logits(np.column_stack([-logit, logit]))},
                history=({"epoch": 1.0, "train_loss": 0.7, "validation_loss": 0.7, "seconds": 0.1},),
                best_epoch=1,
                images=len(unit.train),
                seconds=0.1,
                device="cpu",
            ),
        )


def test_the_study_file_is_whole_and_its_hospitals_can_be_made():
    study = load_study("demo").study
    hospitals = [hospital_from(section.phantom) for section in study.cohort]
    assert [h.name for h in hospitals] == ["Alder", "Birch"]
    assert [h.shortcut for h in hospitals] == [1.0, 0.0]
    assert set(study.inputs) == {"whole", "roi"}


@pytest.mark.slow
def test_the_study_runs_to_its_report(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_module, "_has_weights", lambda network: False)
    part = run_demo_study("demo", tmp_path / "study", trainer=guess)
    assert part.exit_code == 0
    assert part.report is not None and part.report.exists()
    assert part.content["runs"] == {"planned": 16, "done": 16, "failed": 0, "skipped": 0, "invalid": 0}
    assert any("trained from random weights" in line for line in part.lines())


def test_without_torch_it_is_left_out_and_said(tmp_path, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else found(name, *rest)
    )
    part = run_demo_study("demo", tmp_path / "study")
    assert part.report is None
    assert "elsewhere[train" in part.left_out
    assert any("left out" in line for line in part.lines())
    assert not (tmp_path / "study").exists()


def test_a_study_with_failures_is_not_a_clean_demo(tmp_path):
    fine = {"drop": {"planted": "", "found": True, "evidence": ""}}
    shown = Demo(
        found=fine, reports={}, main=tmp_path, seconds=0.0, study=StudyPart(name="demo", exit_code=4)
    )
    assert shown.exit_code == 4
    assert Demo(found=fine, reports={}, main=tmp_path, seconds=0.0).exit_code == 0
