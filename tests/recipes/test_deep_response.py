"""The response recipes with networks: what is planted is learnt, what is hidden stays hidden."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from elsewhere.errors import UserError
from elsewhere.recipes import recipes
from elsewhere.recipes.base import RESPONSE
from elsewhere.recipes.mri.video import VALIDATION, _Candidate, best_first
from worlds.contrast_volumes import auc, world

pytestmark = pytest.mark.usefixtures("one_thread")


TRAIN, WATCH, TEST = slice(0, 48), slice(48, 64), slice(64, 96)
VIDEO = {
    "networks": ["tiny-3d"],
    "weights": "none",
    "learning_rates": [3e-3],
    "folds": 2,
    "epochs": 10,
    "batch": 12,
    "size": [16, 16, 8],
    "spacing_mm": [1.0, 1.0, 1.0],
}
SIMCLR = {
    "networks": ["tiny-3d"],
    "epochs": 20,
    "batch": 24,
    "size": [16, 16, 8],
    "learning_rate": 3e-3,
    "hold": 0.1,
    "gone": 0.3,
}


def run(name, settings, w, tmp_path, **more):
    recipe = recipes.get(name)()
    job, out = w.job(
        recipe.settings(settings),
        tmp_path,
        **({"train": TRAIN, "validation": WATCH, "predict": TEST, "tasks": (RESPONSE,)} | more),
    )
    return recipe.run(job), out


def test_video_learns_a_planted_washout_on_held_out_cases(tmp_path):
    w = world(96, sign="washout")
    trained, out = run("video", VIDEO, w, tmp_path)
    assert [p.case for p in out] == [c.case for c in w.cases[TEST]]
    assert auc([c.label for c in w.cases[TEST]], [p.probability for p in out]) > 0.8
    assert all(p.seconds > 0 for p in out)
    assert trained.details["candidates"][0]["judged_on"] == "validation part"
    assert len(trained.details["members"]) == 2
    assert trained.details["lesion_found_by"] == "enhancing"


def test_simclr_learns_a_planted_rim_from_one_phase(tmp_path):
    w = world(96, sign="rim")
    trained, out = run("simclr", SIMCLR, w, tmp_path)
    assert auc([c.label for c in w.cases[TEST]], [p.probability for p in out]) > 0.8
    weights = [entry["contrast_weight"] for entry in trained.history]
    assert weights[0] == 1.0 and weights[-1] == 0.0 and weights == sorted(weights, reverse=True)
    assert trained.history[trained.best_epoch - 1]["contrast_weight"] == 0.0


def test_one_phase_is_blind_to_what_a_later_phase_tells(tmp_path):
    """'one' is used on p1 alone, where washout does not show: the same network with three phases sees it."""
    w = world(96, sign="washout")
    truth = [c.label for c in w.cases[TEST]]
    _, one = run("simclr", SIMCLR, w, tmp_path / "one")
    _, three = run("simclr", SIMCLR | {"phases": "three"}, w, tmp_path / "three")
    assert auc(truth, [p.probability for p in three]) > 0.8
    assert abs(auc(truth, [p.probability for p in one]) - 0.5) < 0.25


@pytest.mark.parametrize("network", ["r3d_18", "mc3_18", "r2plus1d_18", "swin3d_t"])
@pytest.mark.parametrize("time", ["depth", "phases"])
def test_every_video_network_takes_slices_and_both_readings_of_time(network, time):
    from elsewhere.training.response import build_response_network

    built = build_response_network(network, phases=3, time=time, seed=1).eval()
    with torch.no_grad():
        assert built(torch.zeros(1, 3, 32, 32, 1)).shape == (1,)
        assert built(torch.zeros(1, 3, 32, 32, 4)).shape == (1,)


@pytest.mark.parametrize("name", ["video", "simclr"])
def test_slices_of_depth_one_work(tmp_path, name):
    w = world(96, shape=(24, 24, 1), sign="rim")
    settings = VIDEO if name == "video" else SIMCLR
    trained, out = run(name, settings, w, tmp_path)
    assert trained.details["window_voxels"] == [16, 16, 1]
    assert auc([c.label for c in w.cases[TEST]], [p.probability for p in out]) > 0.8


@pytest.mark.parametrize("name", ["video", "simclr"])
def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path, name):
    w = world(40, sign="washout")
    settings = (VIDEO if name == "video" else SIMCLR) | {"epochs": 4, "checkpoint_seconds": 0.0}
    parts = {"train": slice(0, 24), "validation": slice(24, 32), "predict": slice(32, 40)}
    _, whole = run(name, settings, w, tmp_path / "whole", **parts)

    class KilledError(Exception):
        pass

    seen = []

    def progress(what, done, total):
        if what not in ("lesion crops", "predictions"):
            seen.append(what)
            if len(seen) == 7 if name == "video" else len(seen) == 3:
                raise KilledError

    with pytest.raises(KilledError):
        run(name, settings, w, tmp_path / "killed", progress=progress, **parts)
    again = []
    _, out = run(
        name,
        settings,
        w,
        tmp_path / "killed",
        progress=lambda what, done, total: again.append(what),
        **parts,
    )
    assert [p.probability for p in out] == [p.probability for p in whole]
    assert "lesion crops" not in again
    assert sum(what != "predictions" for what in again) == 2


def test_another_seed_gives_other_numbers_and_the_same_seed_the_same(tmp_path):
    w = world(40, sign="none")
    parts = {"train": slice(0, 24), "validation": slice(24, 32), "predict": slice(32, 40)}
    few = VIDEO | {"epochs": 1, "folds": 2}
    values = [
        [p.probability for p in run("video", few, w, tmp_path / str(at), seed=seed, **parts)[1]]
        for at, seed in enumerate((5, 5, 6))
    ]
    assert values[0] == values[1] != values[2]


def test_unknown_outcomes_are_seen_by_the_contrastive_loss_alone(tmp_path):
    w = world(40, sign="rim")
    w.cases = [replace(c, label=-1) if i % 3 == 0 else c for i, c in enumerate(w.cases)]
    few = SIMCLR | {"epochs": 2}
    parts = {"train": slice(0, 24), "validation": slice(24, 32), "predict": slice(32, 40)}
    trained, _ = run("simclr", few, w, tmp_path, **parts)
    assert any("no known outcome" in note for note in trained.notes)
    assert trained.images == 2 * 24


def test_the_better_candidate_by_the_combined_score_is_kept(tmp_path):
    w = world(96, sign="washout")
    two = VIDEO | {"learning_rates": [1e-9, 3e-3], "models": 1}
    trained, _ = run("video", two, w, tmp_path)
    lame, good = trained.details["candidates"]
    assert good["kept"] and not lame["kept"]
    assert good["combined"] > (lame["combined"] or 0.0)
    assert {m["name"] for m in trained.details["members"]} == {"tiny-3d-0.003-fold0", "tiny-3d-0.003-fold1"}


def test_a_part_of_one_class_and_missing_weights_are_said(tmp_path, monkeypatch):
    w = world(20)
    w.cases = [replace(c, label=0) for c in w.cases]
    parts = {"train": slice(0, 8), "validation": slice(8, 12), "predict": slice(12, 14)}
    with pytest.raises(UserError, match="one class"):
        run("video", VIDEO, w, tmp_path, **parts)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))

    def no_network(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    with pytest.raises(UserError, match="Kinetics weights of r3d_18") as told:
        run("video", {}, w, tmp_path / "b", **parts)
    assert "weights = 'none'" in told.value.fix
    with pytest.raises(UserError, match="no weights of mc3_18"):
        run("video", {"networks": ["mc3_18"], "weights": str(tmp_path)}, w, tmp_path / "c", **parts)


def test_a_fold_that_leaves_one_class_is_left_out_and_said(tmp_path):
    w = world(20)
    w.cases = [replace(c, label=int(i == 3)) for i, c in enumerate(w.cases)]
    parts = {"train": slice(0, 12), "validation": slice(12, 16), "predict": slice(16, 20)}
    trained, out = run("video", VIDEO | {"epochs": 1, "folds": 3}, w, tmp_path, **parts)
    assert "1 of 3 folds have only one class to learn from and are left out." in trained.notes
    assert len(trained.details["members"]) == 2 and len(out) == 4


def test_masks_of_a_folder_find_the_crop(tmp_path):
    import numpy as np

    from elsewhere.training.response.lesions import LesionSource, masks_in

    (tmp_path / "A").mkdir()
    mask = np.zeros((24, 24, 12), dtype=bool)
    mask[2:5, 3:9, 1:2] = True
    np.save(tmp_path / "A" / "0.npy", mask)
    source = LesionSource(kind="masks", mask_of=masks_in(tmp_path))
    w = world(4)
    phases = w.volumes.images["A/0"]
    assert source.box(w.volumes, "A/0", before=phases[0], after=phases[1]) == (2, 3, 1, 5, 9, 2)
    found = source.box(w.volumes, "A/1", before=phases[0], after=phases[1])
    assert all(math.isfinite(v) for v in found)
    with pytest.raises(UserError, match="no such folder"):
        masks_in(tmp_path / "none")


def test_a_mask_that_a_study_wrote_is_read_back_in_the_axes_of_the_volumes(tmp_path):
    import nibabel
    import numpy as np

    from elsewhere.inputs.mri.files import FileVolumes, VolumeFiles
    from elsewhere.training.response.lesions import LesionSource, masks_in

    mask = np.zeros((20, 16, 12), dtype=np.uint8)
    mask[2:5, 3:6, 4:7] = 1
    for name, values in (("p0", 0.0 * mask), ("p1", 1.0 * mask), ("m", mask)):
        nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / f"{name}.nii.gz")
    phases = (tmp_path / "p0.nii.gz", tmp_path / "p1.nii.gz")
    volumes = FileVolumes({"D/c": VolumeFiles(phases=phases, mask=tmp_path / "m.nii.gz")})
    folder = tmp_path / "predictions"
    folder.mkdir()
    volumes.write_mask(folder / "c.nii.gz", volumes.mask("D/c"), like="D/c")
    seen = {"before": volumes.phase("D/c", 0), "after": volumes.phase("D/c", 1)}
    expert = LesionSource(kind="expert").box(volumes, "D/c", **seen)
    assert expert == (15, 3, 4, 18, 6, 7)
    assert LesionSource(kind="masks", mask_of=masks_in(folder)).box(volumes, "D/c", **seen) == expert
    np.save(folder / "c.npy", mask[:-1])
    (folder / "c.nii.gz").unlink()
    with pytest.raises(UserError, match="size"):
        LesionSource(kind="masks", mask_of=masks_in(folder)).box(volumes, "D/c", **seen)


def test_what_is_predicted_decides_nothing_about_the_training_window(tmp_path):
    from elsewhere.recipes.mri.response_members import ResponseWork

    flat, deep = world(6, shape=(24, 24, 1)), world(8, seed=1)
    extra = deep.cases[-1].case
    flat.volumes.images[extra] = deep.volumes.images[extra]
    flat.cases.append(deep.cases[-1])
    how = {"size": (16, 16, 8), "spacing_mm": (1.0, 1.0, 1.0), "phases": ("p0", "p1")}
    made = []
    for name, predict in (("slices", slice(5, 6)), ("volume", slice(6, 7))):
        folder = tmp_path / name
        folder.mkdir()
        job, _ = flat.job(
            None, folder, train=slice(0, 4), validation=slice(4, 5), predict=predict, tasks=(RESPONSE,)
        )
        made.append(ResponseWork.of(job, each=False, lesion="enhancing", masks="", **how).spec)
    assert made[0] == made[1] and made[0].size == (16, 16, 1)


def test_candidates_judged_on_other_cases_are_not_compared():
    def candidate(network: str, score: float, judged_on: str) -> _Candidate:
        return _Candidate(
            network=network, learning_rate=1e-4, members=[], held_out=[], score=score, judged_on=judged_on
        )

    found = best_first(
        [
            candidate("folds", 0.9, "held-out folds"),
            candidate("nothing", float("nan"), "nothing"),
            candidate("worse", 0.4, VALIDATION),
            candidate("better", 0.6, VALIDATION),
        ]
    )
    assert [c.network for c in found] == ["better", "worse", "folds", "nothing"]
