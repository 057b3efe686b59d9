"""CAMELYON16: 399 slides of sentinel lymph nodes from two hospitals: 270 to train (159 normal, 111 tumour), 129 to test.

licence: CC0.
citation: Ehteshami Bejnordi et al., JAMA 318, 2199-2210 (2017); Litjens et al., GigaScience 7, giy065 (2018).
layout: any of the published tables, slides and annotations, in and below one folder, found by name. `reference.csv` of
  the challenge (no header: slide, Normal or Tumor, histology, None, Micro or Macro) is the truth of the test slides.
  `metadata.csv` (hospital of each slide, with a corrected column) and `labels.csv` come from those who used the set.
  Slides are `normal_001.tif`, `tumor_001.tif`, `test_001.tif`; annotations have the slide's name: XML of the challenge,
  or the NCRF json of outlines (unpacked; `Tumor_001.json`). Slides and annotations are optional.
labels: `label` 1 tumour, 0 normal; `stage` negative, micro or macro of the test slides and of normal ones. The stage of
  the 111 tumour slides for training is not published. `annotation_exhaustive` is 0 where the publisher says that
  tumour may lie outside of the outlines.
patients: no patient ids are published, so grade C: each slide counts as a patient of its own.
hospitals: RUMC (0 in metadata.csv) and UMCU (1).
known defects: labels.csv and metadata.csv call test_114 normal, reference.csv calls it a macrometastasis of lobular
  carcinoma, and its outlines are not exhaustive; metadata.csv moves tumor_096 to UMCU in a corrected column; normal_086
  was tumour and became tumor_111; test_049 was a copy of another slide and was removed, so that 130 is the last of 129
  test slides; the outlines have no file of normal_144; 20 training slides are not outlined exhaustively, most because
  they hold two sections of one tissue; letter case differs (Tumor_101).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort.readers import readers
from elsewhere.cohort.readers.lymph_node_centres import TRAINED_ON, add_centres, add_domain, parse_trained_on
from elsewhere.cohort.readers.pictures import is_phantom
from elsewhere.cohort.slide_files import SlideFiles, files_below, find_slide_files
from elsewhere.cohort.table import Cohort, KnownOfCohort
from elsewhere.errors import UserError, name_rows
from elsewhere.tables import read_table
from elsewhere.tables.bytes_in import decode, read_bytes
from elsewhere.tables.options import DEFAULT

DATASET = "CAMELYON16"
PARTS = {"normal": 159, "tumor": 111, "test": 129}
HOSPITALS = {"0": "RUMC", "1": "UMCU"}
NOT_EXHAUSTIVE = (
    *(
        f"tumor_{n:03d}"
        for n in (10, 15, 18, 20, 25, 29, 33, 34, 44, 46, 51, 54, 55, 56, 67, 79, 85, 92, 95, 110)
    ),
    "test_114",
)
"""Slides with tumour outside of the outlines, by the README of the published set."""
REMOVED = {
    "normal_086": "it was tumour, and became tumor_111",
    "test_049": "it is a copy of another test slide",
}
"""Slides that the publisher took out, and why."""
_NAME = re.compile(r"^(normal|tumou?r|test)_(\d{1,3})$")
_ENDINGS = re.compile(r"(\.(tiff?|svs|npy|xml|json|geojson|png))+$", re.IGNORECASE)
_TABLES = ("reference.csv", "metadata.csv", "labels.csv")
_CLASSES = {"normal": 0, "tumor": 1, "tumour": 1}
_STAGES = {
    "none": "negative",
    "": "",
    "micro": "micro",
    "macro": "macro",
    "itc": "itc",
    "negative": "negative",
}


@dataclass(kw_only=True)
class _Said:
    """What the tables say of one slide; None and empty where one says nothing."""

    labels: dict[str, int] = field(default_factory=dict)
    stage: str = ""
    histology: str | None = None
    hospital: str = ""
    corrected: str = ""


@readers.register("camelyon16")
def read_camelyon16(source: Path, *, trained_on: str | None = None) -> Cohort:
    """Read CAMELYON16: one case per slide, from all tables and files that are there, with their contradictions.

    A slide is a case where a table or a file names it (LN-01). What the tables disagree on is decided by the table of
    the challenge, and named.

    Args:
        source: The folder, or one of its tables; everything in and below it is searched.
        trained_on: The centres whose slides trained the model, separated by commas; None: those of the training part.
            The column `domain` follows from it.

    Returns:
        The cohort.

    Raises:
        UserError: Nothing of CAMELYON16 is here, a table is damaged or is there twice, or names something that is no slide
            of it.
    """
    root = source if source.is_dir() else source.parent
    tables = _find_tables(root)
    said: dict[str, _Said] = {}
    for name, reader in (("reference.csv", _reference), ("metadata.csv", _metadata), ("labels.csv", _labels)):
        if name in tables:
            reader(tables[name], said)
    files = find_slide_files(root)
    slides, outlines = _by_slide(files.slides), _by_slide(files.outlines)
    warnings: list[str] = []
    remarks: list[str] = []
    names = _slides_of_the_set({*said, *slides}, {*slides}, warnings)
    if not names:
        raise UserError(
            "nothing of CAMELYON16 is here: neither a table of it nor a slide",
            where=str(root),
            fix=f"Give the folder that holds {', '.join(_TABLES)} or slides such as tumor_001.tif.",
        )
    where = str(root)
    cases = _cases(names, said, warnings, remarks)
    _add_hospitals(cases, said, warnings, remarks)
    rule = ""
    if cases["site"].notna().any():
        rule = add_domain(cases, parse_trained_on(trained_on) or TRAINED_ON, where=where)
    _add_files(
        cases, root, {"slide": slides, "annotation": outlines, "mask": _by_slide(files.masks)}, warnings
    )
    counts = _count_parts(cases, warnings)
    remarks = [_parts_sentence(cases, counts), *remarks, *_known_defects(cases, outlines)]
    warnings += _packed_outlines(root, outlines) + _broken_links(files)
    return Cohort.from_frame(
        cases,
        reader="camelyon16",
        root=root,
        warnings=tuple(warnings),
        where=where,
        synthetic=is_phantom(root),
        known=KnownOfCohort(
            counts={
                "parts": counts,
                "tables": sorted(tables),
                "remarks": remarks,
                **({"domain_rule": rule} if rule else {}),
                "named_ids": sorted(set(REMOVED) | set(NOT_EXHAUSTIVE)),
            }
        ),
    )


def slide_name(text: str) -> str:
    """Spell the name of a slide as the set does: lower case, three digits, without the endings of files.

    Args:
        text: A name of a slide or of a file made from it.

    Returns:
        The name, such as tumor_101; '' where it is no name of the set.

    Example:
        >>> slide_name("Tumor_101.json"), slide_name("normal_1.tif.npy"), slide_name("patient_000")
        ('tumor_101', 'normal_001', '')
    """
    found = _NAME.match(_ENDINGS.sub("", text.strip()).casefold())
    return f"{found[1].replace('tumour', 'tumor')}_{int(found[2]):03d}" if found else ""


def _find_tables(root: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    tables = [path for path in files_below(root) if path.suffix.lower() == ".csv" and path.is_file()]
    for name in _TABLES:
        places = sorted(path for path in tables if path.name.casefold() == name)
        if name == "labels.csv":
            places = [path for path in places if _has_column(path, "filenames")]
        if len(places) > 1:
            listed = ", ".join(str(path.relative_to(root)) for path in places[:4])
            raise UserError(
                f"{len(places)} files are called {name}: {listed}",
                where=str(root),
                fix="Give the folder that holds one of each.",
            )
        if places:
            found[name] = places[0]
    return found


def _has_column(path: Path, name: str) -> bool:
    """Labels.csv is the name of many tables; only that of this set counts."""
    with path.open("rb") as stream:
        return name.encode() in stream.readline(4096)


def _reference(path: Path, said: dict[str, _Said]) -> None:
    """The truth of the test slides: slide, class, histology and stage, without a header."""
    text = decode(read_bytes(path, DEFAULT), path, DEFAULT).decode("utf-8-sig")
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if any(row)]
    except csv.Error as error:
        raise UserError(f"this is no csv table ({error})", where=str(path), fix="Fetch it again.") from error
    seen: set[str] = set()
    for number, row in enumerate(rows, start=1):
        name = slide_name(row[0])
        if not name and number == 1:
            continue  # a copy that somebody gave a header
        where = f"{path}, row {number}"
        if not name or len(row) < 2:
            raise UserError(
                f"'{row[0]}' is no slide of CAMELYON16", where=where, fix="test_001,Tumor,IDC,Macro"
            )
        if name in seen:
            raise UserError(f"{name} has two rows", where=where, fix="Keep one row per slide.")
        seen.add(name)
        if row[1].casefold() not in _CLASSES:
            raise UserError(f"the class of {name} is '{row[1]}'", where=where, fix="Normal or Tumor.")
        stage = _STAGES.get(row[3].casefold() if len(row) > 3 else "")
        if stage is None:
            raise UserError(f"the stage of {name} is '{row[3]}'", where=where, fix="None, Micro or Macro.")
        entry = said.setdefault(name, _Said())
        entry.labels["reference.csv"] = _CLASSES[row[1].casefold()]
        entry.stage, entry.histology = stage, (row[2] if len(row) > 2 else "") or None


def _metadata(path: Path, said: dict[str, _Said]) -> None:
    frame = read_table(path, required=["slide_name", "label", "hospital"])
    for at, name in enumerate(_names(frame["slide_name"], path)):
        row = frame.iloc[at]
        entry = said.setdefault(name, _Said())
        entry.labels["metadata.csv"] = _flag(row["label"], "label", path, at)
        entry.hospital = _hospital(row["hospital"])
        entry.corrected = (
            _hospital(row["hospital_corrected"]) if "hospital_corrected" in frame.columns else ""
        )


def _labels(path: Path, said: dict[str, _Said]) -> None:
    frame = read_table(path, required=["filenames", "tumor"])
    for at, name in enumerate(_names(frame["filenames"], path)):
        said.setdefault(name, _Said()).labels["labels.csv"] = _flag(
            frame["tumor"].iloc[at], "tumor", path, at
        )


def _names(column: pd.Series, path: Path) -> list[str]:
    names = [slide_name("" if pd.isna(cell) else str(cell)) for cell in column]
    strange = [f"{at + 1} ({column.iloc[at]})" for at, name in enumerate(names) if not name]
    if strange:
        raise UserError(
            f"rows that name no slide of CAMELYON16: {name_rows(strange)}",
            where=str(path),
            fix="normal_001.tif, tumor_001.tif, test_001.tif.",
        )
    twice = pd.Series(names).duplicated()
    if twice.any():
        raise UserError(f"{pd.Series(names)[twice].iloc[0]} has two rows", where=str(path))
    return names


def _flag(cell: Any, column: str, path: Path, at: int) -> int:
    word = str(cell).strip().casefold()
    if word in ("0", "0.0", "false"):
        return 0
    if word in ("1", "1.0", "true"):
        return 1
    raise UserError(f"'{column}' is '{cell}'", where=f"{path}, row {at + 1}", fix="0, 1, True or False.")


def _hospital(cell: Any) -> str:
    """0 and 1 are also written 0.0 and 1.0, as a column with gaps is saved."""
    if pd.isna(cell):
        return ""
    word = str(cell).strip().removesuffix(".0")
    return HOSPITALS.get(word, word)


def _by_slide(files: Mapping[str, list[Path]]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for stem, paths in files.items():
        if name := slide_name(stem):
            found.setdefault(name, []).extend(paths)
    return found


def _slides_of_the_set(names: Iterable[str], on_disk: Iterable[str], warnings: list[str]) -> list[str]:
    """The names in the order of the set; slides that the publisher took out are left out and named."""
    wanted = set(names)
    for name, why in REMOVED.items():
        if name in wanted:
            wanted.discard(name)
            kind = "the slide" if name in set(on_disk) else "a row of"
            warnings.append(f"{kind} {name} is left out: the publisher took it out of the set, as {why}")
    order = {part: at for at, part in enumerate(PARTS)}
    return sorted(wanted, key=lambda name: (order[name.split("_")[0]], name))


def _cases(
    names: list[str], said: Mapping[str, _Said], warnings: list[str], remarks: list[str]
) -> pd.DataFrame:
    rows = []
    against = []
    for name in names:
        part, entry = name.split("_")[0], said.get(name, _Said())
        by_name = {"normal": 0, "tumor": 1}.get(part)
        label = entry.labels.get("reference.csv", by_name)
        if label is None and entry.labels:
            label = next(iter(entry.labels.values()))
        wrong = {
            table: other for table, other in entry.labels.items() if label is not None and other != label
        }
        if wrong:
            against.append(_contradiction(name, label, entry, wrong))
        stage = entry.stage or ("negative" if label == 0 else "")
        rows.append(
            {
                "case_id": name,
                "dataset": DATASET,
                "modality": "histology",
                "split": "test" if part == "test" else "train",
                "label": np.nan if label is None else float(label),
                "stage": stage or None,
                "histology": entry.histology,
                "annotation_exhaustive": int(name not in NOT_EXHAUSTIVE),
            }
        )
        if (stage == "negative") != (label == 0) and stage:
            warnings.append(f"{name} is {'normal' if label == 0 else 'tumour'} and its stage is {stage}")
    warnings += against
    cases = pd.DataFrame(rows)
    unknown = cases["label"].isna()
    if not unknown.any():
        cases["label"] = cases["label"].astype("int64")
    if unknown.any():
        warnings.append(
            f"{int(unknown.sum())} test slides have neither a class nor a stage: reference.csv is not here or does not "
            f"list them ({name_rows(cases.loc[unknown, 'case_id'].tolist())})"
        )
    no_stage = (cases["label"] == 1) & cases["stage"].isna()
    if no_stage.any():
        remarks.append(
            f"the stage of {int(no_stage.sum())} tumour slides is not published; --slides measures the longest axis of "
            "their outlines"
        )
    return cases


def _contradiction(name: str, label: int | None, entry: _Said, wrong: Mapping[str, int]) -> str:
    word = {0: "normal", 1: "tumour"}
    source = "reference.csv" if "reference.csv" in entry.labels else "its name"
    stage = f" ({entry.stage}, {entry.histology})" if source == "reference.csv" and entry.histology else ""
    others = " and ".join(wrong)
    told = (
        f"{name}: {others} say{'s' if len(wrong) == 1 else ''} {word[next(iter(wrong.values()))]}, {source} says "
        f"{word[label or 0]}{stage}: {source} is used"
    )
    if name == "test_114":
        told += "; the publisher adds that its outlines are not exhaustive"
    return told


def _add_hospitals(
    cases: pd.DataFrame, said: Mapping[str, _Said], warnings: list[str], remarks: list[str]
) -> None:
    entries = [said.get(name, _Said()) for name in cases["case_id"]]
    codes = [entry.corrected or entry.hospital or None for entry in entries]
    add_centres(cases, codes)
    moved = [
        f"{name} from {entry.hospital} to {entry.corrected}"
        for name, entry in zip(cases["case_id"], entries, strict=True)
        if entry.hospital and entry.corrected and entry.hospital != entry.corrected
    ]
    if moved:
        remarks.append(f"metadata.csv corrects the hospital of {name_rows(moved)}: the corrected one is used")
    strange = sorted({code for code in codes if code and code not in HOSPITALS.values()})
    if strange:
        warnings.append(f"hospitals that are neither 0 (RUMC) nor 1 (UMCU): {name_rows(strange)}")
    lacking = sum(code is None for code in codes)
    if lacking:
        warnings.append(
            f"{lacking} slides have no hospital: metadata.csv is not here or does not list them. They have no domain"
        )
    if lacking < len(cases):
        remarks.append(
            "scanner and microns per pixel are those of table 2 of the lymph-node study, to two decimals; --slides "
            "reads those of the slides"
        )


def _add_files(
    cases: pd.DataFrame, root: Path, columns: Mapping[str, Mapping[str, list[Path]]], warnings: list[str]
) -> None:
    for column, files in columns.items():
        listed = set(cases["case_id"])
        several = sorted(name for name, paths in files.items() if len(paths) > 1 and name in listed)
        if several:
            warnings.append(
                f"{len(several)} slides have more than one {column} file, and the first by name is used: "
                f"{name_rows(several)}"
            )
        stray = sorted(name for name in files if name not in listed and name not in REMOVED)
        if stray:
            warnings.append(f"{len(stray)} {column} files belong to no slide here: {name_rows(stray)}")
        names = [files[name][0] if name in files else None for name in cases["case_id"]]
        if any(names):
            cases[column] = pd.Series(
                [path.relative_to(root).as_posix() if path else None for path in names], dtype="str"
            )
    if "slide" in cases.columns and cases["slide"].isna().any():
        warnings.append(f"{int(cases['slide'].isna().sum())} of {len(cases)} slides have no file here")


def _count_parts(cases: pd.DataFrame, warnings: list[str]) -> dict[str, int]:
    parts = cases["case_id"].str.split("_").str[0].value_counts()
    counts = {part: int(parts.get(part, 0)) for part in PARTS}
    if counts != PARTS:
        shown = ", ".join(f"{counts[part]} of {PARTS[part]} {part}" for part in PARTS)
        warnings.append(f"the set is not complete here: {shown}")
    return counts


def _parts_sentence(cases: pd.DataFrame, counts: Mapping[str, int]) -> str:
    test = cases.loc[cases["split"] == "test", "label"]
    return (
        f"{len(cases)} slides: {counts['normal']} normal and {counts['tumor']} tumour to train, {counts['test']} to test "
        f"({int((test == 0).sum())} normal, {int((test == 1).sum())} tumour)"
    )


def _known_defects(cases: pd.DataFrame, outlines: Mapping[str, list[Path]]) -> list[str]:
    """What looks like a gap in the set and is none, where it can be seen here."""
    names = set(cases["case_id"])
    notes = []
    if "tumor_111" in names and "normal_087" in names and "normal_086" not in names:
        notes.append("there is no normal_086: it was tumour, and the publisher renamed it to tumor_111")
    if "test_050" in names and "test_049" not in names:
        notes.append("there is no test_049: it was a copy of another slide, and the publisher took it out")
    partly = [name for name in NOT_EXHAUSTIVE if name in names]
    if partly:
        notes.append(
            f"{len(partly)} slides have tumour outside of their outlines, as the publisher states (column "
            f"annotation_exhaustive): {name_rows(partly)}"
        )
    normal = [name for name in names if name.startswith("normal")]
    outlined = [name for name in normal if name in outlines]
    if outlined and len(outlined) < len(normal):
        lacking = sorted(set(normal) - set(outlined))
        notes.append(
            f"{len(outlined)} of {len(normal)} normal slides have a file of outlines, which is empty; "
            f"{name_rows(lacking)} has none"
        )
    return notes


def _packed_outlines(root: Path, outlines: Mapping[str, list[Path]]) -> list[str]:
    if outlines:
        return []
    packed = [
        path.name
        for path in files_below(root)
        if re.search(r"json.*\.(tar|tgz|zip)", path.name, re.IGNORECASE)
    ]
    if not packed:
        return []
    return [
        f"{name_rows(packed)} holds outlines and is packed: unpack it (tar -xf) next to the tables to join them"
    ]


def _broken_links(files: SlideFiles) -> list[str]:
    names = [path.name for path in files.links_without_file]
    return [f"{len(names)} links lead to no file: {name_rows(names)}"] if names else []
