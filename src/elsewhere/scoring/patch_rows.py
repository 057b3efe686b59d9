"""From rows of patches to the table of patch scores: sums per slide, model and fold, in one pass (LN-10).

A row is one patch by one model and fold: `dice` on a tumour patch, `fpr` (the share of its pixels that are called
tumour) on a normal one. A parquet file or folder is read as a stream and never held whole; other tables, and rows
with pixel counts in place of `dice` and `fpr`, are read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.scoring.patch_scores import (
    CASE,
    FOLD,
    MODEL,
    NUMBERS,
    OPERATING_POINT,
    PATCH_TYPE,
    PATIENT,
    PIXELS,
)
from elsewhere.tables import TableOptions, read_table, to_number
from elsewhere.tables.identifiers import note_source
from elsewhere.tables.options import DEFAULT

TUMOUR = "tumour"
_KEYS = (CASE, MODEL, FOLD, PATCH_TYPE, *OPERATING_POINT)
_SLIDE_FACTS = (PATIENT, "dataset", "site", "stage", "domain", "scanner")


@dataclass(frozen=True, kw_only=True)
class SummedPatches:
    """The table of patch scores, and what was met on the way.

    Attributes:
        table: One row per slide, model and fold (and patch type or threshold, where the rows have them).
        patches: How many rows of patches were read.
        unscored: How many of them have no value and count as the worst one.
    """

    table: pd.DataFrame
    patches: int
    unscored: int


def sum_patches(
    source: str | Path | pd.DataFrame,
    *,
    slides: pd.DataFrame | None = None,
    table: TableOptions = DEFAULT,
    progress: Callable[[int], None] | None = None,
) -> SummedPatches:
    """Add rows of patches up per slide, model and fold.

    Args:
        source: A parquet file or folder, another table, or a data frame, with `case_id`, `model`, `dice` and `fpr`
            (or `tp`, `fp`, `fn`, `tn`); `fold`, `patch_type`, `threshold` and `tumour` (1 or 0) where there are any.
        slides: One row per slide with `case_id` and what is known of it, such as patient, stage and site; None
            where the rows of patches have these columns.
        table: How text tables are written.
        progress: Called with the number of rows that were read; None for no report.

    Returns:
        The sums.

    Raises:
        UserError: A column is missing, a patch has neither or both values, or a slide is not in `slides`.

    Example:
        >>> rows = pd.DataFrame({"case_id": ["a", "a"], "model": "m", "dice": [0.5, None], "fpr": [None, 0.25]})
        >>> sum_patches(rows).table[["n_tumour", "sum_dice", "n_normal", "sum_fpr"]].iloc[0].tolist()
        [1.0, 0.5, 1.0, 0.25]
    """
    where = "data frame" if isinstance(source, pd.DataFrame) else str(source)
    if not isinstance(source, pd.DataFrame):
        note_source(source)
    streamed = not isinstance(source, pd.DataFrame) and _is_parquet(Path(source))
    if streamed and {"dice", "fpr"} <= set(columns := _parquet_columns(Path(str(source)))):
        grouped, keys = _streamed(Path(str(source)), columns, progress)
    else:
        frame = (
            source.reset_index(drop=True)
            if isinstance(source, pd.DataFrame)
            else read_table(Path(source), required=(CASE, MODEL), strings=(CASE, MODEL, FOLD), options=table)
        )
        frame = _with_values(frame, where)
        keys = _keys_of(list(frame.columns), where)
        grouped = _grouped(frame, keys)
    out, unscored, patches = _sums(grouped, keys, where)
    if slides is not None:
        out = _joined(out, slides)
    return SummedPatches(table=out, patches=patches, unscored=unscored)


def _is_parquet(path: Path) -> bool:
    return path.is_dir() or path.name.lower().endswith((".parquet", ".pq"))


def _parquet_columns(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.dataset as pds

    if not path.exists():
        raise UserError("no such file or folder", where=str(path))
    try:
        return [str(name) for name in pds.dataset(str(path), format="parquet").schema.names]
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"cannot be read as parquet ({str(error)[:150]})",
            where=str(path),
            fix="Give a parquet file or folder.",
        ) from error


def _keys_of(columns: Sequence[str], where: str) -> list[str]:
    for name in (CASE, MODEL):
        if name not in columns:
            raise UserError(
                f"no column {name}",
                where=where,
                fix="Rows of patches need case_id, model, and dice and fpr (or tp, fp, fn, tn).",
            )
    return [name for name in (*_KEYS, *_SLIDE_FACTS, TUMOUR) if name in columns]


def _streamed(
    path: Path, columns: Sequence[str], progress: Callable[[int], None] | None
) -> tuple[pd.DataFrame, list[str]]:
    """Sums of a parquet file from its group means, in one pass that holds no rows."""
    from elsewhere.statistics.streaming import summarise_stream

    keys = _keys_of(columns, str(path))
    values = ["dice", "fpr", *(name for name in PIXELS if name in columns)]
    long = summarise_stream(path, by=keys, values=values, progress=progress)
    long["total"] = (long["mean"] * long["n"]).fillna(0.0)
    spread = (long["sd"].fillna(0.0) ** 2) * (long["n"] - 1).clip(lower=0)
    long["square"] = (spread + long["mean"] ** 2 * long["n"]).fillna(0.0)
    long["rows"] = long["n"] + long["undefined"]
    return _wide(long, keys), keys


def _wide(long: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    parts = []
    for name, part in long.groupby("value", sort=False):
        renamed = {"n": f"n_{name}", "total": f"total_{name}", "square": f"square_{name}"}
        parts.append(part.set_index(keys)[["n", "total", "square", "rows"]].rename(columns=renamed))
    first = parts[0]
    for part in parts[1:]:
        first = first.join(part.drop(columns="rows"))
    return first.reset_index()


def _with_values(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    out = frame.copy()
    for name in ("dice", "fpr", *PIXELS):
        if name in out.columns:
            out[name] = to_number(out[name], column=name, where=where, na_values=("nan", "NaN", "NA"))
    if not {"dice", "fpr"} <= set(out.columns):
        if not set(PIXELS) <= set(out.columns):
            raise UserError(
                "no columns dice and fpr, and no pixel counts tp, fp, fn, tn",
                where=where,
                fix="Give dice on tumour patches and fpr on normal ones, or the pixel counts of each patch.",
            )
        counts = out[list(PIXELS)].to_numpy()
        bad = ~((counts >= 0) & (counts == np.round(counts))).all(axis=1)
        if bad.any():
            raise UserError(
                f"{int(bad.sum())} rows have pixel counts that are no whole numbers of 0 or more",
                where=f"{where}, rows {name_rows((np.flatnonzero(bad) + 1).tolist())}",
                fix="Give the numbers of pixels.",
            )
        tp, fp, fn, tn = counts.T
        tumour = tp + fn > 0
        with np.errstate(invalid="ignore", divide="ignore"):
            out["dice"] = np.where(tumour, 2 * tp / (2 * tp + fp + fn), np.nan)
            out["fpr"] = np.where(tumour, np.nan, fp / (fp + tn))
        out[TUMOUR] = tumour.astype(int)
    for name in ("dice", "fpr"):
        beyond = ((out[name] < 0) | (out[name] > 1)).to_numpy()
        if beyond.any():
            raise UserError(
                f"{name} is below 0 or above 1 in {int(beyond.sum())} rows",
                where=f"{where}, rows {name_rows((np.flatnonzero(beyond) + 1).tolist())}",
                fix="Percentages are divided by 100; a patch without a value has an empty cell.",
            )
    return out


def _grouped(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    values = pd.DataFrame({key: frame[key].astype("string").fillna("") for key in keys})
    for name in ("dice", "fpr", *(name for name in PIXELS if name in frame.columns)):
        column = frame[name].to_numpy(dtype=float)
        values[f"n_{name}"] = np.isfinite(column).astype(float)
        values[f"total_{name}"] = np.nan_to_num(column)
        values[f"square_{name}"] = np.nan_to_num(column) ** 2
    values["rows"] = 1
    return values.groupby(keys, sort=True, as_index=False).sum()


def _sums(grouped: pd.DataFrame, keys: list[str], where: str) -> tuple[pd.DataFrame, int, int]:
    """Lay the sums out under their names; a patch without a value counts as the worst one."""
    rows = grouped["rows"].to_numpy(dtype=float)
    n_dice, n_fpr = grouped["n_dice"].to_numpy(dtype=float), grouped["n_fpr"].to_numpy(dtype=float)
    out = grouped[[key for key in keys if key != TUMOUR]].copy()
    unscored = 0
    if TUMOUR in keys:
        word = grouped[TUMOUR].astype("string").str.strip().str.lower()
        tumour = word.isin(["1", "1.0", "true"]).to_numpy(dtype=bool)
        other = ~tumour & ~word.isin(["0", "0.0", "false"]).to_numpy(dtype=bool)
        if other.any():
            raise UserError(
                f"column {TUMOUR} holds '{word[other].iloc[0]}'",
                where=where,
                fix="Use 1 for a tumour patch, else 0.",
            )
        n_tumour, n_normal = np.where(tumour, rows, 0.0), np.where(tumour, 0.0, rows)
        lost = np.where(tumour, rows - n_dice, rows - n_fpr)
        unscored = int(lost.sum())
        worst = np.where(tumour, 0.0, lost)
        sum_fpr = np.where(tumour, 0.0, grouped["total_fpr"].to_numpy() + worst)
        sum_fpr2 = np.where(tumour, 0.0, grouped["square_fpr"].to_numpy() + worst)
        sum_dice = np.where(tumour, grouped["total_dice"].to_numpy(), 0.0)
        sum_dice2 = np.where(tumour, grouped["square_dice"].to_numpy(), 0.0)
    else:
        odd = rows != n_dice + n_fpr
        if odd.any():
            raise UserError(
                f"patches of {int(odd.sum())} slides (by model and fold) have neither dice nor fpr, or both",
                where=where,
                fix="Fill dice on tumour patches and fpr on normal ones alone; with a column `tumour` (1 or 0) a patch "
                "without a value counts as the worst one.",
            )
        n_tumour, n_normal = n_dice, n_fpr
        sum_dice, sum_dice2 = grouped["total_dice"].to_numpy(), grouped["square_dice"].to_numpy()
        sum_fpr, sum_fpr2 = grouped["total_fpr"].to_numpy(), grouped["square_fpr"].to_numpy()
    made = (n_tumour, sum_dice, sum_dice2, n_normal, sum_fpr, sum_fpr2)
    for name, values in zip(NUMBERS[:6], made, strict=True):
        out[name] = values
    for name in PIXELS:
        if f"total_{name}" in grouped.columns:
            out[name] = np.round(grouped[f"total_{name}"].to_numpy())
    plain = [key for key in keys if key != TUMOUR]
    summed = out.groupby(plain, sort=True, as_index=False, dropna=False).sum()
    return summed, unscored, int(rows.sum())


def _joined(out: pd.DataFrame, slides: pd.DataFrame) -> pd.DataFrame:
    if CASE not in slides.columns:
        raise UserError(
            "the table of slides has no column case_id", fix="Give one row per slide, with its case_id."
        )
    ids = slides[CASE].astype(str)
    if ids.duplicated().any():
        raise UserError(
            f"the table of slides has {int(ids.duplicated().sum())} slides twice",
            fix="Give one row per slide.",
        )
    unknown = sorted(set(out[CASE].astype(str)) - set(ids))
    if unknown:
        raise UserError(
            f"{len(unknown)} slides of the patches are not in the table of slides",
            where=f"slides {', '.join(unknown[:5])}",
            fix="Give every slide a row, under the same case_id.",
        )
    facts = slides.drop(columns=[name for name in slides.columns if name != CASE and name in out.columns])
    facts = facts.assign(**{CASE: ids})
    return out.assign(**{CASE: out[CASE].astype(str)}).merge(
        facts, on=CASE, how="left", validate="many_to_one"
    )
