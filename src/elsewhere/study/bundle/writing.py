"""Write the release bundle of a study."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import elsewhere
from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.inputs.mri.nifti import read_header, stored_voxels
from elsewhere.predictions.answers import answer_kinds
from elsewhere.protocols import protocols
from elsewhere.scoring.task import Scores, tasks
from elsewhere.study.bundle.seal import FORMAT, seal
from elsewhere.study.environment import environment
from elsewhere.study.file import Study
from elsewhere.study.gather import write_results
from elsewhere.study.results import Results, RunKey
from elsewhere.tables import file_digest, staged_directory, to_jsonable, write_json, write_table, write_text

IDS = ("case_id", "patient_id", "exam_id", "dataset", "site")
MASK_COLUMNS = ("task", "method", "scenario", "seed", "case_id", "voxels", "voxels_sha256", "file_sha256")
LESIONS = "lesions.csv"
COPIED = ("splits", "manifest.csv")
"""Of the run's own folder."""
_README = """# {name}

Release bundle of a study made with Elsewhere {version}. It holds no image{masks}.

| file | what |
|---|---|
| `cohort.csv` | one row per case: ids, dataset, site, outcome, and the columns that the analyses read |
| `lesions.csv` | one row per lesion, where a task is scored by lesions |
| `manifest.csv` | one row per case: its patient, its group (what no split parts and every interval resamples together), the digest of its image |
| `splits/` | which case is in which part, per scenario and seed |
| `predictions.parquet` | every probability: run, part (test, validation, normal), case; not there where no method answers with probabilities |
| `predictions/TASK/METHOD/SCENARIO/seed-N/` | the answers of each run as a participant hands them in, such as `probabilities.csv` |
| `masks.csv` | every predicted mask: its size in voxels and its digests |
| `scores_TASK.parquet` | the scores of every case, per method, scenario and seed; `scores.json`: how they came about |
| `events_TASK.parquet` | the result of every box or point, for tasks whose metrics need them |
| `scores.csv`, `costs.csv` | the metrics of every run; what each prediction cost |
| `runs.csv`, `trainings.csv`, `skipped.csv` | every run with its status and reason; every training with its epochs, time and device; scenarios that could not be split |
| `tables/`, `summary.json`, `report.html` | the numbers and the report |
| `audit.json`, `study.json`, `environment.json` | what was checked, the study as data, versions |
| `SHA256SUMS` | the digest of each file |

## To check it

    sha256sum -c SHA256SUMS
    elsewhere check-bundle .

The second command, with the same version of Elsewhere, checks the digests, scores every run whose answers are in a table again, and computes every table again
from the scores of the cases. By hand, one run of a scenario that tests a whole dataset:

    elsewhere score TASK cohort.csv predictions/TASK/METHOD/SCENARIO/seed-N/probabilities.csv --where dataset=NAME --protocol PROTOCOL --out again

## What cannot be made again from this folder

- **Scores of masks**: they need the experts' masks, which are the publisher's{predicted}. `voxels_sha256` in `masks.csv`
  says whether a mask that you predict is the same: sha256 of the text `X Y Z` (the shape), a line feed, and the mask's bits, eight to a byte
  (the first is the highest), in the order of the file (the first axis runs fastest).
- **Trainings and predictions**: they need the images. `manifest.csv` has the digest of each, `study.json` every setting, `splits/` who was in
  which part; `elsewhere run` trains them again. On a CPU with as many threads the same bits come out, on a GPU about the same numbers.
- **Costs**: seconds, memory and energy are of the machine that is named in `trainings.csv`.
- The names behind the hashed cases of the report: they are in no file here.
"""


@dataclass(frozen=True, kw_only=True)
class BundleOptions:
    """What goes into a bundle.

    Args:
        masks: The predicted masks too, not only their digests.
        replace: An earlier bundle is replaced.
        columns: Of the cohort that the analyses read, beside ids and outcomes.
    """

    masks: bool = False
    replace: bool = False
    columns: Sequence[str] = ()


def write_bundle(
    results: Results,
    out: str | Path,
    *,
    run_folder: Path,
    write_report: Callable[[Path], Any],
    options: BundleOptions | None = None,
) -> Path:
    """Write the folder, whole or not at all.

    Args:
        results: Of the study.
        out: Where the bundle goes.
        run_folder: The folder of the run, for its splits and manifest.
        write_report: Writes the report and its tables, without a key file, into a folder.
        options: What goes into it.

    Returns:
        The folder.

    Raises:
        UserError: The run's folder lacks a part, or `out` holds other things.
    """
    options = options or BundleOptions()
    for name in COPIED:
        if not (run_folder / name).exists():
            raise UserError(
                f"the run's folder has no {name}", where=str(run_folder), fix="Run the study again."
            )
    with staged_directory(out, replace=options.replace) as staged:
        write_table(_cohort_table(results.cohort, options.columns), staged / "cohort.csv")
        lesions = _lesion_table(results)
        if lesions is not None:
            write_table(lesions, staged / LESIONS)
        manifest = pd.read_csv(run_folder / "manifest.csv", dtype="str", keep_default_na=False)
        write_table(manifest.drop(columns=["image"], errors="ignore"), staged / "manifest.csv")
        shutil.copytree(run_folder / "splits", staged / "splits")
        write_results(results, staged)
        write_table(results.skipped, staged / "skipped.csv")
        write_json([_about_scores(key, held) for key, held in results.scores.items()], staged / "scores.json")
        _copy_predictions(results, staged, masks=options.masks)
        write_json(results.audit, staged / "audit.json")
        write_json(_without_paths(results.study), staged / "study.json")
        write_json(environment(), staged / "environment.json")
        write_report(staged)
        readme = _README.format(
            name=results.name,
            version=elsewhere.__version__,
            masks="; the predicted masks are in it" if options.masks else "",
            predicted=""
            if options.masks
            else ", and the predicted ones, which are large and were not asked for",
        )
        write_text(readme, staged / "README.md")
        about = {"format": FORMAT, "study": results.name, "elsewhere": elsewhere.__version__}
        seal(staged, about | {"masks": options.masks, "cohort": _about_cohort(results.cohort)})
    return Path(out)


