"""BreastDCEDL: DCE-MRI of Duke, I-SPY1 and I-SPY2 prepared for networks; here one slice per patient.

licence: CC BY-NC 4.0.
citation: Fridman et al., BreastDCEDL (2025); Duke: Saha 2021, I-SPY1 and I-SPY2: The Cancer Imaging Archive.
layout: `index.csv` with one row per patient and `images/<pid>/slice_<n>.webp`, a 224 px crop of 80 mm around
  the tumour, whose channels are the pre-contrast, early and late phase; `BreastDCEDL_metadata.csv`, the
  publisher's table of all 2,070 patients; `ispy2_masks`, three masks of whole volumes that fit no slice and
  are not used.
labels: `pcr` 1 = pathologic complete response, 0 = none, empty = unknown. Duke: 87 known of 272; I-SPY1 66 of
  66; I-SPY2 198 of 198. `subtype` is the publisher's HRposHER2neg, HER2pos or TripleNeg.
patients: one slice per patient, `pid` by the publisher: DUKE 272, ISPY1 66, ISPY2 198. `mamamia_id` is the id
  of the same woman in MAMA-MIA, for the 352 who are there: a study must not train on one set and test on the
  other.
boxes: `box_x0` to `box_y1`, half-open, in pixels of the slice, cut to it. Duke's are the publisher's boxes of
  the whole lesion, the others' are around the mask in the slice: boxes mean different things in both
  (`roi_source`).
harmonised: `menopausal_status` from `menopause` 0 = pre, 1 = post, which is documented nowhere: of 244
  patients whose status MAMA-MIA gives in words too, all 142 with 0 are pre or peri there and all 102 with 1
  are post. Site, vendor and field strength are MAMA-MIA's, known for 352; Duke is one site. Ages of Duke and
  I-SPY2 are whole years, of I-SPY1 not.
known defects: the outcome of 4 Duke patients is known here and not in MAMA-MIA, the others agree; 20 boxes
  reach beyond the slice; the split differs from the metadata table's for 11 patients; volumes are mm3 in one
  table and ml in the other, and for Duke of the box, not of the tumour; I-SPY2's early phase is the second
  after contrast, Duke's the first: enhancement differs by cohort for that reason too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort.readers import readers
from elsewhere.cohort.readers.pictures import layout_root, picture_endings
from elsewhere.cohort.rows import note_unknown, refuse_ages
from elsewhere.cohort.table import Cohort, IdGrade, KnownOfCohort
from elsewhere.errors import UserError, name_rows
from elsewhere.tables import read_table, to_number

INDEX, METADATA = "index.csv", "BreastDCEDL_metadata.csv"
REQUIRED = (
    "filename", "pid", "cohort", "label_name", "bbox_x", "bbox_y", "bbox_w", "bbox_h", "img_size",
    "mm_per_px", "mamamia_id", "pcr_breastdcedl",
)  # fmt: skip
META_REQUIRED = ("pid", "pCR", "age", "menopause")
DATASETS = {"duke": "DUKE", "spy1": "ISPY1", "spy2": "ISPY2"}
_NUMBERS = (
    "bbox_x", "bbox_y", "bbox_w", "bbox_h", "img_size", "mm_per_px", "pcr_breastdcedl", "mm_pcr", "mm_age",
    "mm_field_strength", "slice_thick", "xy_spacing", "tumor_pixels", "tumor_area_mm2", "tum_vol",
)  # fmt: skip
_KEPT = {
    "mm_manufacturer": "vendor",
    "mm_scanner_model": "scanner_model",
    "mm_field_strength": "field_strength",
    "mm_tumor_subtype": "mamamia_subtype",
    "split": "published_split",
    "slice_thick": "spacing_slice_mm",
    "xy_spacing": "source_spacing_mm",
    "roi_source": "roi_source",
    "phase_early": "phase_early",
    "phase_late": "phase_late",
    "tumor_area_mm2": "tumor_area_mm2",
    "mamamia_id": "mamamia_id",
}


@readers.register("breast-dcedl")
def read_breast_dcedl(source: Path) -> Cohort:
    """Read BreastDCEDL: one slice per patient, as volumes of depth one with three phases.

    Args:
        source: The folder with index.csv, one above it, or index.csv itself.

    Returns:
        The cohort.

    Raises:
        UserError: A table is not as it was published (collection, outcome, age, menopause), or no slice is
            there.
    """
    given = Path(source)
    root = (
        given.parent
        if given.is_file()
        else layout_root(given, lambda folder: (folder / INDEX).is_file(), what=INDEX)
    )
    path = given if given.is_file() else root / INDEX
    where = str(path)
    index = read_table(path, required=REQUIRED)
    index = index.apply(lambda column: column.str.strip())
    for name in _NUMBERS:
        if name in index.columns:
            index[name] = to_number(index[name], column=name, where=where)
    if "mm_age" in index.columns:
        refuse_ages(index["mm_age"], column="mm_age", where=where)
    warnings: list[str] = []
    counts: dict[str, Any] = {"rows_in_table": len(index)}
    dataset = _datasets(index, where)
    meta = _metadata(root, index, warnings, counts)
    frame = pd.DataFrame(
        {
            "case_id": index["pid"],
            "patient_id": index["pid"],
            "exam_id": index["pid"],
            "dataset": dataset,
            "modality": "MRI",
            "pcr": _outcome(index, where),
            "subtype": index["label_name"],
            "mm_per_px": index["mm_per_px"],
        }
    )
    frame["age"] = meta["age"] if meta is not None else index.get("mm_age", np.nan)
    if meta is not None:
        frame["menopausal_status"] = meta["menopausal_status"]
    for old, new in _KEPT.items():
        if old in index.columns:
            frame[new] = index[old]
    for name in ("spacing_row_mm", "spacing_column_mm"):
        frame[name] = index["mm_per_px"]
    frame["site"] = _sites(index, dataset, warnings)
    _pictures(frame, index, root, warnings, counts)
    _boxes(frame, index, warnings, counts)
    _against_mama_mia(frame, index, meta, warnings, counts)
    warnings += _unknown(frame, counts)
    return Cohort.from_frame(
        frame,
        reader="breast-dcedl",
        root=root,
        warnings=tuple(warnings),
        where=where,
        known=KnownOfCohort(id_grades=_grades(frame, meta), counts=counts, other_id_column="mamamia_id"),
    )


def _datasets(index: pd.DataFrame, where: str) -> pd.Series:
    named = index["cohort"].str.casefold().map(DATASETS)
    if named.isna().any():
        at = int(np.flatnonzero(named.isna())[0])
        raise UserError(
            f"cohort in row {at + 1} is '{index['cohort'].iloc[at]}'",
            where=where,
            fix=f"One of {', '.join(DATASETS)}.",
        )
    return named


def _outcome(index: pd.DataFrame, where: str) -> pd.Series:
    pcr = index["pcr_breastdcedl"]
    bad = (pcr.notna() & ~pcr.isin([0, 1])).to_numpy()
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise UserError(
            f"pcr_breastdcedl in row {at + 1} is {pcr.iloc[at]:g}", where=where, fix="0, 1 or empty."
        )
    return pcr


def _metadata(
    root: Path, index: pd.DataFrame, warnings: list[str], counts: dict[str, Any]
) -> pd.DataFrame | None:
    """The publisher's own table, in the order of the index: only it has age and menopausal status."""
    path = root / METADATA
    if not path.is_file():
        warnings.append(
            f"{METADATA} is not here: menopausal status is unknown, age is known where MAMA-MIA has it"
        )
        return None
    where = str(path)
    table = read_table(path, required=META_REQUIRED)
    counts["metadata_patients"] = len(table)
    twice = table["pid"].duplicated()
    if twice.any():
        raise UserError(f"two rows are of patient '{table['pid'][twice].iloc[0]}'", where=where)
    for name in ("pCR", "age", "menopause"):
        table[name] = to_number(table[name], column=name, where=where)
    refuse_ages(table["age"], column="age", where=where)
    coded = table["menopause"].isna() | table["menopause"].isin([0, 1])
    if not coded.all():
        at = int(np.flatnonzero(~coded)[0])
        raise UserError(
            f"menopause in row {at + 1} is {table['menopause'].iloc[at]:g}",
            where=where,
            fix="0 = pre, 1 = post or empty.",
        )
    table["menopausal_status"] = table["menopause"].map({0.0: "pre", 1.0: "post"})
    held = table.set_index("pid").reindex(index["pid"]).reset_index()
    absent = ~index["pid"].isin(table["pid"])
    _say(index["pid"][absent], f"patients are not in {METADATA}", "not_in_metadata", warnings, counts)
    differ = (held["pCR"] != index["pcr_breastdcedl"]) & (
        held["pCR"].notna() | index["pcr_breastdcedl"].notna()
    )
    _say(
        index["pid"][differ & ~absent],
        f"patients have another outcome in {METADATA}, the index is used",
        "outcome_differs_in_metadata",
        warnings,
        counts,
    )
    if "test" in table.columns and "split" in index.columns:
        told = to_number(held["test"], column="test", where=where).map({1.0: "test", 2.0: "val"})
        _say(
            index["pid"][told.notna() & (told != index["split"])],
            f"patients are in another part of the published split in {METADATA}",
            "split_differs_in_metadata",
            warnings,
            counts,
        )
    return held


