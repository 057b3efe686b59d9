"""nnunetv2 itself, through its own interface on an exported dataset (MRI-13; optional: extra `nnunet`).

**Follows** nnU-Net (Isensee et al.) with its ResEnc-L preset: the volumes are written in its raw format with
a dataset.json, then its own fingerprint, planner, preprocessing, trainer and predictor run, unchanged.

**Differs** from its command line: cases are assigned to folds by patient group (its splits_final.json is
written for it) and one fold is the default, with the job's validation part as its validation; epochs and
steps can be reduced. It runs in a process of its own, since it draws from the global generators and pins
libraries. On a GPU its workers make its numbers differ from run to run.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from elsewhere.errors import TrainingError, UserError
from elsewhere.inputs.mri.nifti import read_header, stored_voxels
from elsewhere.recipes.base import (
    SEGMENTATION,
    Job,
    Prediction,
    Recipe,
    RecipeCase,
    RecipeSettings,
    Trained,
    recipes,
)
from elsewhere.recipes.mri.nnunet_child import DATASET
from elsewhere.recipes.splits import grouped_folds

CHILD = Path(__file__).with_name("nnunet_child.py")
TAIL = 30


@dataclass(frozen=True, kw_only=True)
class NnunetSettings(RecipeSettings):
    """Settings of the recipe 'nnunet'.

    Args:
        phases: Positions of the phases that are channels, from 0; -1 is the last. A phase that a case lacks
            is replaced by its last one.
        planner: nnU-Net's experiment planner.
        configuration: nnU-Net's configuration; '2d' is used where all cases are slices.
        folds: 1: the job's own training and validation parts; more: cross-validation over both, and an
            ensemble.
        epochs: Epochs per fold.
        steps_per_epoch: Training steps per epoch.
        validation_steps: Validation steps per epoch.
        checkpoint_every: Epochs between two checkpoints.
        mirror: Whether predictions are averaged over mirrored copies.
        python: The interpreter that has nnunetv2; empty: the running one.
    """

    phases: tuple[int, ...] = (0, 1, 2)
    """Positions of the phases that are channels; -1 is the last. A phase that a case lacks is replaced by its
    last."""
    planner: str = "nnUNetPlannerResEncL"
    configuration: str = "3d_fullres"
    """'2d' is used where all cases are slices."""
    folds: int = 1
    """1: the job's own training and validation parts; more: cross-validation over both, and an ensemble."""
    epochs: int = 1000
    steps_per_epoch: int = 250
    validation_steps: int = 50
    checkpoint_every: int = 25
    mirror: bool = True
    python: str = ""
    """The interpreter that has nnunetv2; empty: the running one."""


@recipes.register("nnunet")
class Nnunet(Recipe):
    """Train and predict with nnunetv2 itself, on an exported dataset."""

    title = "nnU-Net v2"
    answers: ClassVar[Mapping[str, str]] = {SEGMENTATION: "masks"}
    version = 1
    follows = (
        "nnU-Net v2 itself (ResEnc-L) on the exported dataset, its own planning, training and prediction. Ours: "
        "folds by patient, one fold by default."
    )
    Settings: ClassVar[type[RecipeSettings]] = NnunetSettings

    def run(self, job: Job) -> Trained:
        s: NnunetSettings = job.settings
        python = s.python or sys.executable
        need_nnunet(python)
        known = [c for c in (*job.train, *job.validation) if job.volumes.mask(c.case) is not None]
        trained_on = [c for c in job.train if job.volumes.mask(c.case) is not None]
        if not trained_on:
            raise TrainingError(
                f"none of the {len(job.train)} training cases has a mask",
                fix="A segmentation recipe learns from masks: see the reader's column 'mask'.",
            )
        names = {case.case: f"case_{at:05d}" for at, case in enumerate((*known, *job.predict))}
        splits = _splits(trained_on, known, names, folds=s.folds, seed=job.seed)
        root = job.scratch / "nnunet"
        export(job, known, names, root, s.phases)
        flat = all(job.volumes.grid(c.case).shape[2] == 1 for c in known)
        (root / "predictions").mkdir(exist_ok=True)
        order: dict[str, Any] = {
            "root": str(root),
            "planner": s.planner,
            "configuration": "2d" if flat else s.configuration,
            "splits": splits,
            "epochs": s.epochs,
            "steps_per_epoch": s.steps_per_epoch,
            "validation_steps": s.validation_steps,
            "checkpoint_every": s.checkpoint_every,
            "mirror": s.mirror,
            "seed": job.seed,
            "threads": job.threads,
            "device": job.device,
            "predict": [
                [_files(root / "imagesTs", names[c.case], len(s.phases)), str(_out(root, names[c.case]))]
                for c in job.predict
            ],
        }
        (root / "job.json").write_text(json.dumps(order))
        history = _run(python, root, job)
        for case in job.predict:
            out = _out(root, names[case.case])
            cost = json.loads(Path(f"{out}.json").read_text())
            mask = _read(Path(f"{out}.nii.gz"), job.volumes.grid(case.case).shape)
            job.emit(Prediction(case=case.case, mask=mask, **cost))
        without = len(job.train) - len(trained_on)
        return Trained(
            history=tuple(entry for entry in history if entry["fold"] == 0),
            best_epoch=s.epochs,
            images=s.epochs * s.steps_per_epoch * len(splits) * _batch(root),
            notes=(f"{without} training cases have no mask and are left out.",) if without else (),
            details={
                "planner": s.planner,
                "configuration": order["configuration"],
                "folds": len(splits),
                "plan": _plan(root).get("configurations", {}).get(order["configuration"], {}),
            },
        )


