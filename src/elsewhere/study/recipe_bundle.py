"""The release bundle of a study of recipes (US-24, MRI-08 to MRI-12): what another team checks it by, without a volume.

Every case's scores and probabilities are in it, so that scores of the response and every table can be made again
(`check_recipe_bundle`). Masks are known by their digests, and are in it on request alone. Ids are the cohort's own;
of the cohort's other columns it holds those that the analyses read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from elsewhere._version import __version__
from elsewhere.cohort import Cohort, IdGrade, load_cohort
from elsewhere.errors import UserError
from elsewhere.files import DAMAGED_ARCHIVE
from elsewhere.inputs.mri.nifti import read_header, stored_voxels
from elsewhere.predictions.masks import mask_file_name
from elsewhere.protocols import protocols
from elsewhere.recipes.base import RESPONSE, SEGMENTATION
from elsewhere.scoring.task import Scores
from elsewhere.study.bundle import environment, seal
from elsewhere.study.recipe_analysis_boards import REPORTED_COLUMNS
from elsewhere.study.recipe_report import KEY_FILE, write_recipe_report
from elsewhere.study.recipe_results import PROBABILITIES, Key, RecipeResults, write_recipe_results
from elsewhere.tables import (
    file_digest,
    read_table,
    staged_directory,
    to_jsonable,
    write_json,
    write_table,
    write_text,
)
from elsewhere.untrusted import MAX_JSON_BYTES, parse_json, read_json, read_text

if TYPE_CHECKING:
    from elsewhere.study.recipe_analysis import RecipeSummary

FORMAT = "elsewhere-recipe-bundle-1"
IDS = ("case_id", "patient_id", "exam_id", "dataset", "site")
MASK_COLUMNS = ("recipe", "scenario", "seed", "case_id", "voxels", "voxels_sha256", "file_sha256")
_README = """# {name}

Release bundle of a study made with Elsewhere {version}. It holds no picture and no volume{masks}.

| file | what |
|---|---|
| `cohort.csv` | a row a case: ids, dataset, site, outcome, and the columns that the analyses read |
| `manifest.csv` | a row a case: its group (what no split parts), whether it has a volume and a mask, the digest of its volume |
| `splits/` | which case stands in which part, a scenario and seed |
| `predictions/response/` | `probabilities.csv` a recipe, scenario and seed |
| `masks.csv` | every predicted mask: its size in voxels and its digests |
| `scores_segmentation.parquet`, `scores_response.parquet` | every case's scores, a recipe, scenario and seed; `scores.json`: how they came about |
| `scores.csv`, `costs.csv` | the metrics of every run; what each prediction cost |
| `runs.csv`, `trainings.csv` | every run with its status and reason; every training with its epochs, time and device |
| `tables/`, `summary.json`, `report.html` | the numbers and the report |
| `audit.json`, `study.json`, `environment.json` | what was checked, the study as data, versions |
| `SHA256SUMS` | the digest of each file |

## To check it

    sha256sum -c SHA256SUMS
    elsewhere check-bundle .

The second, with the same version of Elsewhere, checks the digests, scores the response again from the probabilities, and makes every table
again from the scores of the cases. By hand, one run of a scenario that tests a whole dataset:

    elsewhere score response cohort.csv predictions/response/RECIPE/SCENARIO/seed-N/probabilities.csv --where dataset=NAME --protocol PROTOCOL --out again

## What cannot be made again from this folder

- **Scores of masks**: they need the experts' masks, which are the publisher's{predicted}. `voxels_sha256` in `masks.csv`
  says whether a mask that you predict is the same: sha256 of the text `X Y Z` (the shape), a line feed, and the mask's bits, eight to a byte
  (the first is the highest), in the order of the file (the first axis runs fastest).
- **Trainings and predictions**: they need the volumes. `manifest.csv` has the digest of each, `study.json` every setting, `splits/` who was in
  which part; `elsewhere run` trains it again. On a CPU with as many threads the same bits come out, on a GPU about the same numbers.