def _against_mama_mia(
    frame: pd.DataFrame,
    index: pd.DataFrame,
    meta: pd.DataFrame | None,
    warnings: list[str],
    counts: dict[str, Any],
) -> None:
    """Compare what both sets say of the women who are in MAMA-MIA too, and report the overlap."""
    if "in_mamamia" in index.columns:
        inside = to_number(index["in_mamamia"], column="in_mamamia", where=INDEX) == 1
        counts["also_in_mama_mia"] = int(inside.sum())
        frame["mamamia_id"] = index["mamamia_id"].where(inside)
        if inside.any():
            warnings.append(
                f"{int(inside.sum())} of {len(index)} patients are in MAMA-MIA too (mamamia_id): do not train on "
                "one set and test on the other"
            )
    twice = index["mamamia_id"].notna() & index["mamamia_id"].duplicated(keep=False)
    _say(
        index["pid"][twice],
        "patients share a mamamia_id with another: one woman twice?",
        "mamamia_id_twice",
        warnings,
        counts,
    )
    if "mm_pcr" in index.columns:
        ours, theirs = index["pcr_breastdcedl"], index["mm_pcr"]
        _say(
            index["pid"][ours.notna() & theirs.notna() & (ours != theirs)],
            "patients have another outcome in MAMA-MIA",
            "outcome_differs_in_mama_mia",
            warnings,
            counts,
        )
        _say(
            index["pid"][ours.notna() & theirs.isna()],
            "patients have an outcome here and none in MAMA-MIA",
            "outcome_here_alone",
            warnings,
            counts,
        )
    if meta is not None and "mm_age" in index.columns:
        _say(
            index["pid"][((meta["age"] - index["mm_age"]).abs() >= 1).fillna(False)],
            "patients are a year or more older or younger in MAMA-MIA",
            "age_differs_in_mama_mia",
            warnings,
            counts,
        )