def need_nnunet(python: str) -> None:
    """Check that an interpreter has nnunetv2.

    Args:
        python: The path of the interpreter.

    Raises:
        UserError: It cannot be started or lacks nnunetv2; the message names the extra to install.
    """
    fix = (
        "pip install 'elsewhere[nnunet]'; or, as it pins libraries, put it into an environment of its own and set "
        "python = 'PATH/bin/python' in the recipe's settings. The recipe 'residual-unet' needs neither."
    )
    try:
        found = subprocess.run(
            [python, "-c", "import importlib.util as u; raise SystemExit(u.find_spec('nnunetv2') is None)"],
            check=False,
            capture_output=True,
        )
    except OSError as error:
        raise UserError(f"this interpreter cannot be started ({error})", where=python, fix=fix) from error
    if found.returncode:
        raise UserError("the recipe 'nnunet' needs nnunetv2, which is not installed", where=python, fix=fix)


def export(
    job: Job, known: Sequence[RecipeCase], names: dict[str, str], root: Path, phases: tuple[int, ...]
) -> None:
    """Write the job's volumes in nnU-Net's raw format.

    A file that exists already is kept: files are written whole or not at all.

    Args:
        job: The job.
        known: The training and validation cases with a mask.
        names: The exported name of each case.
        root: The folder to write to.
        phases: Positions of the phases that are channels; -1 is the last.
    """
    raw = root / "raw" / DATASET
    for folder in (raw / "imagesTr", raw / "labelsTr", root / "imagesTs"):
        folder.mkdir(parents=True, exist_ok=True)
    cases = [*known, *job.predict]
    for done, case in enumerate(cases, start=1):
        name = names[case.case]
        teaching = done <= len(known)
        grid = job.volumes.grid(case.case)
        affine = grid.affine if grid.affine is not None else np.diag([*grid.spacing_mm, 1.0])
        have = job.volumes.phases(case.case)
        for channel, at in enumerate(phases):
            file = (raw / "imagesTr" if teaching else root / "imagesTs") / f"{name}_{channel:04d}.nii.gz"
            place = min(at, have - 1) if at >= 0 else max(0, have + at)
            if not file.is_file():
                _write(file, np.asarray(job.volumes.phase(case.case, place), dtype=np.float32), affine)
        label = raw / "labelsTr" / f"{name}.nii.gz"
        if teaching and not label.is_file():
            mask = job.volumes.mask(case.case)
            if mask is not None:
                _write(label, mask.astype(np.uint8), affine)
        job.progress("export", done, len(cases))
    about = {
        "channel_names": {str(at): f"phase {place}" for at, place in enumerate(phases)},
        "labels": {"background": 0, "tumour": 1},
        "numTraining": len(known),
        "file_ending": ".nii.gz",
        "overwrite_image_reader_writer": "NibabelIO",
    }
    (raw / "dataset.json").write_text(json.dumps(about, indent=1))


def _splits(
    train: Sequence[RecipeCase],
    known: Sequence[RecipeCase],
    names: dict[str, str],
    *,
    folds: int,
    seed: int,
) -> list[dict[str, list[str]]]:
    if folds > 1:
        parts = grouped_folds(known, folds, seed=seed)
    else:
        own = {case.case for case in train}
        watched = tuple(case for case in known if case.case not in own)
        parts = [(tuple(train), watched or tuple(train))]
    return [
        {"train": [names[c.case] for c in learn], "val": [names[c.case] for c in out]} for learn, out in parts
    ]


def _run(python: str, root: Path, job: Job) -> list[dict[str, float]]:
    """Run the child process and return its epochs; its last lines are in the error where it fails."""
    told = root / "history.json"
    history: list[dict[str, float]] = json.loads(told.read_text()) if told.is_file() else []
    command = [python, str(CHILD), str(root / "job.json")]
    environment = os.environ | {"PYTHONSAFEPATH": "1"}
    tail: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as child:
        try:
            for line in child.stdout or ():
                if not line.startswith("ELSEWHERE "):
                    tail = [*tail, line][-TAIL:]
                    continue
                what = json.loads(line.removeprefix("ELSEWHERE "))
                if "epoch" in what:
                    history = [h for h in history if (h["fold"], h["epoch"]) < (what["fold"], what["epoch"])]
                    history.append({k: v for k, v in what.items() if k != "epochs"})
                    told.write_text(json.dumps(history))
                    job.progress(f"nnU-Net, fold {what['fold']}", what["epoch"], what["epochs"])
                elif "predicted" in what:
                    job.progress("predictions", what["predicted"], what["of"])
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            raise
    if child.returncode:
        raise RuntimeError(f"nnU-Net ended with {child.returncode}:\n{''.join(tail)}")
    return history


def _files(folder: Path, name: str, channels: int) -> list[str]:
    return [str(folder / f"{name}_{channel:04d}.nii.gz") for channel in range(channels)]


def _out(root: Path, name: str) -> Path:
    return root / "predictions" / name


def _write(path: Path, values: np.ndarray, affine: np.ndarray) -> None:
    import nibabel

    part = path.with_name(f"part-{os.getpid()}-{path.name}")
    nibabel.Nifti1Image(values, affine).to_filename(part)
    part.replace(path)


def _read(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    mask = stored_voxels(path, read_header(path)) > 0
    if mask.shape != tuple(shape):
        raise RuntimeError(f"nnU-Net's mask {path.name} has shape {mask.shape} on a grid of {shape}")
    return np.asarray(mask)


def _plan(root: Path) -> dict[str, Any]:
    done = json.loads((root / "planned.json").read_text())
    plan: dict[str, Any] = json.loads((root / "preprocessed" / DATASET / f"{done['plans']}.json").read_text())
    return plan


def _batch(root: Path) -> int:
    order = json.loads((root / "job.json").read_text())
    return int(_plan(root).get("configurations", {}).get(order["configuration"], {}).get("batch_size", 1))