def _cohort_table(cohort: Cohort, columns: Sequence[str]) -> pd.DataFrame:
    """Ids, outcomes and what the analyses read; whether there is a mask, not where."""
    cases = cohort.cases
    fair = {name for _, protocol in protocols for name in protocol.fairness.variables}
    targets = {name for _, task in tasks for name in (task.target, *task.truth_columns) if name} - {"mask"}
    wanted = [c for c in cases.columns if c in {*IDS, *targets, *columns} or c in fair]
    table = cases[wanted].copy()
    if "mask" in cases.columns:
        there = ["there" if held else None for held in cases["mask"].notna()]
        table["mask"] = pd.Series(there, index=cases.index, dtype="object")
    return table


def _lesion_table(results: Results) -> pd.DataFrame | None:
    """What the tasks of the study read of the lesions; None where they read nothing, or nobody annotated any."""
    lesions = results.cohort.lesions
    wanted = {name for task in results.tasks for name in tasks.get(task).lesion_columns}
    if lesions is None or not wanted:
        return None
    return lesions[["case_id", *(name for name in lesions.columns if name in wanted)]]


def _about_cohort(cohort: Cohort) -> dict[str, Any]:
    grades = {name: {"grade": g.grade, "why": g.why} for name, g in cohort.id_grades.items()}
    return {
        "hash": cohort.hash,
        "reader": cohort.reader,
        "synthetic": cohort.synthetic,
        "id_grades": grades,
        "warnings": list(cohort.warnings),
    }


def _about_scores(key: RunKey, scores: Scores) -> dict[str, Any]:
    about: dict[str, Any] = to_jsonable(
        {
            "protocol": scores.protocol.name,
            "protocol_digest": scores.protocol.digest(),
            "counts": scores.counts,
            "flow": list(scores.flow),
            "warnings": list(scores.warnings),
            "extras": scores.extras,
        }
    )
    return key._asdict() | about


def _without_paths(study: Study) -> dict[str, Any]:
    """The study as data, without the folders of this machine."""
    content = study.to_dict()
    content["study"] = {**content.get("study", {}), "data": "", "store": ""}
    content["cohort"] = [
        {
            **one,
            "source": Path(one["source"]).name
            if Path(str(one.get("source", ""))).is_absolute()
            else one["source"],
        }
        for one in content.get("cohort", ())
    ]
    return content


def _copy_predictions(results: Results, staged: Path, *, masks: bool) -> None:
    """Copy the answers; where every case has a file of its own, their digests, and the files on request."""
    rows: list[dict[str, Any]] = []
    of_files = False
    for key in results.scores:
        source = results.folder(key)
        target = staged / "predictions" / source.relative_to(results.predictions_folder)
        kind = answer_kinds.get(tasks.get(key.task).answer_kind)
        ids = [str(case) for case in results.scores[key].cases["case_id"]]
        files = [source / name for name in kind.files(ids)]
        if masks or not kind.own_folder:
            target.mkdir(parents=True)
            for file in files:
                shutil.copyfile(file, target / file.name)
        if kind.own_folder:
            of_files = True
            with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
                digests = list(pool.map(mask_digests, files))
            rows += [
                dict(zip(MASK_COLUMNS, (*key, case, *one), strict=True))
                for case, one in zip(ids, digests, strict=True)
            ]
    if of_files:
        write_table(pd.DataFrame(rows, columns=list(MASK_COLUMNS)), staged / "masks.csv")


def mask_digests(file: Path) -> tuple[int, str, str]:
    """Digest a mask file.

    Args:
        file: The mask.

    Returns:
        Its voxels, the digest of its bits (the same however it is packed), and the digest of its bytes.
    """
    voxels = stored_voxels(file, read_header(file)) > 0
    whole = hashlib.sha256(f"{' '.join(map(str, voxels.shape))}\n".encode())
    whole.update(np.packbits(voxels.ravel(order="F")).tobytes())
    return int(np.count_nonzero(voxels)), whole.hexdigest(), file_digest(file)
