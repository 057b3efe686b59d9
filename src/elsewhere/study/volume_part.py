"""The part of a study table that recipes on volumes read: one row per exam, with what each task may use.

Headers of all volumes are held together here, before anything is trained: phases of other sizes than each
other, a mask on another grid, a missing phase stop the study with the case's name (MRI-01). A patient without
an outcome leaves the response task, one without a mask the segmentation; both are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.cohort.label_scheme import RESPONSES
from elsewhere.errors import UserError, name_rows
from elsewhere.inputs import Cases
from elsewhere.inputs.mri.files import FileVolumes
from elsewhere.inputs.mri.source import MriSource
from elsewhere.protocols import protocols
from elsewhere.scoring.segmentation import empty_truth
from elsewhere.study.case_frame import (
    FRAME_COLUMNS,
    about_dataset,
    case_frame,
    clinical_columns,
    left_out_rows,
)
from elsewhere.study.file import StudyFile
from elsewhere.study.identical_cases import join_identical_cases
from elsewhere.study.pictures import Report
from elsewhere.study.table import PartBuilder, StudyTable, parts
from elsewhere.study.volumes import digests, empty_masks, mask_digests, volumes_of, voxel_digests

NO_PCR, PCR, _, UNKNOWN = RESPONSES.labels


def join_volumes(
    file: StudyFile,
    cohorts: Mapping[str, Cohort],
    *,
    cache: Path | None = None,
    progress: Report | None = None,
) -> StudyTable:
    """Join cohorts of volumes under the rules of the study.

    Args:
        file: The study.
        cohorts: Those that are volumes.
        cache: A folder for what is slow to find out.
        progress: Called with what is done, how much, and how much there is.

    Returns:
        Their table, with the columns `has_volume` and `has_mask`.

    Raises:
        UserError: A cohort cannot be used.
    """
    joined = case_frame(file, cohorts)
    cohort, frame, warnings = joined.cohort, joined.frame, list(joined.warnings)
    case = frame["case"].tolist()
    columns = cohort.cases.columns
    if "response" in file.study.tasks and "pcr" not in columns:
        raise UserError(
            "no cohort has the column 'pcr', which the task 'response' needs",
            where=str(file.path),
            fix="0, 1, or empty where the outcome is not known; or leave out [tasks.response].",
        )
    volumes = volumes_of(cohorts)
    with_volume = [name for name in case if name in volumes]
    check_volumes(volumes, with_volume)
    seen = cache / "volumes.json" if cache else None
    digest = digests(volumes, with_volume, cache=seen, progress=progress)
    drawn = mask_digests(volumes, with_volume, cache=seen, progress=progress)
    voxels = voxel_digests(
        volumes, with_volume, cache=cache / "voxels.json" if cache else None, progress=progress
    )
    pcr = pd.to_numeric(cohort.cases["pcr"], errors="coerce") if "pcr" in columns else None
    label = (
        np.full(len(frame), -1, dtype=np.int8)
        if pcr is None
        else pcr.fillna(-1).to_numpy(dtype=np.int8)  # the reader has refused what is not 0, 1 or empty
    )
    frame["label"] = pd.Series([(NO_PCR, PCR, UNKNOWN)[code] for code in label], dtype="str")
    frame["has_volume"] = [name in digest for name in case]
    frame["has_mask"] = [name in digest and _has_mask(volumes, name) for name in case]
    frame["group"], duplicates, doubled = join_identical_cases(
        frame,
        voxels,
        keep_together=file.study.scenarios.keep_duplicates_together,
        values="voxels of the first phase",
    )
    warnings += doubled
    if "segmentation" in file.study.tasks:
        bare = empty_masks(
            volumes, drawn, cache=cache / "empty_masks.json" if cache else None, progress=progress
        )
        if bare:
            rules = protocols.get(file.study.task("segmentation").protocol)
            told_by = empty_truth(len(bare), int(frame["has_mask"].sum()), rules)
            where = frame.loc[frame["case"].isin(bare), "collection"].value_counts(sort=False).sort_index()
            warnings.append(f"{told_by} ({', '.join(f'{name} {n}' for name, n in where.items())})")
    frame = frame[[*FRAME_COLUMNS, "has_volume", "has_mask"]]
    cases = Cases(
        case=tuple(case),
        dataset=tuple(frame["dataset"]),
        label=label,
        box=np.zeros((len(frame), 4), dtype=np.int32),
        digest=tuple(digest.get(name, "") for name in case),
        mask_digest=tuple(drawn.get(name, "") for name in case),
        group=tuple(frame["group"]),
        clinical=clinical_columns(file, cohort),
    )
    audit = {
        "ids": "patient",
        "publication": file.study.study.publication,
        "cohorts": {
            name: _about(frame[frame["collection"] == name], cohort, name)
            for name in dict.fromkeys(frame["collection"])
        },
        "left_out": _left_out(file, frame),
        "duplicates": duplicates,
        "warnings": warnings,
    }
    return StudyTable(
        source=MriSource.name,
        frame=frame,
        datasets=tuple(dict.fromkeys(frame["dataset"])),
        cases=cases,
        sources={MriSource.name: MriSource(volumes)},
        audit=audit,
        cohort=cohort,
        label_scheme=RESPONSES,
        also={name: other for name, other in zip(case, cohort.other_ids(), strict=True) if other},
        pixels=dict(voxels),
    )


def fits_volumes(cohort: Cohort) -> bool:
    """Tell whether a cohort consists of MRI exams: folders of phases, or slices with a scale.

    Args:
        cohort: The cohort.

    Returns:
        True where the first image is a folder or the cohort has the column `mm_per_px`. Without images, True
        where it has the outcome `pcr`, or a column of images with no entry.
    """
    columns = cohort.cases.columns
    if "image" not in columns:
        return "pcr" in columns
    if "mm_per_px" in columns:
        return True
    first = next((path for path in cohort.cases["image"] if isinstance(path, str)), None)
    return first is None or cohort.file(first).is_dir()


parts.add(
    MriSource.name,
    PartBuilder(
        source=MriSource.name,
        build=join_volumes,
        fits=fits_volumes,
    ),
    owner="elsewhere.study.volume_part",
)


def check_volumes(volumes: FileVolumes, names: list[str]) -> None:
    """Check the headers of volumes together, and that each case has at least two phases (MRI-01).

    Args:
        volumes: The volumes.
        names: The cases to check.

    Raises:
        UserError: A volume cannot be used or does not fit the others of its case, or a case has one phase
            alone; the message names the first cases.
    """
    wrong = volumes.problems(names)
    if not wrong:
        _check_phases(volumes, names)
        return
    first = next(iter(wrong))
    others = list(wrong)[1:6]
    more = f"; likewise {', '.join(others)}" if others else ""
    more += f" and {len(wrong) - 6} more" if len(wrong) > 6 else ""
    try:
        volumes.check(first)
    except UserError as error:
        raise UserError(f"{error.what}{more}", where=error.where, fix=error.fix) from None


def _check_phases(volumes: FileVolumes, names: list[str]) -> None:
    """What takes up contrast is told by two phases at the least."""
    alone = [name for name in names if volumes.phases(name) < 2]
    if alone:
        raise UserError(
            f"case '{alone[0]}' has one phase alone"
            + (f"; likewise {name_rows(alone[1:])}" if len(alone) > 1 else ""),
            where=str(volumes.files(alone[0]).phases[0].parent),
            fix="Fetch its phases after contrast, or take the case out of the cohort.",
        )


def _has_mask(volumes: FileVolumes, case: str) -> bool:
    mask = volumes.files(case).mask
    return mask is not None and mask.is_file()


def _about(rows: pd.DataFrame, cohort: Cohort, name: str) -> dict[str, Any]:
    outcome = rows["label"].value_counts()
    return about_dataset(rows, cohort, name) | {
        "outcomes": {label: int(outcome.get(label, 0)) for label in (NO_PCR, PCR, UNKNOWN)},
        "volumes": int(rows["has_volume"].sum()),
        "masks": int(rows["has_mask"].sum()),
    }


def _left_out(file: StudyFile, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Which cases take no part in which task: one row per dataset and reason."""
    reasons = []
    if "response" in file.study.tasks:
        reasons.append((frame["label"] == UNKNOWN, "without an outcome: not in the task response"))
    if "segmentation" in file.study.tasks:
        reasons.append((~frame["has_mask"], "without a mask: not in the task segmentation"))
    reasons.append(
        (
            ~frame["has_volume"],
            "without a volume: used only by recipes that read none, and left out of the leaderboard",
        )
    )
    return left_out_rows(frame, reasons)