def _sites(index: pd.DataFrame, dataset: pd.Series, warnings: list[str]) -> pd.Series:
    if "mm_site" not in index.columns:
        return dataset
    site = index["mm_site"].replace({"": np.nan})
    gone = site.isna()
    if gone.any():
        names = ", ".join(sorted(dataset[gone].unique()))
        warnings.append(f"{int(gone.sum())} patients of {names} have no site: the collection's name is used")
    return site.fillna(dataset)


def _pictures(
    frame: pd.DataFrame, index: pd.DataFrame, root: Path, warnings: list[str], counts: dict[str, Any]
) -> None:
    """Match pictures by folder and stem, whatever their ending."""
    endings = picture_endings()
    images = root / "images"
    files = {
        f"{path.parent.name}/{path.stem}".casefold(): path
        for path in (sorted(images.glob("*/*")) if images.is_dir() else [])
        if path.suffix.lower() in endings
    }
    wanted = [
        "/".join(Path(str(name).replace("\\", "/")).with_suffix("").parts[-2:]).casefold()
        for name in index["filename"]
    ]
    frame["image"] = pd.Series(
        [files[key].relative_to(root).as_posix() if key in files else None for key in wanted], dtype="str"
    )
    frame["phases_found"] = np.where(frame["image"].notna(), 3, 0)
    gone = frame["image"].isna()
    if gone.all() and len(frame):
        raise UserError(
            "none of the slices that the index names is there",
            where=str(images),
            fix="Keep images/<pid>/slice_<n> next to index.csv.",
        )
    _say(index["pid"][gone], "patients have no slice picture", "without_picture", warnings, counts)
    strangers = sorted(set(files) - set(wanted))
    if strangers:
        counts["pictures_of_no_patient"] = len(strangers)
        warnings.append(f"{len(strangers)} pictures are not in the index: {name_rows(strangers)}")


