"""CAMELYON17: lymph-node slides of breast cancer patients from five centres, five nodes per patient.

licence: CC0.
citation: Bandi et al., IEEE Transactions on Medical Imaging 38, 550-560 (2019).
layout: one stages csv in which patients (`patient_000.zip`, stage pN0...) and their slides
  (`patient_000_node_0.tif`, stage negative, itc, micro or macro) are rows of one table; `center` where known.
  Slides, ASAP xml annotations and masks are found by name in and below the folder of the table, and are optional.
labels: `stage` of the slide: macro (> 2 mm), micro (> 0.2 mm), itc (smaller), negative; `patient_stage`
  is that of the patient: pN0, pN0(i+), pN1mi, pN1, pN2.
patients: 100 in the training part, 5 slides each, 20 of each of five centres.
centres: 0 CWZ, 1 RST, 2 UMCU, 3 RUMC, 4 LPON (`site`); CWZ and RST sent their slides to the scanner of RUMC
  (`scanned_at`). `scanner` and `microns_per_pixel` are those of table 2 of the lymph-node study, to two decimals.
annotations: 50 slides, ten of each centre, are outlined (`outlined` is 1); macro- and micrometastases exhaustively,
  isolated tumour cells not.
known defects: rows of patients end in .zip though they are no slide; the challenge's own table has no centre.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from elsewhere.cohort.readers import one_file, readers
from elsewhere.cohort.readers.lymph_node_centres import (
    BY_NUMBER,
    TRAINED_ON,
    add_centres,
    add_domain,
    parse_trained_on,
)
from elsewhere.cohort.readers.pictures import is_phantom
from elsewhere.cohort.slide_files import find_slide_files
from elsewhere.cohort.slide_stages import SLIDE_STAGES
from elsewhere.cohort.table import Cohort, KnownOfCohort
from elsewhere.errors import UserError, name_rows
from elsewhere.tables import read_table

PATIENT_STAGES = ("pN0", "pN0(i+)", "pN1mi", "pN1", "pN2")
NODES_A_PATIENT = 5
OUTLINED = frozenset(
    f"patient_{patient:03d}_node_{node}"
    for patient, nodes in {
        4: "4", 9: "1", 10: "4", 12: "0", 15: "12", 16: "1", 17: "124", 20: "24", 21: "3", 22: "4", 24: "12", 34: "3",
        36: "3", 38: "2", 39: "1", 40: "2", 41: "0", 42: "3", 44: "4", 45: "1", 46: "34", 48: "1", 51: "2", 52: "1",
        60: "3", 61: "4", 62: "2", 64: "0", 66: "2", 67: "4", 68: "1", 72: "0", 73: "1", 75: "4", 80: "1", 81: "4",
        86: "04", 87: "0", 88: "1", 89: "3", 92: "1", 96: "0", 99: "4",
    }.items()
    for node in nodes
)  # fmt: skip
"""The slides whose lesions the publisher outlined: the names of its xml files."""
_NODE = r"^(?P<patient>patient_\d+)_node_(?P<node>\d+)(?:\.(?:tiff?|svs|zip|xml))?$"
_PATIENT = r"^(?P<patient>patient_\d+)(?:\.zip)?$"


def expected_patient_stage(slide_stages: list[str]) -> str:
    """Derive the pN stage of a patient from the stages of its nodes, by the rules of the challenge.

    Args:
        slide_stages: The stage of each of the patient's nodes: negative, itc, micro or macro.

    Returns:
        One of PATIENT_STAGES.

    Example:
        >>> expected_patient_stage(["macro", "micro", "micro", "negative", "micro"])
        'pN2'
    """
    macro, micro, itc = (slide_stages.count(word) for word in ("macro", "micro", "itc"))
    if macro:
        return "pN2" if macro + micro >= 4 else "pN1"
    if micro:
        return "pN1mi"
    return "pN0(i+)" if itc else "pN0"


@readers.register("camelyon17")
def read_camelyon17(source: Path, *, trained_on: str | None = None) -> Cohort:
    """Read CAMELYON17: one case per slide, with the stage of its patient, its centre and its domain.

    The stage of a patient stands in each of its rows (LN-01, LN-17).

    Args:
        source: The stages table, or the folder with it. Slides and annotations are searched in and below this
            folder.
        trained_on: The centres whose slides trained the model, separated by commas; None: those of the training part
            of CAMELYON16, RUMC and UMCU. The column `domain` follows from it.

    Returns:
        The cohort.

    Raises:
        UserError: The stages table is not found, a row is neither a patient nor a node, a stage is unknown,
            or a patient has two rows.
    """
    root = source if source.is_dir() else source.parent
    path = (
        one_file(source, "*stage*.csv", "*stage*.csv.gz", "*stage*.xlsx", what="stages table")
        if source.is_dir()
        else source
    )
    where = str(path)
    frame = read_table(path, required=["patient", "stage"], strings=["patient", "stage", "center"])
    name = frame["patient"].astype("str").str.strip()
    node = name.str.extract(_NODE)
    person = name.str.extract(_PATIENT)
    strange = (node["patient"].isna() & person["patient"].isna()).to_numpy(dtype=bool)
    if strange.any():
        rows = [f"{at + 1} ({name.iloc[at]})" for at in np.flatnonzero(strange)]
        raise UserError(
            f"rows that are neither a patient nor a node: {name_rows(rows)}",
            where=where,
            fix="patient_000.zip or patient_000_node_0.tif.",
        )
    stage = frame["stage"].astype("str").str.strip()
    slides = _slides(frame, node, stage, where=where)
    patients = _patients(person, stage, where=where)
    warnings: list[str] = []
    slides["patient_stage"] = slides["patient_id"].map(patients).astype("str")
    warnings += _check(slides, patients)
    remarks: list[str] = []
    rule = ""
    if "center" not in frame.columns:
        warnings.append("the table has no column center: all slides count as one site, and have no domain")
    elif slides["site"].notna().any():
        rule = add_domain(slides, parse_trained_on(trained_on) or TRAINED_ON, where=where)
        remarks.append(
            "scanner and microns per pixel are those of table 2 of the lymph-node study, to two decimals; --slides "
            "reads those of the slides"
        )
    slides["outlined"] = slides["case_id"].isin(OUTLINED).astype("int64")
    warnings += _files(slides, root)
    return Cohort.from_frame(
        slides,
        reader="camelyon17",
        root=root,
        warnings=tuple(warnings),
        where=where,
        synthetic=is_phantom(root),
        known=KnownOfCohort(
            counts={
                "rows_in_table": len(frame),
                "patient_rows": len(patients),
                **({"remarks": remarks} if remarks else {}),
                **({"domain_rule": rule} if rule else {}),
            }
        ),
    )


def _slides(frame: pd.DataFrame, node: pd.DataFrame, stage: pd.Series, *, where: str) -> pd.DataFrame:
    is_node = node["patient"].notna()
    if not is_node.any():
        raise UserError("the table has no slide rows (patient_000_node_0.tif)", where=where)
    part = stage[is_node].str.casefold()
    unknown = ~part.isin(SLIDE_STAGES).to_numpy(dtype=bool)
    if unknown.any():
        rows = [f"{int(part.index.to_numpy()[at]) + 1} ({part.iloc[at]})" for at in np.flatnonzero(unknown)]
        raise UserError(
            f"unknown slide stage in rows {name_rows(rows)}",
            where=where,
            fix=f"One of {', '.join(SLIDE_STAGES)}.",
        )
    slides = pd.DataFrame(
        {
            "case_id": node.loc[is_node, "patient"] + "_node_" + node.loc[is_node, "node"],
            "patient_id": node.loc[is_node, "patient"],
            "dataset": pd.Series("CAMELYON17", index=part.index, dtype="str"),
            "modality": pd.Series("histology", index=part.index, dtype="str"),
            "node": node.loc[is_node, "node"].astype("int64"),
            "stage": part,
        }
    )
    slides = slides.reset_index(drop=True)
    if "center" in frame.columns:
        add_centres(slides, [_centre(cell) for cell in frame.loc[is_node, "center"]])
    return slides


def _centre(cell: object) -> str | None:
    """The code of a centre; a number that is none of the five stays a name of its own."""
    word = "" if pd.isna(cell) else str(cell).strip().removesuffix(".0")  # type: ignore[call-overload]
    if not word:
        return None
    return BY_NUMBER[word].code if word in BY_NUMBER else f"center_{word}"


def _patients(person: pd.DataFrame, stage: pd.Series, *, where: str) -> dict[str, str]:
    rows = person["patient"].notna()
    ids = person.loc[rows, "patient"]
    if ids.duplicated().any():
        raise UserError(f"patient '{ids[ids.duplicated()].iloc[0]}' has two rows", where=where)
    folded = {name.casefold(): name for name in PATIENT_STAGES}
    found = {}
    for patient, word in zip(ids, stage[rows], strict=True):
        key = str(word).casefold()
        if key not in folded:
            raise UserError(
                f"unknown stage '{word}' of {patient}",
                where=where,
                fix=f"One of {', '.join(PATIENT_STAGES)}.",
            )
        found[str(patient)] = folded[key]
    return found


def _check(slides: pd.DataFrame, patients: dict[str, str]) -> list[str]:
    notes: list[str] = []
    nodes = slides.groupby("patient_id")["stage"].agg(list)
    odd = [str(p) for p, stages in nodes.items() if len(stages) != NODES_A_PATIENT]
    if odd:
        notes.append(f"{len(odd)} patients do not have {NODES_A_PATIENT} slides: {name_rows(odd)}")
    without = [str(p) for p in nodes.index if p not in patients]
    if without:
        notes.append(f"{len(without)} patients have slides but no row of their own: {name_rows(without)}")
    lonely = [p for p in patients if p not in nodes.index]
    if lonely:
        notes.append(
            f"{len(lonely)} patients have a row but no slides, and are left out: {name_rows(lonely)}"
        )
    wrong = [
        str(p)
        for p, stages in nodes.items()
        if p in patients and expected_patient_stage(stages) != patients[str(p)]
    ]
    if wrong:
        notes.append(f"{len(wrong)} patients have a stage that their slides do not give: {name_rows(wrong)}")
    return notes


def _files(slides: pd.DataFrame, root: Path) -> list[str]:
    """Add the files that are here; say which belong to no row, and which slides have more than one."""
    files = find_slide_files(root)
    notes = []
    listed = slides["case_id"].str.casefold().tolist()
    for column, found in (("slide", files.slides), ("annotation", files.outlines), ("mask", files.masks)):
        named = {name: paths for name, paths in found.items() if name.startswith("patient_")}
        names = [named[case][0] if case in named else None for case in listed]
        if any(names):
            slides[column] = pd.Series(
                [path.relative_to(root).as_posix() if path else None for path in names], dtype="str"
            )
        several = [case for case in listed if len(named.get(case, [])) > 1]
        if several:
            notes.append(
                f"{len(several)} slides have more than one {column} file, and the first by name is used: "
                f"{name_rows(several)}"
            )
        stray = sorted(set(named) - set(listed))
        if stray:
            notes.append(f"{len(stray)} {column} files belong to no row of the table: {name_rows(stray)}")
    if "slide" in slides.columns and slides["slide"].isna().any():
        notes.append(f"{int(slides['slide'].isna().sum())} of {len(slides)} slides have no file here")
    return notes
