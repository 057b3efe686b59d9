"""The nine published tables of BCS-DBT for a synthetic world, and the faults that can be planted in it (DBT-01).

Boxes are in pixels of the world's own volumes, as in any set of another matrix: a small world has small boxes,
and its protocol has the floor of 100 px in the same proportion (`Size.floor_px`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from elsewhere.phantom.tomosynthesis import Phantom
from elsewhere.phantom.tomosynthesis_lesions import Lesion
from elsewhere.phantom.tomosynthesis_patients import FINDINGS, SPLITS, Case, World

FILE_NAMES: Mapping[tuple[str, str], str] = {
    ("labels", "train"): "BCS-DBT-labels-train-v2.csv",
    ("labels", "validation"): "BCS-DBT-labels-validation-PHASE-2-Jan-2024.csv",
    ("labels", "test"): "BCS-DBT-labels-test-PHASE-2.csv",
    ("boxes", "train"): "BCS-DBT-boxes-train-v2.csv",
    ("boxes", "validation"): "BCS-DBT-boxes-validation-v2-PHASE-2-Jan-2024.csv",
    ("boxes", "test"): "BCS-DBT-boxes-test-v2-PHASE-2-Jan-2024.csv",
    ("file-paths", "train"): "BCS-DBT-file-paths-train-v2.csv",
    ("file-paths", "validation"): "BCS-DBT-file-paths-validation-v2.csv",
    ("file-paths", "test"): "BCS-DBT-file-paths-test-v2.csv",
}
"""Names of the published tables by content and split."""
KEYS = ("PatientID", "StudyUID", "View")
LABELS = tuple(name.capitalize() for name in FINDINGS)
BOXES = ("Subject", "Slice", "X", "Y", "Width", "Height", "Class", "AD", "VolumeSlices")
PATHS = ("descriptive_path", "classic_path")
COLLECTION = "Breast-Cancer-Screening-DBT"
MANIFESTS: Mapping[str, str] = {
    "train": "manifest-1617905855234",
    "validation": "manifest-1618429231104",
    "test": "manifest-1618873341556",
}
"""Folder of the download tool by split."""
_ROOT = "1.3.6.1.4.1.14519.5.2.1.99.1071"


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What tables and files state of one volume.

    Args:
        case: The volume's specification.
        shape: Slices, rows and columns.
        lesions: The boxes as the table states them.
        stated_slices: `VolumeSlices` of the table.
        tag: Laterality in the header: 'L' or 'R'.
        turned: Whether the stored volume is turned by 180 degrees.
    """

    case: Case
    shape: tuple[int, int, int]
    lesions: tuple[Lesion, ...]
    stated_slices: int
    tag: str
    turned: bool

    @property
    def case_id(self) -> str:
        """Id of the volume in a cohort: StudyUID/View."""
        return f"{self.case.patient.study_id}/{self.case.view}"

    @property
    def wrong_tag(self) -> bool:
        """Whether the laterality in the header is that of the other side."""
        return self.tag != self.case.view[0].upper()


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The volumes of a world in which something is wrong.

    Args:
        wrong_tags: Volumes of the vendor with right tags whose laterality tag is that of the other side.
        turned: Volumes that are stored turned by 180 degrees.
        background: The volume whose first box lies on background; '' for none.
        frames: The volume whose table row states three slices more than it has; '' for none.
    """

    wrong_tags: tuple[str, ...] = ()
    turned: tuple[str, ...] = ()
    background: str = ""
    frames: str = ""


def plan_faults(cases: Sequence[Case]) -> Faults:
    """Choose the volumes of a world in which faults are planted.

    Args:
        cases: The volumes of the world.

    Returns:
        One volume in eight with a wrong tag and one in six turned, and one volume with a box each for the
        box on background and the wrong number of slices, where the world has enough volumes.
    """
    positive = [case for case in cases if case.finding in ("benign", "cancer")]
    honest = [case for case in cases if not case.vendor.left_tags]
    return Faults(
        wrong_tags=tuple(case.case_name for case in honest[1::8]),
        turned=tuple(case.case_name for case in cases[2::6]),
        background=positive[0].case_name if positive else "",
        frames=positive[-1].case_name if len(positive) > 1 else "",
    )


def stated(phantom: Phantom, faults: Faults) -> Drawn:
    """Say what tables and files state of a drawn volume, planted faults included.

    Args:
        phantom: The drawn volume.
        faults: The faults of the world.

    Returns:
        What is stated.
    """
    case, name = phantom.case, phantom.case.case_name
    side = case.view[0].upper()
    tag = "L" if case.vendor.left_tags else side
    if name in faults.wrong_tags:
        tag = "R" if side == "L" else "L"
    lesions = phantom.lesions
    if name == faults.background and lesions:
        lesions = (_on_background(phantom, lesions[0]), *lesions[1:])
    return Drawn(
        case=case,
        shape=phantom.shape,
        lesions=lesions,
        stated_slices=phantom.shape[0] + (3 if name == faults.frames else 0),
        tag=tag,
        turned=name in faults.turned,
    )


def _on_background(phantom: Phantom, lesion: Lesion) -> Lesion:
    """Move a box to where there is only air: at the edge opposite to the chest wall, at the top or bottom."""
    _, rows, columns = phantom.shape
    width, height = min(lesion.width, columns // 6), min(lesion.height, rows // 6)
    x = columns - width - 1 if phantom.case.view.startswith("l") else 1
    return replace(lesion, x=x, y=rows - height - 1, width=width, height=height)


def uid(*parts: object) -> str:
    """Make a DICOM UID that depends on its parts alone.

    Args:
        *parts: What it names.

    Returns:
        The UID, at most 64 characters.

    Example:
        >>> uid("a") == uid("a"), uid("a") == uid("b"), len(uid("a")) <= 64
        (True, False, True)
    """
    text = "|".join(str(part) for part in parts)
    return f"{_ROOT}.{int(hashlib.sha256(text.encode()).hexdigest()[:24], 16)}"


def paths_of(case: Case) -> tuple[str, str]:
    """Name the file of a volume as the published table of file paths does.

    Args:
        case: The volume.

    Returns:
        The descriptive and the classic path, with '/'.
    """
    patient, seed = case.patient, case.patient.world.seed
    rng = np.random.default_rng(int(uid(seed, case.case_name).rsplit(".", 1)[1]) % 2**63)
    study = np.random.default_rng(int(uid(seed, patient.vendor, patient.study_id).rsplit(".", 1)[1]) % 2**63)
    visit = f"01-01-2000-{patient.study_id}-MAMMO screening digital bilateral-{study.integers(10000, 99999)}"
    series = f"{rng.integers(1000, 29999)}.000000-NA-{rng.integers(10000, 99999)}"
    classic = (
        uid(seed, patient.vendor, patient.study_id),
        uid(seed, case.case_name),
    )
    return (
        f"{COLLECTION}/{patient.patient_id}/{visit}/{series}/1-1.dcm",
        f"{COLLECTION}/{patient.patient_id}/{classic[0]}/{classic[1]}/1-1.dcm",
    )


def tables_of(drawn: Sequence[Drawn]) -> dict[str, pd.DataFrame]:
    """Make the nine published tables of a world.

    Args:
        drawn: What is stated of every volume, in the order of the rows.

    Returns:
        The tables by file name, with the published columns; a split without volumes has none.
    """
    made = {}
    for (content, split), name in FILE_NAMES.items():
        mine = [one for one in drawn if one.case.patient.split == split]
        if not mine:
            continue
        if content == "labels":
            rows = [(*_keys(one), *(int(one.case.finding == f) for f in FINDINGS)) for one in mine]
            made[name] = pd.DataFrame(rows, columns=[*KEYS, *LABELS])
        elif content == "file-paths":
            made[name] = pd.DataFrame(
                [(*_keys(one), *paths_of(one.case)) for one in mine], columns=[*KEYS, *PATHS]
            )
        else:
            boxes = [
                (*_keys(one), b.subject, b.slice, b.x, b.y, b.width, b.height, b.kind, int(b.distortion), one.stated_slices)
                for one in mine
                for b in one.lesions
            ]  # fmt: skip
            made[name] = pd.DataFrame(boxes, columns=[*KEYS, *BOXES])
    return made


def _keys(drawn: Drawn) -> tuple[str, str, str]:
    return drawn.case.patient.patient_id, drawn.case.patient.study_id, drawn.case.view


def truth_of(drawn: Sequence[Drawn]) -> pd.DataFrame:
    """Collect what the published tables have no column for, one row per volume.

    Args:
        drawn: What is stated of every volume.

    Returns:
        Vendor, split, finding, density, size, laterality tag and turn of every volume.
    """
    rows = [
        {
            "case_id": one.case_id,
            "patient_id": one.case.patient.patient_id,
            "view": one.case.view,
            "vendor": one.case.patient.vendor,
            "manufacturer": one.case.vendor.manufacturer,
            "split": one.case.patient.split,
            "finding": one.case.finding,
            "breast_density": one.case.patient.density,
            "pixel_mm": round(one.case.vendor.pixel_mm / one.case.size.unit, 6),
            "slices": one.shape[0],
            "rows": one.shape[1],
            "columns": one.shape[2],
            "laterality_tag": one.tag,
            "turned": int(one.turned),
        }
        for one in drawn
    ]
    return pd.DataFrame(rows)


def planted(world: World, drawn: Sequence[Drawn], faults: Faults) -> dict[str, object]:
    """Say what was planted in a world, in plain Python.

    Args:
        world: The specification of the world.
        drawn: What is stated of every volume.
        faults: The faults of the world.

    Returns:
        The size with the protocol's floor, the drop of contrast, the faults by kind, and the lesions with
        their contrast.
    """
    names = {one.case.case_name: one for one in drawn}
    size = drawn[0].case.size
    lesions = [
        {
            "case_id": one.case_id,
            "vendor": one.case.patient.vendor,
            "breast_density": one.case.patient.density,
            "subject": b.subject,
            "slice": b.slice,
            "box": [b.x, b.y, b.width, b.height],
            "class": b.kind,
            "distortion": b.distortion,
            "contrast": round(b.contrast, 4),
            "brightest": list(b.brightest),
        }
        for one in drawn
        for b in one.lesions
    ]
    dropped = [
        one.case_id
        for one in drawn
        if one.lesions and any(f.kept < 1 for f in one.case.patient.findings if f.biopsied)
    ]
    return {
        "size": size.name,
        "rows": size.rows,
        "floor_px": size.floor_px,
        "drop": {"share": world.drop, "volumes": dropped},
        "faults": {
            "left_tags_as_published": [
                one.case_id for one in drawn if one.wrong_tag and one.case.case_name not in faults.wrong_tags
            ],
            "wrong_tags": [names[name].case_id for name in faults.wrong_tags if name in names],
            "turned": [one.case_id for one in drawn if one.turned],
            "box_on_background": [names[faults.background].case_id] if faults.background in names else [],
            "wrong_frame_count": [
                {"case_id": one.case_id, "stated": one.stated_slices, "frames": one.shape[0]}
                for one in drawn
                if one.lesions and one.stated_slices != one.shape[0]
            ],
        },
        "lesions": lesions,
        "splits": {name: sum(one.case.patient.split == name for one in drawn) for name in SPLITS},
    }
