"""`elsewhere run --pictures`: pixels of patients only when they are asked for."""

from __future__ import annotations

import pytest

from elsewhere.cli import main
from elsewhere.commands.run import run_study
from elsewhere.errors import UserError
from worlds import fake_recipes  # noqa: F401 - registers 'threshold'
from worlds.mri_study import STUDY, make_study, make_world


def test_pictures_come_into_the_report_on_request_alone_and_the_analysis_is_heard(tmp_path, monkeypatch):
    world, study = make_world(tmp_path / "world"), make_study(tmp_path, STUDY)
    heard = []
    plain = run_study(
        study, data=world, out=tmp_path / "out", device="cpu", progress=lambda *told: heard.append(told)
    )
    page = plain.written.path.read_text()
    assert "data:image/png" not in page and "are drawn on request (--pictures)" in page
    steps = [told[1:] for told in heard if told[0] == "analysing"]
    assert steps[0][0] == 0 and steps[-1][0] == steps[-1][1] >= 2
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["run", str(study), "--data", str(world), "--out", "out", "--device", "cpu", "--pictures"])
    page = plain.written.path.read_text()
    assert ended.value.code == 0 and "data:image/png;base64" in page
    assert "DUKE_00" not in page, "a picture has its hash for a name"


def test_a_study_of_networks_shows_pictures_of_kept_weights_alone(tmp_path):
    with pytest.raises(UserError, match="saves no weights") as told:
        run_study("ultrasound-lite", data=tmp_path, out=tmp_path / "out", pictures=True)
    assert "keep_weights" in str(told.value.fix) and not (tmp_path / "out").exists()
