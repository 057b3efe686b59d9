"""A hospital's own whole slides: a table with one row per slide, a folder of slides, and annotations where there are any.

licence: the user's. citation: none.
layout: a csv, xlsx or parquet table and a folder with slides in the formats that OpenSlide knows, at any depth; linked
  files and folders count. A row names its slide in the column `slide` (a path or a file name) or by `case_id`, the
  file's name without its ending; letter case does not count. `--map case_id=COL,patient_id=COL,stage=COL` gives columns
  their names. Without a table each slide is a case. Annotations (XML of ASAP, GeoJSON of QuPath, json of NCRF) and masks
  (`_mask.tif`, or any picture in the folder of annotations) have the slide's name.
labels: `stage` in the words of a report, English or German; a row may have none.
patients: `patient_id`; without it each slide counts as a patient of its own (grade C).
scale: `mpp`, the microns per pixel of level 0, overrides those of the file where a row has it.
known defects: slides without a row and rows without a slide are counted and named, as are two files of one name.
Only the pixels of the slide itself are read: label and overview pictures, users, dates and file names inside of the
files are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath

import numpy as np
import pandas as pd

from elsewhere.cohort.readers import one_file, readers
from elsewhere.cohort.readers.csv_table import apply_map, parse_pairs
from elsewhere.cohort.readers.lymph_node_centres import add_domain, parse_trained_on
from elsewhere.cohort.readers.pictures import is_phantom
from elsewhere.cohort.slide_files import SLIDE_ENDINGS, SlideFiles, find_slide_files, fold_name
from elsewhere.cohort.slide_stages import SLIDE_STAGES, slide_stage
from elsewhere.cohort.table import Cohort, KnownOfCohort
from elsewhere.errors import UserError, name_rows
from elsewhere.inputs.slides.scale import check_mpp
from elsewhere.tables import TableOptions, read_table, to_number
from elsewhere.tables.options import DEFAULT

_TABLES = ("*.csv", "*.tsv", "*.csv.gz", "*.xlsx", "*.xlsm", "*.parquet")
_IDS = ("patient_id", "exam_id", "case_id", "slide", "annotation")


@dataclass(kw_only=True)
class _Notes:
    """What is worth knowing of the reading, and the names in it that stand in no column."""

    warnings: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    def count(self, key: str, names: list[str], sentence: str) -> None:
        self.counts[key] = len(names)
        if names:
            self.warnings.append(f"{len(names)} {sentence}: {name_rows(names)}")
            self.files += names


@readers.register("slides")
def read_slides(
    source: Path,
    *,
    column_map: Mapping[str, str] | str | None = None,
    values: Mapping[str, str] | str | None = None,
    folder: str | Path | None = None,
    annotations: str | Path | None = None,
    trained_on: str | None = None,
    stage_words: Mapping[str, str] | None = None,
    table: TableOptions = DEFAULT,
) -> Cohort:
    r"""Read a hospital's own slides: a table, a folder of slides, and annotations (LN-01).

    Nothing inside of a slide is read: `--slides` does that.

    Args:
        source: The table, or a folder with slides and one table or none.
        column_map: The cohort's name of a column to the table's, as a mapping or as `a=X,b=Y`.
        values: Columns that have one value in every row, in the same form.
        folder: The folder of slides; None: that of the source.
        annotations: A folder of annotations; None: they are searched in the folder of slides.
        trained_on: The centres whose slides trained the model, separated by commas: the column `domain` follows from
            it and from `scanned_at` or `site`. None: there is no such column, or the table's own.
        stage_words: Further words for stages, such as {"pos": "macro"}.
        table: How a text table is written.

    Returns:
        The cohort.

    Raises:
        UserError: There is no slide and no table, a column of the map does not exist, a stage or a number of microns is
            none, or an id is missing or repeated.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> written = (folder / "slides.csv").write_text("case_id,patient_id,stage\nA1,p,Makrometastase\n")
        >>> read_slides(folder).cases["stage"].tolist()
        ['macro']
    """
    where = source
    path: Path | None = source
    if source.is_dir():
        path = _table_in(source)
    root = Path(folder) if folder is not None else source if source.is_dir() else source.parent
    other = Path(annotations) if annotations is not None else None
    for one, what in ((root, "folder of slides"), (other, "folder of annotations")):
        if one is not None and not one.is_dir():
            raise UserError(f"there is no such {what}", where=str(one), fix="Name a folder.")
    files = find_slide_files(root, annotations=other)
    notes = _Notes()
    if path is None:
        frame = _rows_of_files(files, root)
        notes.warnings.append("there is no table: each slide is a case, without patient and stage")
    else:
        where = path
        frame = _rows_of_table(path, column_map, table)
    for name, value in parse_pairs(values).items():
        if name in frame.columns and frame[name].notna().any():
            raise UserError(f"--set {name}={value} would overwrite the table's own column", where=str(where))
        frame[name] = pd.Series(value, index=frame.index, dtype="str")
    _join_slides(frame, files, root, notes, has_table=path is not None)
    _join_annotations(frame, files, root, notes)
    _check_scale(frame, where=str(where))
    _check_stages(frame, stage_words or {}, notes, where=str(where))
    if "modality" not in frame.columns:
        frame["modality"] = pd.Series("histology", index=frame.index, dtype="str")
    rule = ""
    if trained_on is not None:
        rule = add_domain(frame, parse_trained_on(trained_on), where=str(where))
    notes.count("broken_links", [one.name for one in files.links_without_file], "links lead to no file")
    return Cohort.from_frame(
        frame,
        reader="slides",
        root=root,
        warnings=tuple(notes.warnings),
        where=str(where),
        synthetic=is_phantom(root),
        known=KnownOfCohort(
            counts=notes.counts
            | ({"named_files": notes.files} if notes.files else {})
            | ({"domain_rule": rule} if rule else {})
        ),
    )


def _table_in(folder: Path) -> Path | None:
    there = [path for pattern in _TABLES for path in folder.glob(pattern) if path.is_file()]
    if not [path for path in there if not path.name.startswith((".", "~$"))]:
        return None
    return one_file(folder, *_TABLES, what="table of slides")


def _rows_of_files(files: SlideFiles, root: Path) -> pd.DataFrame:
    paths = sorted(path for paths in files.slides.values() for path in paths)
    if not paths:
        raise UserError(
            "there is neither a table nor a slide here",
            where=str(root),
            fix=f"Give a table, or a folder with slides ({', '.join(SLIDE_ENDINGS)}).",
        )
    stems = pd.Series([_stem(path) for path in paths])
    twice = stems.map(fold_name).duplicated(keep=False)
    ids = [
        str(path.relative_to(root).as_posix()) if again else stem
        for path, stem, again in zip(paths, stems, twice, strict=True)
    ]
    return pd.DataFrame(
        {"case_id": ids, "slide": [path.relative_to(root).as_posix() for path in paths]}, dtype="str"
    )


def _stem(path: Path) -> str:
    return path.parent.name if path.suffix.lower() == ".dcm" else path.stem


def _rows_of_table(
    path: Path, column_map: Mapping[str, str] | str | None, options: TableOptions
) -> pd.DataFrame:
    wanted = parse_pairs(column_map)
    strings = (*_IDS, *(column for name, column in wanted.items() if name in _IDS))
    frame = apply_map(read_table(path, strings=strings, options=options), wanted, where=str(path))
    if "case_id" not in frame.columns:
        if "slide" not in frame.columns:
            raise UserError(
                "no column 'case_id' and no column 'slide'",
                where=str(path),
                fix="Name the column with the slides: --map case_id=COL. The columns are: "
                f"{', '.join(map(str, frame.columns[:20]))}.",
            )
        names = frame["slide"].map(_name_of, na_action="ignore")
        again = names.notna() & names.map(fold_name, na_action="ignore").duplicated(keep=False)
        frame.insert(0, "case_id", names.mask(again, frame["slide"].map(_posix, na_action="ignore")))
    return frame.reset_index(drop=True)


def _posix(cell: object) -> str:
    text = str(cell).strip()
    return PureWindowsPath(text).as_posix() if "\\" in text else text


def _name_of(cell: object) -> str:
    """The name of a slide in a cell: the file's name without the ending of a slide; dots inside of it stay."""
    name = PureWindowsPath(str(cell).strip()).name
    ending = next((one for one in SLIDE_ENDINGS if name.lower().endswith(one)), "")
    return name[: len(name) - len(ending)] if ending else name