- **Costs**: seconds, memory and energy are of the machine that is named in `trainings.csv`.
- The names behind the hashed cases of the report: they are in no file here.
"""


def write_recipe_bundle(
    results: RecipeResults,
    summary: RecipeSummary,
    out: str | Path,
    *,
    study: Path,
    masks: bool = False,
    replace: bool = False,
) -> Path:
    """The folder, written whole or not at all. `study`: the folder of the run, for its splits and manifest; `masks`:
    the predicted masks too."""
    for name in ("splits", "manifest.csv"):
        if not (study / name).exists():
            raise UserError(f"the run's folder has no {name}", where=str(study), fix="Run the study again.")
    with staged_directory(out, replace=replace) as staged:
        write_table(_cohort_table(results.cohort), staged / "cohort.csv")
        shutil.copyfile(study / "manifest.csv", staged / "manifest.csv")
        shutil.copytree(study / "splits", staged / "splits")
        write_recipe_results(results, staged)
        write_json(
            [_about_scores(key, scores) for key, scores in results.scores.items()], staged / "scores.json"
        )
        _copy_predictions(results, staged, masks=masks)
        write_json(results.audit, staged / "audit.json")
        write_json(_without_paths(results.settings), staged / "study.json")
        write_json(environment(), staged / "environment.json")
        write_recipe_report(summary, results, staged)
        (staged / KEY_FILE).unlink(missing_ok=True)
        readme = _README.format(
            name=results.name,
            version=__version__,
            masks="; the predicted masks are there" if masks else "",
            predicted="" if masks else ", and the predicted ones, which are large and were not asked for",
        )
        write_text(readme, staged / "README.md")
        about = {"format": FORMAT, "study": results.name, "elsewhere": __version__, "masks": masks}
        seal(staged, about | {"cohort": _about_cohort(results.cohort)})
    return Path(out)


def _cohort_table(cohort: Cohort) -> pd.DataFrame:
    """Ids, outcome and what the analyses read; that a mask is there, not where."""
    cases = cohort.cases
    fair = {name for _, protocol in protocols for name in protocol.fairness.variables}
    wanted = [c for c in cases.columns if c in (*IDS, "pcr", *REPORTED_COLUMNS) or c in fair]
    table = cases[wanted].copy()
    if "mask" in cases.columns:
        there = ["there" if held else None for held in cases["mask"].notna()]
        table["mask"] = pd.Series(there, index=cases.index, dtype="object")
    return table


def _about_cohort(cohort: Cohort) -> dict[str, Any]:
    grades = {name: {"grade": g.grade, "why": g.why} for name, g in cohort.id_grades.items()}
    return {
        "hash": cohort.hash,
        "reader": cohort.reader,
        "synthetic": cohort.synthetic,
        "id_grades": grades,
        "warnings": list(cohort.warnings),
    }


def _about_scores(key: Key, scores: Scores) -> dict[str, Any]:
    told: dict[str, Any] = to_jsonable(
        {
            "protocol": scores.protocol.name,
            "protocol_digest": scores.protocol.digest(),
            "counts": scores.counts,
            "flow": list(scores.flow),
            "warnings": list(scores.warnings),
            "extras": scores.extras,
        }
    )
    return dict(zip(("task", "recipe", "scenario", "seed"), key, strict=True)) | told


def _without_paths(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Where the data lay on this machine is nobody's business."""
    study = {**settings.get("study", {}), "data": "", "store": ""}
    cohorts = [
        {
            **one,
            "source": Path(one["source"]).name
            if Path(str(one.get("source", ""))).is_absolute()
            else one["source"],
        }
        for one in settings.get("cohort", ())
    ]
    return {**settings, "study": study, "cohort": cohorts}


def _copy_predictions(results: RecipeResults, staged: Path, *, masks: bool) -> None:
    rows: list[dict[str, Any]] = []
    for key in results.scores:
        task, recipe, scenario, seed = key
        source = results.folder(key)
        target = staged / "predictions" / source.relative_to(results.predictions_folder)
        if task == RESPONSE:
            target.mkdir(parents=True)
            shutil.copyfile(source / PROBABILITIES, target / PROBABILITIES)
            continue
        ids = [str(case) for case in results.scores[key].cases["case_id"]]
        files = [source / mask_file_name(case) for case in ids]
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            told = list(pool.map(mask_digests, files))
        rows += [
            dict(zip(MASK_COLUMNS, (recipe, scenario, seed, case, *one), strict=True))
            for case, one in zip(ids, told, strict=True)
        ]
        if masks:
            target.mkdir(parents=True)
            for file in files:
                shutil.copyfile(file, target / file.name)
    if SEGMENTATION in {task for task, *_ in results.scores}:
        write_table(pd.DataFrame(rows, columns=list(MASK_COLUMNS)), staged / "masks.csv")


