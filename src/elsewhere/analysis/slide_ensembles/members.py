"""The masks of many models and folds: which file is whose (LN-16)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd

from elsewhere.ensembles.cell_votes import MOST_MEMBERS
from elsewhere.errors import UserError, name_rows
from elsewhere.predictions.plain_files import files_inside
from elsewhere.predictions.slide_masks import MASK_ENDINGS
from elsewhere.predictions.slides import MASK_COLUMNS, without_ending
from elsewhere.tables import read_table, to_number
from elsewhere.tables.identifiers import note_ids, note_source

CASE, MODEL, FOLD, PATH = "case_id", "model", "fold", "path"
ONLY_FOLD = "1"
_LAYOUT = (
    "Put the masks into MODEL/FOLD/<case_id>.tif (or MODEL/<case_id>.tif for one fold), or give a csv with the columns "
    "case_id, model, fold and path."
)
_MOST_PARTS = 3


@dataclass(frozen=True, kw_only=True)
class MemberMasks:
    """The masks of many models and folds.

    Attributes:
        table: One row per mask: `case_id`, `model`, `fold`, `path`, and what the user states of the file.
        models: The models, in order of name.
        folds: The folds, in order of name.
        source: Where they come from.
    """

    table: pd.DataFrame
    models: tuple[str, ...]
    folds: tuple[str, ...]
    source: str

    def of(self, cases: list[str]) -> dict[tuple[str, str, str], pd.Series]:
        """Look up the masks of slides.

        Args:
            cases: The ids of the slides.

        Returns:
            The row of each slide, fold and model that has one.
        """
        mine = self.table[self.table[CASE].isin(cases)]
        return {(row[CASE], row[FOLD], row[MODEL]): row for _, row in mine.iterrows()}


def in_order(names: set[str]) -> tuple[str, ...]:
    """Sort names so that 2 comes before 10.

    Args:
        names: The names.

    Returns:
        The names, numbers in them compared as numbers.

    Example:
        >>> in_order({"single-10", "single-2", "imagenet-natural"})
        ('imagenet-natural', 'single-2', 'single-10')
    """

    def key(name: str) -> list[tuple[int, int, str]]:
        pieces = pd.Series([name]).str.findall(r"[0-9]+|[^0-9]+").iloc[0]
        return [(0, int(p), "") if p.isascii() and p.isdecimal() else (1, 0, p.casefold()) for p in pieces]

    return tuple(sorted(names, key=lambda name: (key(name), name)))


def read_members(source: str | Path) -> MemberMasks:
    """List the masks of many models and folds.

    Args:
        source: A folder MODEL/FOLD/<case_id>.tif, a folder MODEL/<case_id>.tif, or a table with `case_id`, `model`, `path`
            and `fold`, and what files do not state themselves: `mpp`, `offset_x`, `offset_y`, `tumour`, `threshold`.

    Returns:
        The masks.

    Raises:
        UserError: There is no mask, the folders are nested otherwise, a slide has two masks of one model and fold, or there
            are too many models.
    """
    path = Path(source)
    note_source(path)
    if not path.exists():
        raise UserError("there is no such folder or table of masks", where=str(path), fix=_LAYOUT)
    table = _from_folder(path) if path.is_dir() else _from_table(path)
    note_ids(table[CASE])
    twice = table.duplicated([CASE, MODEL, FOLD], keep=False).to_numpy()
    if twice.any():
        first = table[twice].iloc[0]
        raise UserError(
            f"{int(twice.sum())} masks are of the same slide, model and fold, for example {first[CASE]} of {first[MODEL]}, fold "
            f"{first[FOLD]}",
            where=str(path),
            fix="Leave one mask per slide, model and fold.",
        )
    models, folds = in_order(set(table[MODEL])), in_order(set(table[FOLD]))
    if len(models) > MOST_MEMBERS:
        raise UserError(
            f"there are {len(models)} models, and at most {MOST_MEMBERS} can vote",
            where=str(path),
            fix="Give fewer models; where the folders are FOLD/MODEL, turn them round.",
        )
    return MemberMasks(table=table.reset_index(drop=True), models=models, folds=folds, source=str(path))


def _from_folder(path: Path) -> pd.DataFrame:
    files, _ = files_inside(path, wanted=lambda file: file.suffix.lower() in MASK_ENDINGS)
    if not files:
        raise UserError("no mask found in the folder", where=str(path), fix=_LAYOUT)
    rows = []
    for file in files:
        parts = file.relative_to(path).parts
        if not 2 <= len(parts) <= _MOST_PARTS:
            raise UserError(
                "this mask lies in no folder of a model"
                if len(parts) == 1
                else "this mask lies too deep in folders",
                where=str(file),
                fix=_LAYOUT,
            )
        rows.append((unquote(file.stem), parts[0], parts[1] if len(parts) == _MOST_PARTS else "", str(file)))
    table = pd.DataFrame(rows, columns=[CASE, MODEL, FOLD, PATH])
    without = table[FOLD] == ""
    if without.any() and not without.all():
        name = table.loc[without, MODEL].iloc[0]
        raise UserError(
            f"some masks lie in a folder of a fold and others do not, for example of {name}",
            where=str(path),
            fix=_LAYOUT,
        )
    table[FOLD] = table[FOLD].replace("", ONLY_FOLD)
    return table


def _from_table(path: Path) -> pd.DataFrame:
    table = read_table(path, required=(CASE, MODEL, PATH), strings=[CASE, MODEL, FOLD, PATH])
    if FOLD not in table.columns:
        table[FOLD] = ONLY_FOLD
    out = pd.DataFrame({CASE: without_ending(table[CASE])})
    for name in (MODEL, FOLD, PATH):
        out[name] = table[name].astype("string").str.strip()
    for name in (CASE, MODEL, FOLD, PATH):
        empty = (out[name].isna() | (out[name] == "")).to_numpy(dtype=bool)
        if empty.any():
            raise UserError(
                f"empty {name}", where=f"{path}, rows {name_rows((np.flatnonzero(empty) + 1).tolist())}"
            )
        out[name] = out[name].astype(object)
    out[PATH] = [str(path.parent / name) for name in out[PATH]]
    for name in MASK_COLUMNS:
        if name in table.columns:
            out[name] = to_number(table[name], column=name, where=str(path), missing="nan")
    if out.empty:
        raise UserError("the table has a header but no rows", where=str(path), fix="Export it again.")
    return out