def _join_slides(
    frame: pd.DataFrame, files: SlideFiles, root: Path, notes: _Notes, *, has_table: bool
) -> None:
    """Find the file of each row; count rows without a slide, slides without a row, and names of several files."""
    column = "slide" if "slide" in frame.columns else "case_id"
    matched: list[str | None] = []
    used: set[Path] = set()
    lacking: list[str] = []
    ambiguous: list[str] = []
    for cell, case in zip(frame[column], frame["case_id"], strict=True):
        path, several = _find(cell, files.slides, root)
        if path is None and column == "slide" and not several:
            path, several = _find(case, files.slides, root)
        if path is None:
            (ambiguous if several else lacking).append(str(case))
            used |= set(several)
        else:
            used.add(path)
        matched.append(_written(path, root) if path is not None else None)
    frame["slide"] = pd.Series(matched, index=frame.index, dtype="str")
    notes.counts["slides_found"] = sum(name is not None for name in matched)
    notes.count("rows_without_slide", lacking, "rows have no slide here")
    notes.count(
        "rows_with_several_slides",
        ambiguous,
        "rows fit several files of one name, and have no slide until the column 'slide' names one",
    )
    stray = [path for paths in files.slides.values() for path in paths if path not in used]
    if has_table:
        notes.count(
            "slides_without_row", [path.name for path in sorted(stray)], "slides have no row in the table"
        )