def mask_digests(file: Path) -> tuple[int, str, str]:
    """Voxels of a mask file, the digest of its bits (the same however it is packed), and of its bytes."""
    voxels = stored_voxels(file, read_header(file)) > 0
    whole = hashlib.sha256(f"{' '.join(map(str, voxels.shape))}\n".encode())
    whole.update(np.packbits(voxels.ravel(order="F")).tobytes())
    return int(np.count_nonzero(voxels)), whole.hexdigest(), file_digest(file)


def read_recipe_bundle(folder: Path, about: Mapping[str, Any]) -> RecipeResults:
    """The results that a bundle holds, as the analyses read them.

    Raises:
        UserError: it holds something else, by its digests or not.
    """
    try:
        return _read_results(folder, about)
    except DAMAGED_ARCHIVE as error:
        raise UserError(
            f"the bundle cannot be read ({type(error).__name__}: {str(error)[:200]})",
            where=str(folder),
            fix="Fetch it again, or ask whoever made it: its files are not those that `run --bundle` writes.",
        ) from error


def _read_results(folder: Path, about: Mapping[str, Any]) -> RecipeResults:
    told = about["cohort"]
    cohort = load_cohort(folder / "cohort.csv")
    cohort = replace(
        cohort,
        hash=str(told["hash"]),
        reader=str(told["reader"]),
        id_grades={name: IdGrade(**grade) for name, grade in told["id_grades"].items()},
        warnings=tuple(told["warnings"]),
        synthetic=bool(told["synthetic"]),
    )
    tables = {
        task: read_table(folder / f"scores_{task}.parquet")
        for task in (SEGMENTATION, RESPONSE)
        if (folder / f"scores_{task}.parquet").is_file()
    }
    scores: dict[Key, Scores] = {}
    place = folder / "scores.json"
    listed = parse_json(read_text(place, most=MAX_JSON_BYTES), where=str(place))
    for one in listed:
        key: Key = (one["task"], one["recipe"], one["scenario"], int(one["seed"]))
        protocol = protocols.get(one["protocol"])
        if protocol.digest() != one["protocol_digest"]:
            raise UserError(
                f"protocol {protocol.name} has other rules here than in the bundle",
                where=str(folder),
                fix=f"Use the version of Elsewhere that wrote it: {about.get('elsewhere')}.",
            )
        if not all(isinstance(part, str) for part in key[:3]):
            raise TypeError("scores.json holds something else than names")
        table = tables[key[0]]
        mine = (table["recipe"] == key[1]) & (table["scenario"] == key[2]) & (table["seed"] == key[3])
        scores[key] = Scores(
            task=key[0],
            protocol=protocol,
            cases=table[mine].drop(columns=["recipe", "scenario", "seed"]).reset_index(drop=True),
            counts={str(k): int(v) for k, v in one["counts"].items()},
            flow=tuple(one["flow"]),
            warnings=tuple(one["warnings"]),
            extras=dict(one["extras"]),
        )
    units = pd.read_csv(folder / "trainings.csv", keep_default_na=False)
    units["notes"] = [
        parse_json(text, where=str(folder / "trainings.csv")) if text else [] for text in units["notes"]
    ]
    return RecipeResults(
        name=str(about["study"]),
        settings=read_json(folder / "study.json"),
        cohort=cohort,
        runs=pd.read_csv(folder / "runs.csv", keep_default_na=False),
        scores=scores,
        predictions_folder=folder / "predictions",
        costs=pd.read_csv(folder / "costs.csv", dtype={"case": "str"}),
        units=units,
        skipped=pd.DataFrame(),
        audit=read_json(folder / "audit.json"),
    )
