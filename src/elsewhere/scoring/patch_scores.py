"""The table of patch scores: sums per slide, model and fold, from which every mean over patches follows (LN-10).

A study of patches has millions of rows (patches x models x folds). Means, spreads and intervals by patient need
sums alone: how many tumour patches a slide has, the sum of their Dice and of its square, and the same of the
false-positive rate on normal patches. One row per slide, model and fold holds them (and per patch type, or per
threshold, where the table has these columns). `patch_rows` makes such a table from rows of patches.

Every model is compared on the same patches. A slide has as many patches as the model with the most scores on it:
what a model or a fold has no score for counts as the worst value, Dice 0 or a false-positive rate of 1, and is
counted (ST-14).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows, unknown_name
from elsewhere.statistics.evaluator import FloatArray
from elsewhere.tables import TableOptions, read_table, to_number
from elsewhere.tables.identifiers import note_ids, note_source
from elsewhere.tables.options import DEFAULT

CASE, PATIENT, MODEL, FOLD, DOMAIN = "case_id", "patient_id", "model", "fold", "domain"
PATCH_TYPE, THRESHOLD, SMALLEST_OBJECT = "patch_type", "threshold", "smallest_object_mm"
OPERATING_POINT = (THRESHOLD, SMALLEST_OBJECT)
"""Columns of an operating point: what is called tumour, and which objects are too small to count."""
REQUIRED = (CASE, MODEL, "n_tumour", "sum_dice", "n_normal", "sum_fpr")
SQUARES = ("sum_dice2", "sum_fpr2")
PIXELS = ("tp", "fp", "fn", "tn")
NUMBERS = ("n_tumour", "sum_dice", "sum_dice2", "n_normal", "sum_fpr", "sum_fpr2", *PIXELS)
Folds = Literal["all", "own"]
ID_WORDS, OOD_WORDS = ("id", "internal", "in-distribution"), ("ood", "external", "out-of-distribution")
_LISTED = 5
_TOLERANCE = 1e-6
_MOST = 1e12


@dataclass(frozen=True, kw_only=True)
class PatchMetric:
    """A mean over patches.

    Attributes:
        name: Its name.
        label: What a table calls it.
        count: The column with the number of patches.
        total: The column with their sum.
        square: The column with their sum of squares.
        higher_is_better: Whether a higher value is better.
        skewed: Whether a few slides carry the mean, so that limits are made on the logarithmic scale.
        worst: The value of a patch without a score.
    """

    name: str
    label: str
    count: str
    total: str
    square: str
    higher_is_better: bool
    skewed: bool
    worst: float


DICE = PatchMetric(
    name="dice",
    label="Dice, tumour patches",
    count="n_tumour",
    total="sum_dice",
    square="sum_dice2",
    higher_is_better=True,
    skewed=False,
    worst=0.0,
)
FPR = PatchMetric(
    name="fpr",
    label="False-positive rate, normal patches",
    count="n_normal",
    total="sum_fpr",
    square="sum_fpr2",
    higher_is_better=False,
    skewed=True,
    worst=1.0,
)
PATCH_METRICS = (DICE, FPR)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What a model has no score for.

    Attributes:
        model: The model.
        rows: Rows of slide and fold that are missing.
        slides: Slides that are missing in at least one fold.
        patches: Patches without a score, of all folds together, each counted as the worst value.
        expected: Patches of all folds together.
    """

    model: str
    rows: int
    slides: int
    patches: int
    expected: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name.

        Returns:
            A new dictionary.
        """
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class PatchScores:
    """The sums of every model and fold on the same patches; missing ones count as the worst value.

    A part is a slide, or the patches of one type of it. A variant is a model, or a model at one operating point.

    Attributes:
        parts: One row per part: `case_id`, `patient_id`, and the columns of the slide.
        variants: One row per variant: `model`, with `threshold` and `smallest_object_mm` where there are any.
        folds: The names of the folds.
        count: Patches of each part, by metric.
        total: Sums by metric, (variants, folds, parts); NaN where a fold has slides of its own and this is none.
        square: Sums of squares by metric, alike; None where the table has none.
        coverage: What each model has no score for.
        warnings: Full sentences about the table.
        own_folds: Whether each fold has slides of its own.
    """

    parts: pd.DataFrame
    variants: pd.DataFrame
    folds: tuple[str, ...]
    count: Mapping[str, FloatArray]
    total: Mapping[str, FloatArray]
    square: Mapping[str, FloatArray | None]
    coverage: tuple[Coverage, ...] = ()
    warnings: tuple[str, ...] = ()
    own_folds: bool = False
    _patients: tuple[npt.NDArray[np.int64], tuple[str, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        codes, names = pd.factorize(self.parts[PATIENT], sort=True)
        object.__setattr__(
            self, "_patients", (np.asarray(codes, dtype=np.int64), tuple(str(name) for name in names))
        )

    @property
    def patient_of_part(self) -> npt.NDArray[np.int64]:
        """The number of the patient of each part; patients are numbered by sorted id (ST-01b)."""
        return self._patients[0]

    @property
    def patients(self) -> tuple[str, ...]:
        """The patients, sorted by id."""
        return self._patients[1]

    @property
    def models(self) -> tuple[str, ...]:
        """The models, in the order of the table."""
        return tuple(dict.fromkeys(self.variants[MODEL]))

    def fold_average(self, metric: PatchMetric) -> FloatArray:
        """Average the sums of each part over the folds.

        All folds share the patches, so that the ratio of these sums is the average of the folds' means.

        Args:
            metric: The metric.

        Returns:
            (variants, parts).
        """
        values = self.total[metric.name]
        if not self.own_folds:
            return np.asarray(np.nanmean(values, axis=1))
        scored = np.isfinite(values)
        rows = np.where(scored, values, 0.0).sum(axis=1) / np.maximum(scored.sum(axis=1), 1)
        worst = metric.worst * self.count[metric.name]
        return np.where(scored.any(axis=1), rows, worst)

    def fold_means(self, metric: PatchMetric, chosen: npt.NDArray[np.bool_]) -> FloatArray:
        """Compute the mean over patches of each fold.

        Args:
            metric: The metric.
            chosen: The parts that count.

        Returns:
            (variants, folds); NaN for a fold without patches there.
        """
        values = self.total[metric.name][:, :, chosen]
        counts = np.where(np.isfinite(values), self.count[metric.name][chosen], 0.0).sum(axis=2)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(counts > 0, np.nansum(values, axis=2) / counts, np.nan))

    def patch_sd(self, metric: PatchMetric, chosen: npt.NDArray[np.bool_]) -> FloatArray:
        """Compute the standard deviation over the patches of all folds, as papers print it next to a mean.

        Args:
            metric: The metric.
            chosen: The parts that count.

        Returns:
            One value per variant; NaN where the table has no sums of squares or there are fewer than two patches.
        """
        squares = self.square[metric.name]
        if squares is None:
            return np.full(len(self.variants), np.nan)
        values = self.total[metric.name][:, :, chosen]
        n = np.where(np.isfinite(values), self.count[metric.name][chosen], 0.0).sum(axis=(1, 2))
        total, square = np.nansum(values, axis=(1, 2)), np.nansum(squares[:, :, chosen], axis=(1, 2))
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = np.maximum(square - total**2 / n, 0.0) / (n - 1)
            return np.asarray(np.where(n > 1, np.sqrt(variance), np.nan))


def read_patch_scores(
    source: str | Path | pd.DataFrame,
    *,
    folds: Folds = "all",
    columns: Sequence[str] = (),
    table: TableOptions = DEFAULT,
) -> PatchScores:
    """Read and check a table of patch scores.

    Args:
        source: A csv, parquet or xlsx file, or a data frame: one row per slide, model and fold.
        folds: 'all' where every fold scored every slide; 'own' where each fold scored slides of its own, as in a
            cross-validation over the slides.
        columns: Further columns of slides that are needed, such as the stage.
        table: How text tables are written.

    Returns:
        The scores of every model and fold on the same patches.

    Raises:
        UserError: A column is missing, a number is impossible, a slide has two patients or two stages, or a row is
            there twice.

    Example:
        >>> rows = {"case_id": ["a", "b"], "model": "m", "n_tumour": [4, 0], "sum_dice": [3.0, 0.0]}
        >>> made = read_patch_scores(pd.DataFrame(rows | {"n_normal": [2, 9], "sum_fpr": [0.1, 0.0]}))
        >>> made.fold_means(DICE, np.array([True, True])).tolist()
        [[0.75]]
    """
    if isinstance(source, pd.DataFrame):
        frame, where = source.reset_index(drop=True), "data frame"
    else:
        note_source(source)
        text = [CASE, PATIENT, MODEL, FOLD, DOMAIN, PATCH_TYPE, *columns]
        frame, where = (
            read_table(Path(source), required=REQUIRED, strings=text, options=table),
            str(source),
        )
    frame = _typed(frame, columns, where)
    note_ids(frame[CASE].astype(str), frame[PATIENT].astype(str))
    points = [name for name in OPERATING_POINT if name in frame.columns]
    keys = [CASE, MODEL, FOLD, *([PATCH_TYPE] if PATCH_TYPE in frame.columns else []), *points]
    _check_twice(frame, keys, where)
    _check_numbers(frame, where)
    part_keys = [CASE, *([PATCH_TYPE] if PATCH_TYPE in frame.columns else [])]
    variant_keys = [MODEL, *points]
    parts = _parts(frame, part_keys, where)
    variants = frame[variant_keys].drop_duplicates(ignore_index=True)
    return _completed(frame, parts, variants, part_keys=part_keys, own=_own(frame, folds, where))


def _typed(frame: pd.DataFrame, columns: Sequence[str], where: str) -> pd.DataFrame:
    missing = [name for name in REQUIRED if name not in frame.columns]
    if missing:
        raise UserError(
            f"no column {', '.join(missing)}",
            where=where,
            fix=f"A table of patch scores needs {', '.join(REQUIRED)}; `elsewhere slides patch-scores` makes one from rows "
            "of patches.",
        )
    for name in columns:
        if name not in frame.columns:
            raise unknown_name("column", name, [str(one) for one in frame.columns])
    if frame.empty:
        raise UserError("the table has no rows", where=where, fix="Give one row per slide, model and fold.")
    out = frame.copy()
    if PATIENT not in out.columns:
        out[PATIENT] = out[CASE]
    if FOLD not in out.columns:
        out[FOLD] = "1"
    for name in {CASE, PATIENT, MODEL, FOLD, DOMAIN, PATCH_TYPE, *columns} & set(out.columns):
        as_text = out[name].astype("string").str.strip()
        empty = (as_text.isna() | (as_text == "")).to_numpy(dtype=bool)
        if name in (CASE, PATIENT, MODEL, FOLD) and empty.any():
            raise UserError(
                f"column '{name}' is empty in {int(empty.sum())} rows",
                where=f"{where}, rows {name_rows((np.flatnonzero(empty) + 1).tolist())}",
                fix="Fill the names in: sums are compared by slide, model and fold, and resampled by patient.",
            )
        out[name] = as_text.fillna("").astype(object)
    for name in (*NUMBERS, *OPERATING_POINT):
        if name in out.columns:
            out[name] = to_number(out[name], column=name, where=where, missing="error")
    return out


def _check_twice(frame: pd.DataFrame, keys: list[str], where: str) -> None:
    twice = frame.duplicated(keys, keep=False).to_numpy()
    if twice.any():
        raise UserError(
            f"{int(twice.sum())} rows are of the same {', '.join(keys)}",
            where=f"{where}, rows {name_rows((np.flatnonzero(twice) + 1).tolist())}",
            fix="Give one row each; rows of patches are added up by `elsewhere slides patch-scores`.",
        )


def _check_numbers(frame: pd.DataFrame, where: str) -> None:
    def refuse(bad: npt.NDArray[np.bool_], what: str, fix: str) -> None:
        if bad.any():
            raise UserError(
                f"{what} in {int(bad.sum())} rows",
                where=f"{where}, rows {name_rows((np.flatnonzero(bad) + 1).tolist())}",
                fix=fix,
            )

    for name in (name for name in ("n_tumour", "n_normal", *PIXELS) if name in frame.columns):
        value = frame[name].to_numpy()
        refuse(
            (value < 0) | (value > _MOST) | (value != np.round(value)),
            f"{name} is no whole number from 0 to a trillion",
            "Give counts.",
        )
    for metric in PATCH_METRICS:
        n, total = frame[metric.count].to_numpy(), frame[metric.total].to_numpy()
        slack = _TOLERANCE * np.maximum(n, 1.0)
        refuse(
            (total < -slack) | (total > n + slack),
            f"{metric.total} is below 0 or above {metric.count}",
            f"A patch's value lies between 0 and 1, so that the sum lies between 0 and {metric.count}; percentages "
            "are divided by 100.",
        )
        if metric.square in frame.columns:
            square = frame[metric.square].to_numpy()
            least = np.divide(total**2, n, out=np.zeros(n.size), where=n > 0)
            refuse(
                (square > total + slack) | (square < least - slack),
                f"{metric.square} does not fit {metric.total}",
                "The sum of squares of values between 0 and 1 is at most their sum, and at least its square over n.",
            )


def _parts(frame: pd.DataFrame, part_keys: list[str], where: str) -> pd.DataFrame:
    """One row per part; a column that varies within a slide belongs to the row and not to the slide."""
    own = {MODEL, FOLD, *OPERATING_POINT, *NUMBERS, *part_keys}
    facts = [name for name in frame.columns if name not in own]
    by_case = frame.groupby(CASE, sort=False)[facts].nunique(dropna=False)
    varying = {str(name): int((by_case[name] > 1).sum()) for name in facts if (by_case[name] > 1).any()}
    for name in (PATIENT, DOMAIN):
        if name in varying:
            slides = by_case.index[by_case[name] > 1].tolist()
            raise UserError(
                f"{varying[name]} slides have two values of {name}",
                where=f"{where}, slides {', '.join(map(str, slides[:_LISTED]))}",
                fix="Give each slide one patient and one domain in all rows.",
            )
    kept = [name for name in facts if name not in varying]
    return frame[[*part_keys, *kept]].drop_duplicates(part_keys, ignore_index=True)


def _own(frame: pd.DataFrame, folds: Folds, where: str) -> bool:
    if folds not in ("all", "own"):
        raise unknown_name("value of --folds", folds, ["all", "own"])
    if folds == "own" or len(set(frame[FOLD])) == 1:
        return folds == "own"
    per_slide = frame.groupby([MODEL, CASE])[FOLD].nunique()
    if (per_slide == 1).all():
        raise UserError(
            f"no slide is scored by more than one of the {frame[FOLD].nunique()} folds of a model",
            where=where,
            fix="If each fold scored slides of its own (cross-validation over the slides), give --folds own.",
        )
    return False


def _completed(
    frame: pd.DataFrame, parts: pd.DataFrame, variants: pd.DataFrame, *, part_keys: list[str], own: bool
) -> PatchScores:
    """Lay the sums out by variant, fold and part, and fill what is missing with the worst value."""
    fold_names = sorted(frame[FOLD].unique(), key=lambda text: (len(text), text))
    v = _codes(frame, variants)
    f = pd.Index(fold_names).get_indexer(pd.Index(frame[FOLD]))
    p = _codes(frame, parts[part_keys])
    shape = (len(variants), len(fold_names), len(parts))
    present: npt.NDArray[np.bool_] = np.zeros(shape, dtype=bool)
    present[v, f, p] = True
    trained = np.asarray(present.any(axis=2))[:, :, None]
    scored = np.asarray(present.any(axis=1))[:, None, :]
    count: dict[str, FloatArray] = {}
    total: dict[str, FloatArray] = {}
    square: dict[str, FloatArray | None] = {}
    lost = np.zeros((len(variants), len(fold_names)))
    expected = np.zeros(len(variants))
    for metric in PATCH_METRICS:
        n = np.zeros(shape)
        n[v, f, p] = frame[metric.count].to_numpy()
        most = np.asarray(n.max(axis=(0, 1)))
        gap = np.where(trained, most - n, 0.0)
        if own:
            gap = np.where(present | ~scored, gap, 0.0)
        blank = np.full(shape, np.nan) if own else np.where(trained, np.zeros(shape), np.nan)
        values = blank.copy()
        values[v, f, p] = frame[metric.total].to_numpy()
        values = values + np.where(np.isfinite(values), metric.worst * gap, 0.0)
        count[metric.name], total[metric.name] = most, values
        square[metric.name] = None
        if metric.square in frame.columns:
            squares = blank.copy()
            squares[v, f, p] = frame[metric.square].to_numpy()
            square[metric.name] = squares + np.where(np.isfinite(squares), metric.worst**2 * gap, 0.0)
        lost += _lost(gap, present, own=own)
        expected += most.sum() * (1 if own else trained[:, :, 0].sum(axis=1))
    missing = ~scored if own else ~present & trained
    coverage = _coverage(variants, parts, missing, lost, expected)
    made = PatchScores(
        parts=parts,
        variants=variants,
        folds=tuple(str(name) for name in fold_names),
        count=count,
        total=total,
        square=square,
        coverage=coverage,
        own_folds=own,
    )
    short = [] if own else _missing_folds(variants, trained[:, :, 0])
    warnings = (*_coverage_warnings(coverage), *short, *_fold_warnings(frame, made))
    return PatchScores(**{**_fields(made), "warnings": warnings})


def _lost(gap: FloatArray, present: npt.NDArray[np.bool_], *, own: bool) -> FloatArray:
    """Patches without a score by variant and fold; with folds of their own a part that none scored counts once."""
    if not own:
        return np.asarray(gap.sum(axis=2))
    out = np.asarray(np.where(present, gap, 0.0).sum(axis=2))
    out[:, 0] += np.where(present.any(axis=1), 0.0, gap.max(axis=1)).sum(axis=1)
    return out


def _fields(made: PatchScores) -> dict[str, Any]:
    return {key: value for key, value in vars(made).items() if not key.startswith("_")}


def _codes(frame: pd.DataFrame, keys: pd.DataFrame) -> npt.NDArray[np.int64]:
    names = list(keys.columns)
    if len(names) == 1:
        return pd.Index(keys[names[0]]).get_indexer(pd.Index(frame[names[0]])).astype(np.int64)
    index = pd.MultiIndex.from_frame(keys)
    return np.asarray(index.get_indexer(pd.MultiIndex.from_frame(frame[names])), dtype=np.int64)


def _coverage(
    variants: pd.DataFrame,
    parts: pd.DataFrame,
    missing: npt.NDArray[np.bool_],
    lost: FloatArray,
    expected: FloatArray,
) -> tuple[Coverage, ...]:
    rows = []
    model_of = variants[MODEL].to_numpy()
    cases = parts[CASE].to_numpy()
    for model in dict.fromkeys(model_of):
        at = model_of == model
        absent = missing[at].any(axis=(0, 1))
        rows.append(
            Coverage(
                model=str(model),
                rows=int(missing[at].sum()),
                slides=len(set(cases[absent])),
                patches=int(lost[at].sum()),
                expected=int(expected[at].sum()),
            )
        )
    return tuple(rows)


def _coverage_warnings(coverage: tuple[Coverage, ...]) -> list[str]:
    short = [one for one in coverage if one.patches or one.rows]
    if not short:
        return []
    listed = "; ".join(
        f"{one.model}: {one.patches:,} of {one.expected:,} patches"
        + (f", {one.slides} slides missing in a fold" if one.slides else "")
        for one in short[:_LISTED]
    )
    more = f"; and {len(short) - _LISTED} more models" if len(short) > _LISTED else ""
    return [
        f"{len(short)} of {len(coverage)} models have no score for some patches, which count as the worst value "
        f"(Dice 0, false-positive rate 1): {listed}{more}. A slide has as many patches as the model with the most "
        "scores on it."
    ]


def _missing_folds(variants: pd.DataFrame, trained: npt.NDArray[np.bool_]) -> list[str]:
    """Name models with fewer folds than the others: their average is over the folds that they have."""
    folds = {str(name): int(n) for name, n in zip(variants[MODEL], trained.sum(axis=1), strict=True)}
    short = [f"{name}: {n} of {trained.shape[1]}" for name, n in folds.items() if n < trained.shape[1]]
    if not short:
        return []
    more = f"; and {len(short) - _LISTED} more" if len(short) > _LISTED else ""
    return [
        f"{len(short)} models have fewer folds than there are, and are averaged over theirs: "
        f"{'; '.join(short[:_LISTED])}{more}."
    ]


def _fold_warnings(frame: pd.DataFrame, made: PatchScores) -> list[str]:
    """Name folds that have no tumour patch at all."""
    scored = frame.groupby([MODEL, FOLD], sort=False, as_index=False)["n_tumour"].sum()
    none = scored[scored["n_tumour"] == 0]
    bare = [f"{model}, fold {fold}" for model, fold in zip(none[MODEL], none[FOLD], strict=True)]
    if not bare or not made.count[DICE.name].any():
        return []
    listed = "; ".join(bare[:_LISTED]) + (f"; and {len(bare) - _LISTED} more" if len(bare) > _LISTED else "")
    effect = "is left out of the mean Dice by fold" if made.own_folds else "counts with Dice 0"
    whose = "1 fold has" if len(bare) == 1 else f"{len(bare)} folds have"
    return [f"{whose} no tumour slide and {effect}: {listed}."]