def _find(cell: object, slides: Mapping[str, list[Path]], root: Path) -> tuple[Path | None, list[Path]]:
    """The file that a cell names; of several of one name none, and which they are."""
    if not isinstance(cell, str) or not cell.strip():
        return None, []
    text, posix = cell.strip(), _posix(cell)
    for paths in (slides.get(fold_name(_name_of(text)), []), slides.get(fold_name(text), [])):
        exact = [path for path in paths if path in (root / posix, Path(posix))]
        if exact or len(paths) == 1:
            return (exact or paths)[0], []
        named = [path for path in paths if path.name == PureWindowsPath(text).name]
        if len(named) == 1:
            return named[0], []
        if paths:
            return None, paths
    named_path = Path(posix) if Path(posix).is_absolute() else root / posix
    if named_path.suffix.lower() in SLIDE_ENDINGS and named_path.is_file():
        return named_path, []
    return None, []


def _written(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.absolute().as_posix()


def _join_annotations(frame: pd.DataFrame, files: SlideFiles, root: Path, notes: _Notes) -> None:
    for column, found in (("annotation", files.outlines), ("mask", files.masks)):
        if column in frame.columns:
            continue
        names: list[str | None] = []
        several: list[str] = []
        for slide, case in zip(frame["slide"], frame["case_id"], strict=True):
            keys = [fold_name(_name_of(slide))] if isinstance(slide, str) else []
            keys += [fold_name(str(case))]
            paths = next((found[key] for key in keys if key in found), [])
            if len(paths) > 1:
                several.append(str(case))
            names.append(_written(paths[0], root) if paths else None)
        if any(names):
            frame[column] = pd.Series(names, index=frame.index, dtype="str")
        notes.count(
            f"several_{column}s",
            several,
            f"slides have more than one {column} file; the first by name is used",
        )


def _check_scale(frame: pd.DataFrame, *, where: str) -> None:
    """Check the microns per pixel that the table states: one that no slide has would spoil every length."""
    if "mpp" not in frame.columns:
        return
    cells = frame["mpp"]
    if not pd.api.types.is_numeric_dtype(cells.dtype):
        cells = cells.str.strip().str.replace(",", ".", regex=False)
    numbers = to_number(cells, column="mpp", where=where)
    for at in np.flatnonzero(numbers.notna().to_numpy()):
        check_mpp(float(numbers.iloc[at]), where=f"{where}, row {at + 1}, column 'mpp'")
    frame["mpp"] = numbers
    if "microns_per_pixel" not in frame.columns:
        frame["microns_per_pixel"] = numbers


def _check_stages(frame: pd.DataFrame, words: Mapping[str, str], notes: _Notes, *, where: str) -> None:
    for word, stage in words.items():
        if stage not in SLIDE_STAGES:
            raise UserError(
                f"the word '{word}' is given the stage '{stage}'", fix=f"One of {', '.join(SLIDE_STAGES)}."
            )
    if "stage" not in frame.columns:
        return
    cells = frame["stage"].astype("str").where(frame["stage"].notna(), "").str.strip()
    stages = [slide_stage(cell, words) if cell else None for cell in cells]
    wrong = [at for at, cell in enumerate(cells) if cell and stages[at] is None]
    if wrong:
        rows = [f"{at + 1} ({cells.iloc[at]})" for at in wrong]
        raise UserError(
            f"unknown slide stage in {'rows' if len(rows) > 1 else 'row'} {name_rows(rows)}",
            where=where,
            fix=f"One of {', '.join(SLIDE_STAGES)}; or say what the word means: --stage '{cells.iloc[wrong[0]]}=macro'.",
        )
    frame["stage"] = pd.Series(stages, index=frame.index, dtype="str")
    notes.counts["without_stage"] = sum(stage is None for stage in stages)
