"""`elsewhere explain` from a study file and its store to panels: a small study, trained here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from elsewhere.cli import main
from elsewhere.commands.explain import explain
from elsewhere.commands.run import run_study
from elsewhere.engine.store import Store
from elsewhere.errors import UserError
from elsewhere.explain.trainings import choose_cases
from elsewhere.recipes.running import train_all
from elsewhere.study.file import load_study
from elsewhere.study.run import plan_of, study_paths, write_plan

STUDY = """
[study]
name = "looks"
keep_weights = ["Alder>Birch"]

[[cohort]]
source = "Alder/cohort.csv"

[[cohort]]
source = "Birch/cohort.csv"

[scenarios]
kinds = ["external"]
seeds = [1]
keep_duplicates_together = false

[inputs.whole]
kind = "whole"

[inputs.roi]
kind = "roi"
margin = 0.5

[models.cnn]
network = "tiny-cnn"
weights = "none"
size_px = 64
epochs = 6
batch = 8
learning_rate = 3e-3
"""


def write_hospital(folder: Path, seed: int, patients: int = 24) -> None:
    """Noise; a malignant lesion is bright, a benign one dark. Half of the cases have a mask, all a box."""
    rng = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    rows = []
    for patient in range(patients):
        malignant = patient % 2 == 0
        picture = rng.integers(60, 120, (60, 72)).astype(np.uint8)
        y, x = rng.integers(4, 36, 2)
        picture[y : y + 18, x : x + 20] = 230 if malignant else 5
        name = f"c{patient:02d}"
        Image.fromarray(picture).save(folder / "images" / f"{name}.png")
        mask = ""
        if patient % 4 < 2:
            drawn = np.zeros_like(picture)
            drawn[y : y + 18, x : x + 20] = 255
            mask = f"images/{name}_mask.png"
            Image.fromarray(drawn).save(folder / mask)
        rows.append(
            {
                "case_id": name,
                "patient_id": f"p{patient:02d}",
                "dataset": folder.name,
                "label": "malignant" if malignant else "benign",
                "image": f"images/{name}.png",
                "mask": mask,
                "box_x0": x,
                "box_y0": y,
                "box_x1": x + 20,
                "box_y1": y + 18,
            }
        )
    pd.DataFrame(rows).to_csv(folder / "cohort.csv", index=False)


@pytest.fixture(scope="module")
def looked(tmp_path_factory):
    """The folder of a study that has run."""
    folder = tmp_path_factory.mktemp("looks")
    write_hospital(folder / "Alder", 1)
    write_hospital(folder / "Birch", 2)
    (folder / "looks.toml").write_text(STUDY)
    file = load_study(folder / "looks.toml")
    paths = study_paths(file, out=folder / "run")
    plan = plan_of(file, paths)
    write_plan(plan, paths)
    store, failures = Store(paths.store), []
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    train_all(
        list(plan.units.values()),
        plan.work,
        device="cpu",
        finished=store.save,
        failed=lambda unit, why: failures.append(why),
    )
    torch.set_num_threads(before[0])
    torch.use_deterministic_algorithms(before[1])
    assert failures == []
    return folder


def test_panels_and_numbers_of_a_run(looked, tmp_path, capsys):
    capsys.readouterr()
    arguments = ["explain", str(looked / "looks.toml"), "--results", str(looked / "run"), "--device", "cpu"]
    arguments += ["--run", "Alder>Birch|cnn", "--out", str(tmp_path / "maps"), "--pictures", "--json"]
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert done.value.code == 0
    summary = json.loads(capsys.readouterr().out)
    whole, roi = sorted(summary["runs"], key=lambda run: run["run"], reverse=True)
    assert whole["run"] == "Alder>Birch|cnn-whole|classification|1"
    assert roi["run"] == "Alder>Birch|cnn-roi|classification|1"
    table = pd.read_csv(tmp_path / "maps" / "cases.csv")
    assert len(table) == 2 * 20
    assert table["chosen"].sum() == 8
    assert np.allclose(table["probability"], table["stored_probability"], atol=1e-3)
    assert not whole["warnings"]
    assert set(table["region"]) == {"mask", "box"}
    assert set(table["method"]) == {"grad-cam"}
    assert whole["area_inside"] == pytest.approx(20 * 18 / (60 * 72), abs=0.02)
    assert roi["area_inside"] > 2 * whole["area_inside"]
    panels = sorted((tmp_path / "maps" / "panels").glob("*.png"))
    assert len(panels) == summary["panels"] == 8
    assert {str(path.relative_to(tmp_path / "maps")) for path in panels} == set(table["panel"].dropna())
    with Image.open(panels[0]) as drawn:
        assert drawn.size == (2 * 320 + 3 * 8 + 18, 320 + 44 + 8)


def test_the_report_shows_maps_of_kept_networks_on_request_and_names_nobody(looked):
    done = run_study(looked / "looks.toml", out=looked / "run", device="cpu", pictures=True)
    assert done.exit_code == 0 and not done.run.engine.done, "nothing is trained for it"
    page = done.written.path.read_text()
    section = page.split('<section class="part" id="classification-relevance"')[1].split("</section>")[0]
    assert (
        section.count("data:image/jpeg;base64") == 8 and "right answer: probability of malignancy" in section
    )
    names = {f"c{at:02d}" for at in range(24)} | {f"p{at:02d}" for at in range(24)}
    assert not names & set(re.findall(r"\b[cp]\d\d\b", re.sub(r"base64,[^\"]*", "", section)))
    table = pd.read_csv(done.written.path.parent / "tables" / "relevance.csv")
    assert set(table["run"]) == {
        "Alder>Birch|cnn-roi|classification|1",
        "Alder>Birch|cnn-whole|classification|1",
    }
    assert (table["cases"] == 20).all() and table["sanity_passed"].notna().all()
    plain = run_study(looked / "looks.toml", out=looked / "run", device="cpu")
    assert "data:image/jpeg" not in plain.written.path.read_text()
    assert not (plain.written.path.parent / "tables" / "relevance.csv").exists()


def test_maps_in_a_report_need_kept_weights_and_say_so_before_training(looked, tmp_path):
    with pytest.raises(UserError, match=r"saves no weights[\s\S]*keep_weights"):
        run_study(
            looked / "looks.toml",
            out=tmp_path / "none",
            changes=["study.keep_weights=[]"],
            device="cpu",
            pictures=True,
        )
    assert not (tmp_path / "none").exists()


def test_named_cases_another_method_and_no_pictures(looked, tmp_path):
    found = explain(
        looked / "looks.toml",
        results=looked / "run",
        run="Alder>Birch|cnn-whole",
        cases=("Birch/c03", "Birch/c00"),
        measure=0,
        method="occlusion",
        sanity=False,
        out=tmp_path / "maps",
        device="cpu",
    )
    assert list(found.cases["case"]) == ["Birch/c03", "Birch/c00"]
    assert set(found.cases["method"]) == {"occlusion"}
    assert not (tmp_path / "maps" / "panels").exists()
    assert any("add --pictures" in line for line in found.lines())
    malignant = found.cases[found.cases["label"] == "malignant"].iloc[0]
    assert malignant["enrichment"] > 1, "covering the bright lesion should cost the malignant answer most"


def test_what_cannot_be_explained_says_why(looked, tmp_path):
    def run(**changes):
        keywords = {"results": looked / "run", "run": "Alder>Birch|cnn-whole", "device": "cpu"}
        return explain(looked / "looks.toml", out=tmp_path / "no", **keywords | changes)

    with pytest.raises(UserError, match="unknown run 'Alder>Brich'"):
        run(run="Alder>Brich")
    with pytest.raises(UserError, match=r"not saved[\s\S]*keep_weights = \[\"Birch>Alder\"\]"):
        run(run="Birch>Alder|cnn-whole")
    with pytest.raises(UserError, match="unknown test case 'Birch/c0'"):
        run(cases=("Birch/c0",))
    with pytest.raises(UserError, match="unknown method"):
        run(method="saliency")
    with pytest.raises(UserError, match="not been trained"):
        run(results=tmp_path / "elsewhere")
    with pytest.raises(UserError, match="no case to explain"):
        run(choose=0, measure=0)
    assert not (tmp_path / "no").exists()


def test_without_torch_it_says_what_to_install(looked, tmp_path, monkeypatch):
    monkeypatch.setattr("elsewhere.commands.explain.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"elsewhere\[train\]"):
        explain(looked / "looks.toml", results=looked / "run", run="Alder>Birch", out=tmp_path / "no")


def test_cases_are_chosen_by_rule():
    names = ["a", "b", "c", "d", "e", "f"]
    label = [1, 1, 1, 0, 0, 0]
    probability = [0.9, 0.99, 0.2, 0.3, 0.01, 0.6]
    assert choose_cases(names, label, probability, 4) == ("b", "e", "c", "f")
    assert choose_cases(names, label, probability, 10) == ("b", "e", "c", "f", "a", "d")
    assert choose_cases(names, label, probability, 0) == ()