def _boxes(frame: pd.DataFrame, index: pd.DataFrame, warnings: list[str], counts: dict[str, Any]) -> None:
    size = index["img_size"]
    beyond = np.zeros(len(index), dtype=bool)
    for axis, start, length in (("x", "bbox_x", "bbox_w"), ("y", "bbox_y", "bbox_h")):
        first, last = index[start], index[start] + index[length]
        frame[f"box_{axis}0"] = first.clip(lower=0)
        frame[f"box_{axis}1"] = last.clip(upper=size)
        beyond |= ((first < 0) | (last > size)).to_numpy()
    empty = ((frame["box_x1"] <= frame["box_x0"]) | (frame["box_y1"] <= frame["box_y0"])).to_numpy()
    for name in ("box_x0", "box_y0", "box_x1", "box_y1"):
        frame.loc[empty, name] = np.nan
    _say(
        index["pid"][beyond], "lesion boxes reach beyond the slice and are cut", "boxes_cut", warnings, counts
    )
    _say(index["pid"][empty], "lesion boxes are empty and left out", "boxes_empty", warnings, counts)


def _unknown(frame: pd.DataFrame, counts: dict[str, Any]) -> list[str]:
    return note_unknown(
        frame,
        (
            ("pcr", "without_outcome", "outcome (pcr)", "kept"),
            ("menopausal_status", "without_menopausal_status", "menopausal status", "kept"),
            ("vendor", "without_vendor", "vendor and field strength", "kept"),
        ),
        counts,
    )


def _grades(frame: pd.DataFrame, meta: pd.DataFrame | None) -> dict[str, IdGrade]:
    """A where the publisher's table of patients has every id; otherwise nothing verifies them."""
    grades = {}
    for name, rows in frame.groupby("dataset", sort=True):
        known = 0 if meta is None else int(meta.loc[rows.index, "age"].notna().sum())
        if known == len(rows) and rows["patient_id"].nunique() == len(rows):
            grades[str(name)] = IdGrade(
                grade="A",
                why=f"{len(rows)} ids, one slice each, every one a patient of the publisher's table; their numbers "
                "are the collections' own",
            )
        else:
            grades[str(name)] = IdGrade(
                grade="B",
                why=f"each of the {len(rows)} slices has an id of its own, and {len(rows) - known} are not in "
                "the publisher's table of patients",
            )
    return grades


def _say(ids: pd.Series, what: str, key: str, warnings: list[str], counts: dict[str, Any]) -> None:
    counts[key] = len(ids)
    if len(ids):
        warnings.append(f"{len(ids)} {what}: {name_rows(ids.tolist())}")
