"""nnU-Net's own steps, run as a program of its own: `python nnunet_child.py JOB.json`.

It knows nothing of Elsewhere, so that nnunetv2 may live in another environment (it pins libraries that others
want newer). nnU-Net starts processes that import this file again, hence the guard at the end. Lines on
standard output that begin with 'ELSEWHERE ' are JSON for the parent; the rest is nnU-Net's own.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

IDENTIFIER = 1
DATASET = "Dataset001_Elsewhere"


def tell(**what: Any) -> None:
    """Print a message for the parent process.

    Args:
        **what: Entries of the message, as plain JSON.
    """
    print(f"ELSEWHERE {json.dumps(what)}", flush=True)


def main(job: dict[str, Any]) -> None:
    """Plan and preprocess, train every fold, and predict every case; what is done already is not repeated.

    Args:
        job: The content of job.json.
    """
    root = Path(job["root"])
    os.environ |= {
        "nnUNet_raw": str(root / "raw"),
        "nnUNet_preprocessed": str(root / "preprocessed"),
        "nnUNet_results": str(root / "results"),
    }
    plans = planned(job, root)
    if job["device"] == "cpu":
        # Not before the planner has run: it sets torch's threads to this number.
        os.environ |= {"nnUNet_n_proc_DA": "0", "nnUNet_compile": "f"}
    folder = root / "results" / DATASET / f"nnUNetTrainer__{plans}__{job['configuration']}"
    for fold in range(len(job["splits"])):
        if not (folder / f"fold_{fold}" / "checkpoint_final.pth").is_file():
            train(job, plans, fold)
        tell(fold=fold, folds=len(job["splits"]))
    predict(job, folder)


def planned(job: dict[str, Any], root: Path) -> str:
    """Make fingerprint, plan and preprocessed cases, once.

    Args:
        job: The content of job.json.
        root: The folder of the job.

    Returns:
        The identifier of the plans.
    """
    from nnunetv2.experiment_planning.plan_and_preprocess_api import (
        extract_fingerprints,
        plan_experiments,
        preprocess,
    )

    done = root / "planned.json"
    if done.is_file():
        return str(json.loads(done.read_text())["plans"])
    tell(stage="plan and preprocess")
    workers = max(1, int(job["threads"]))
    extract_fingerprints([IDENTIFIER], num_processes=workers, check_dataset_integrity=True, verbose=False)
    plans = plan_experiments([IDENTIFIER], job["planner"])
    preprocess([IDENTIFIER], plans, configurations=[job["configuration"]], num_processes=[workers])
    splits = root / "preprocessed" / DATASET / "splits_final.json"
    splits.write_text(json.dumps(job["splits"]))
    part = done.with_suffix(".part")
    part.write_text(json.dumps({"plans": plans}))
    part.replace(done)
    return str(plans)


def train(job: dict[str, Any], plans: str, fold: int) -> None:
    """Train one fold with nnU-Net's trainer, or resume it from its latest checkpoint.

    `get_trainer_from_args` passes the plans to the trainer's constructor.

    Args:
        job: The content of job.json.
        plans: The identifier of the plans.
        fold: The number of the fold.
    """
    import numpy as np
    import torch
    from nnunetv2.run.run_training import get_trainer_from_args, maybe_load_checkpoint

    seed = int(job["seed"]) + fold
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - nnU-Net draws from the global generators of its process
    torch.manual_seed(seed)
    torch.set_num_threads(max(1, int(job["threads"])))
    latest = Path(job["root"]) / "results" / DATASET / f"nnUNetTrainer__{plans}__{job['configuration']}"
    resumed = (latest / f"fold_{fold}" / "checkpoint_latest.pth").is_file()
    trainer = get_trainer_from_args(
        DATASET,
        job["configuration"],
        fold,
        "nnUNetTrainer",
        plans,
        resumed,
        device=torch.device(job["device"].split(":")[0]),
    )
    trainer.num_epochs = int(job["epochs"])
    trainer.num_iterations_per_epoch = int(job["steps_per_epoch"])
    trainer.num_val_iterations_per_epoch = int(job["validation_steps"])
    trainer.save_every = int(job["checkpoint_every"])
    maybe_load_checkpoint(trainer, resumed, False)
    plain_end = trainer.on_epoch_end

    def on_epoch_end() -> None:
        plain_end()
        log = trainer.logger
        tell(
            fold=fold,
            epoch=trainer.current_epoch,
            epochs=trainer.num_epochs,
            train_loss=float(log.get_value("train_losses", step=-1)),
            validation_loss=float(log.get_value("val_losses", step=-1)),
            validation_dice=float(log.get_value("mean_fg_dice", step=-1)),
            seconds=float(
                log.get_value("epoch_end_timestamps", step=-1)
                - log.get_value("epoch_start_timestamps", step=-1)
            ),
        )

    trainer.on_epoch_end = on_epoch_end
    trainer.run_training()


def predict(job: dict[str, Any], folder: Path) -> None:
    """Predict every case by itself, so that its cost is its own.

    Args:
        job: The content of job.json.
        folder: The folder of the trained model.
    """
    import torch
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

    cuda = job["device"].startswith("cuda")
    predictor = nnUNetPredictor(
        use_mirroring=bool(job["mirror"]),
        perform_everything_on_device=cuda,
        device=torch.device("cuda" if cuda else "cpu"),
        allow_tqdm=False,
    )
    predictor.initialize_from_trained_model_folder(
        str(folder), use_folds=tuple(range(len(job["splits"]))), checkpoint_name="checkpoint_final.pth"
    )
    for at, (files, out) in enumerate(job["predict"], start=1):
        if Path(f"{out}.nii.gz").is_file() and Path(f"{out}.json").is_file():
            continue
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        predictor.predict_from_files_sequential([files], [out])
        if cuda:
            torch.cuda.synchronize()
        cost = {
            "seconds": time.perf_counter() - began,
            "peak_bytes": int(torch.cuda.max_memory_allocated()) if cuda else 0,
        }
        Path(f"{out}.json").write_text(json.dumps(cost))
        tell(predicted=at, of=len(job["predict"]))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
