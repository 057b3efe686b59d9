"""Probabilities of cases, from a vendor's csv, parquet or xlsx (classification and response).

Columns are `case_id` and `probability` (or `score`), or those that `--map` names. A row holds a score; or
words that mean 'could not be analysed', which is an outcome (ST-14); or something invalid, which is an error
that names its rows, or with `--on-invalid worst` counts as the worst score.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows, near_matches, unknown_name
from elsewhere.predictions.join import as_ids, check_normalisations, join_by_id
from elsewhere.predictions.scales import (
    BIRADS_BIOPSY_THRESHOLD,
    ORDINAL_REASON,
    birads_probability,
    doubt_scale,
    fitting_scale,
    parse_scale,
    to_probability,
)
from elsewhere.predictions.status import (
    FAILED,
    UNKNOWN,
    StatusWord,
    failed_rows,
    is_word_of,
    status_sentence,
    status_words,
)
from elsewhere.predictions.table import Predictions, ReadOptions
from elsewhere.predictions.units import KEY_COLUMNS, NO_SCORE, bring_to_unit, check_unit
from elsewhere.tables import file_digest, read_table, to_number
from elsewhere.tables.identifiers import note_ids, note_source

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

ID_COLUMNS = ("case_id", "exam_id", "patient_id")
ID_TARGETS = (*ID_COLUMNS, "view", "laterality")
_MOST_WORDS = 50
TARGETS = (*ID_TARGETS, "probability", "score", "status")
"""The targets of `--map TARGET=COLUMN` for a probability file."""


def read_probabilities(
    path: str | Path, options: ReadOptions | None = None, cohort: Cohort | None = None
) -> Predictions:
    """Read probabilities from a vendor's table, one per case or per view.

    Args:
        path: A csv, parquet or xlsx table.
        options: How the file is to be read; None: the defaults of ReadOptions.
        cohort: The cases, by whose ids others are spelt where normalisation was declared; None: they stay as
            they are.

    Returns:
        The predictions, with the columns `case_id`, `probability`, `status` and `reason`.

    Raises:
        UserError: A column is missing, an id is empty or repeated, a score is invalid and
            `options.on_invalid` is "error", or an option has an unknown value.
    """
    path, options = Path(path), options or ReadOptions()
    check_unit(options)
    for target in options.column_map:
        if target not in TARGETS:
            raise unknown_name("--map target", target, TARGETS)
    strings = [options.column_map.get(target, target) for target in (*ID_TARGETS, "status")]
    note_source(path)
    raw = read_table(path, strings=strings, options=options.table)
    names = (options.column_map.get(target, target) for target in ID_COLUMNS)
    note_ids(*(raw[name] for name in names if name in raw.columns))
    return probabilities_from_frame(raw, options, cohort, source=str(path), digest=file_digest(path))


def probabilities_from_frame(
    raw: pd.DataFrame,
    options: ReadOptions | None = None,
    cohort: Cohort | None = None,
    *,
    source: str = "predictions",
    digest: str = "",
) -> Predictions:
    """Turn scores in a data frame into predictions, as `read_probabilities` does with those of a file.

    Args:
        raw: One row per case or per view, with `case_id` and `probability` (or `score`), or the columns that
            `options.column_map` names.
        options: How the columns are to be read; None: the defaults of ReadOptions.
        cohort: The cases, by whose ids others are spelt where normalisation was declared; None: they stay as
            they are.
        source: What messages call the frame.
        digest: The digest of the file that it comes from; empty: it comes from none.

    Returns:
        The predictions, with the columns `case_id`, `probability`, `status` and `reason`.

    Raises:
        UserError: A column is missing, an id is empty or repeated, a score is invalid and
            `options.on_invalid` is "error", or an option has an unknown value.

    Example:
        >>> raw = pd.DataFrame({"case_id": ["a", "b"], "score": ["80", "failed"]})
        >>> table = probabilities_from_frame(raw, ReadOptions(scale="0-100")).table
        >>> table["probability"].tolist(), table["status"].tolist()
        ([0.8, nan], ['ok', 'not_analysable'])
    """
    options = options or ReadOptions()
    check_unit(options)
    frame = _named(raw, options, source=source)
    scored, warnings, words = _scored(frame, options, source=source)
    flow: list[dict[str, Any]] = [
        {"step": "rows in the prediction file", "n": len(raw), "lost": 0, "why": ""}
    ]
    if options.unit != "case":
        table, step, more = bring_to_unit(scored, options, cohort, source=source)
        flow = [{**flow[0], "of": "rows"}, step]
        warnings += more
    else:
        table = scored[["case_id", "probability", "status", "reason"]]
    ids = as_ids(table["case_id"], what="prediction rows", where=source)
    repeated = pd.Series(ids).duplicated(keep=False).to_numpy()
    if repeated.any():
        first = ids[int(np.flatnonzero(repeated)[0])]
        rows = (np.flatnonzero(ids == first) + 1).tolist()
        raise UserError(
            f"the id '{first}' is in rows {name_rows(rows)}; {len(set(ids[repeated]))} ids are repeated",
            where=source,
            fix="Keep one row per case. Where rows are views of one exam, say `--unit exam --combine max`.",
        )
    if cohort is not None and options.normalise_ids:
        rules = check_normalisations(options.normalise_ids)
        join = join_by_id(cohort.cases["case_id"], ids, normalise=rules, source=source)
        ours = cohort.cases["case_id"].astype("string").to_numpy(dtype=object)
        found = join.row_of_case >= 0
        changed = int((ids[join.row_of_case[found]] != ours[found]).sum())
        ids = ids.copy()
        ids[join.row_of_case[found]] = ours[found]
        if changed:
            warnings.append(f"{changed} ids were joined after --normalise-ids {','.join(rules)}.")
    table = table.assign(case_id=pd.array(ids, dtype="string")).reset_index(drop=True)
    scale = parse_scale(options.scale)
    extras: dict[str, Any] = {"scale": scale.name, "unit": options.unit, "combine": options.combine}
    if words:
        extras["status_words"] = [word.to_dict() for word in words[:_MOST_WORDS]]
    if scale.ordinal:
        extras["ordinal"] = ORDINAL_REASON
    return Predictions(
        kind="probability",
        table=table,
        source=source,
        digest=digest,
        flow=tuple(flow),
        warnings=tuple(warnings),
        extras=extras,
    )


def _named(raw: pd.DataFrame, options: ReadOptions, *, source: str) -> pd.DataFrame:
    """The target columns under our names, each from the column that `--map` or its own name says."""
    have = [str(name) for name in raw.columns]
    columns: dict[str, pd.Series] = {}
    for target in TARGETS:
        name = options.column_map.get(target, target)
        if name in raw.columns:
            columns[target] = raw[name].reset_index(drop=True)
        elif target in options.column_map:
            near = near_matches(name, have)
            raise UserError(
                f"no column '{name}' for --map {target}={name}",
                where=source,
                fix=f"Did you mean {' or '.join(repr(n) for n in near)}?"
                if near
                else f"Columns: {', '.join(have)}.",
            )
    if "probability" in columns and "score" in columns:
        mapped = [target for target in ("probability", "score") if target in options.column_map]
        if len(mapped) != 1:
            raise UserError(
                "both a 'probability' and a 'score' column",
                where=source,
                fix="Say which is meant: --map score=COLUMN.",
            )
        columns["probability"] = columns[mapped[0]]
    elif "score" in columns:
        columns["probability"] = columns["score"]
    columns.pop("score", None)
    keyed = any(name in columns for name in KEY_COLUMNS[options.unit])
    missing = [] if keyed else [KEY_COLUMNS[options.unit][0]]
    missing += [] if "probability" in columns else ["probability"]
    if missing:
        hints = []
        for target in missing:
            near = near_matches(target, have) or near_matches(
                "score" if target == "probability" else "id", have
            )
            if near:
                pair = f"{'score' if target == 'probability' else target}={near[0]}"
                hints.append(f"--map '{pair}'" if " " in pair else f"--map {pair}")
        listed = f"Columns: {', '.join(have[:20])}."
        told = "score" if missing[0] == "probability" else missing[0]
        raise UserError(
            f"no column {' and no column '.join(repr(name) for name in missing)}",
            where=source,
            fix=(f"Name it, perhaps {' '.join(hints)}. " if hints else f"Name it: --map {told}=COLUMN. ")
            + listed
            + (
                " Is this the cohort? The cohort comes first, then the predictions."
                if "label" in have
                else ""
            ),
        )
    return pd.DataFrame(columns)


def _is_text(cells: pd.Series) -> bool:
    return isinstance(cells.dtype, pd.StringDtype | pd.CategoricalDtype) or cells.dtype == object


def _scored(
    frame: pd.DataFrame, options: ReadOptions, *, source: str
) -> tuple[pd.DataFrame, list[str], tuple[StatusWord, ...]]:
    """Per row `probability, status, reason`; warnings; and the words of the status column."""
    scale = parse_scale(options.scale)
    cells = frame["probability"]
    failed, words = _failed(frame, options)
    warnings: list[str] = _status_warnings(words, frame, options)
    reason = np.full(len(frame), "", dtype=object)
    reason[failed] = "could not be analysed"
    if scale.kind == "birads":
        probability, incomplete, unreadable = birads_probability(cells)
        reason[incomplete & ~failed] = "BI-RADS 0: incomplete"
        failed = failed | incomplete
        bad = unreadable & ~failed
        if bad.any() and options.on_invalid == "error":
            raise _bad_birads(cells, bad, source=source)
        reason[bad] = "no BI-RADS category"
        warnings.append(
            "BI-RADS categories are ranks: AUROC and operating points are meaningful, calibration is not. "
            f"The default threshold 0.5 means 4C or more. 'Category 4 or more' is --threshold {BIRADS_BIOPSY_THRESHOLD}."
        )
    else:
        values = _numbers(cells.mask(pd.Series(failed), other=None), options, source=source)
        probability, outside = to_probability(values, scale)
        bad = outside & ~failed
        if bad.any() and options.on_invalid == "error":
            raise _bad_scores(values, bad, scale.name, source=source, status=frame.get("status"))
        reason[bad] = np.where(np.isnan(values[bad]), "the score is not a number", "outside the scale")
        reason[bad & _is_empty(cells)] = NO_SCORE
        doubt = doubt_scale(values[~failed], scale)
        if doubt:
            warnings.append(doubt)
    probability = np.where(failed | bad, np.nan, probability)
    status = np.full(len(frame), "ok", dtype=object)
    status[bad] = "invalid"
    status[failed] = "not_analysable"
    kept = frame[[name for name in ID_TARGETS if name in frame.columns]].copy()
    kept["probability"] = probability
    kept["status"] = pd.array(status, dtype="string")
    kept["reason"] = pd.array(reason, dtype="string")
    return kept, warnings, words


def _is_empty(cells: pd.Series) -> npt.NDArray[np.bool_]:
    return (cells.astype("string").fillna("").str.strip() == "").to_numpy(dtype=bool)


def _failed(
    frame: pd.DataFrame, options: ReadOptions
) -> tuple[npt.NDArray[np.bool_], tuple[StatusWord, ...]]:
    """Which rows could not be analysed, by their status or by the text in place of the score."""
    cells = frame["probability"]
    failed = np.zeros(len(frame), dtype=bool)
    if _is_text(cells):
        failed = failed_rows(cells, options.failed_status)
    if "status" not in frame.columns:
        return failed, ()
    words = status_words(frame["status"], ~_is_empty(cells) & ~failed, options.failed_status)
    return failed | failed_rows(frame["status"], options.failed_status), words


def _status_warnings(words: tuple[StatusWord, ...], frame: pd.DataFrame, options: ReadOptions) -> list[str]:
    """Warnings about the status column, where it decided something or is not understood."""
    found = []
    if any(word.meaning in (FAILED, UNKNOWN) for word in words):
        found.append(f"The status column says {status_sentence(words)}.")
    unknown = [word for word in words if word.meaning == UNKNOWN]
    if unknown:
        found.append(
            f"Status words that are not known: {', '.join(repr(word.word) for word in unknown[:5])}. Their scores "
            f"were used. If one means that the case could not be analysed, say --failed-status "
            f"'{unknown[0].word}'."
        )
    for word in options.failed_status:
        texts = [frame["probability"], *([frame["status"]] if "status" in frame.columns else [])]
        if not any(is_word_of(text, word) for text in texts):
            found.append(f"--failed-status '{word}' occurs in no row of the prediction file.")
    return found


def _numbers(cells: pd.Series, options: ReadOptions, *, source: str) -> npt.NDArray[np.float64]:
    try:
        numbers = to_number(
            cells,
            column="probability",
            where=source,
            on_invalid="nan" if options.on_invalid == "worst" else "error",
            infinite="keep",
        )
    except UserError as error:
        hint = "Name a status value that means 'could not be analysed' with --failed-status 'WORD'."
        raise UserError(error.what, where=error.where, fix=f"{error.fix or ''} {hint}".strip()) from None
    return numbers.to_numpy(dtype=np.float64)


def _bad_scores(
    values: npt.NDArray[np.float64],
    bad: npt.NDArray[np.bool_],
    scale: str,
    *,
    source: str,
    status: pd.Series | None,
) -> UserError:
    rows = np.flatnonzero(bad)
    empty = np.isnan(values[rows])
    if empty.all():
        said = _said_of(status, rows)
        if said:
            return UserError(
                f"{rows.size} rows have no score; the status of some says "
                + ", ".join(f"'{word.word}' ({word.rows})" for word in said[:5]),
                where=f"{source}, rows {name_rows((rows + 1).tolist())}",
                fix=f"If '{said[0].word}' means that the case could not be analysed, say --failed-status "
                f"'{said[0].word}' (in a claim: failed_status = [\"{said[0].word}\"]).",
            )
        return UserError(
            f"{rows.size} rows have no score",
            where=f"{source}, rows {name_rows((rows + 1).tolist())}",
            fix="Fill them in, or write 'not analysable', or take the rows out (they count as missing). "
            "Or score them worst with --on-invalid worst.",
        )
    shown = [f"{row + 1} ({values[row]:g})" for row in rows[~empty]]
    if np.isinf(values[rows[~empty]]).all():
        what, fix = (
            "infinite scores",
            "A finite number is needed. Or score them worst with --on-invalid worst.",
        )
    else:
        what = f"scores outside the scale {scale}"
        fits = fitting_scale(values)
        fix = (
            f"These values fit --scale {fits}."
            if fits and fits != scale
            else "Name the scale with --scale MIN-MAX."
        )
        if rows.size < 0.05 * values.size:
            fix += " If only these rows are wrong, correct them, or score them worst with --on-invalid worst."
    return UserError(
        f"{rows.size} of {values.size} rows have {what}", where=f"{source}, rows {name_rows(shown)}", fix=fix
    )


def _said_of(status: pd.Series | None, rows: npt.NDArray[np.int64]) -> tuple[StatusWord, ...]:
    """The unknown status words of rows without a score."""
    if status is None:
        return ()
    words = status_words(status.iloc[rows], np.zeros(rows.size, dtype=bool))
    return tuple(word for word in words if word.meaning == UNKNOWN)


def _bad_birads(cells: pd.Series, bad: npt.NDArray[np.bool_], *, source: str) -> UserError:
    rows = np.flatnonzero(bad)
    shown = [f"{row + 1} ({str(cells.iloc[row])!r})" for row in rows[:6]]
    return UserError(
        f"{rows.size} rows hold no BI-RADS category",
        where=f"{source}, rows {name_rows([*shown, *rows[6:].tolist()])}",
        fix="Known: 0, 1, 2, 3, 4, 4A, 4B, 4C, 5, 6, also as 'BI-RADS 4B'. "
        "Or score them worst with --on-invalid worst.",
    )
