"""Predictions meet the cohort by id alone: exactly equal, or not at all.

Ids that only look alike (leading zeros that a spreadsheet ate, letter case, blanks, file names) are
diagnosed and offered as `--normalise-ids`; they are never joined unasked, because a wrong join gives a
number that nobody can see is wrong. Every row that is lost stands in `flow`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows, unknown_name

_INVISIBLE = r"[\s\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]+"
_NO_WIDTH = "\u034f\u115f\u1160\u2028\u2029\u3164\uffa0"
_EXTENSION = re.compile(
    r"\.(?:nii(?:\.gz)?|dcm|dicom|png|jpe?g|tiff?|bmp|svs|mrxs|ndpi|npy|npz|mha|mhd|nrrd|csv|json|gz|zip)$",
    re.IGNORECASE,
)
_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_BLANKS = re.compile(_INVISIBLE)


def _strip_path(text: str) -> str:
    return _EXTENSION.sub("", text.replace("\\", "/").rsplit("/", 1)[-1])


def _one_form(text: str) -> str:
    """The compatibility form that Unicode calls NFKC, without marks and controls that nobody sees."""
    if text.isascii() and text.isprintable():
        return text
    seen = "".join(c for c in unicodedata.normalize("NFKC", text) if not _is_invisible(c))
    return unicodedata.normalize("NFKC", seen)  # what a mark of no width kept apart may be one character now


def _is_invisible(character: str) -> bool:
    """A control character (a line feed), or a mark of no width: direction, joiner, byte order, soft hyphen."""
    return unicodedata.category(character) in ("Cc", "Cf") or character in _NO_WIDTH


_RULES: dict[str, Callable[[str], str]] = {
    "unicode": _one_form,
    "blanks": lambda text: _BLANKS.sub("", text),
    "case": str.casefold,
    "paths": _strip_path,
    "zeros": lambda text: _LEADING_ZEROS.sub("", text),
}
_MEANING = {
    "zeros": "leading zeros",
    "case": "letter case",
    "unicode": "characters that look the same",
    "blanks": "blanks or invisible characters",
    "paths": "folders and file extensions",
}
NORMALISATIONS = tuple(_MEANING)
"""What `--normalise-ids` understands."""


@dataclass(frozen=True, kw_only=True)
class Join:
    """`row_of_case[i]` is the prediction row of cohort case i, -1 where it has none.

    `extra` are prediction ids the cohort does not have, `extra_rows` their rows; `flow` is the account
    of every row (two steps about the predictions, two about the cohort), `diagnosis` what would have joined and by which normalisation.
    """

    row_of_case: npt.NDArray[np.int64]
    extra: tuple[str, ...]
    extra_rows: npt.NDArray[np.int64]
    flow: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    diagnosis: Diagnosis | None = None

    @property
    def of_predictions(self) -> tuple[dict[str, Any], ...]:
        """The steps of `flow` about the rows of the prediction file."""
        return tuple(step for step in self.flow if step["of"] == "predictions")

    @property
    def n_matched(self) -> int:
        return int((self.row_of_case >= 0).sum())

    @property
    def n_missing(self) -> int:
        return int((self.row_of_case < 0).sum())


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Ids that would have joined: by which `rules`, how many, and one pair to look at."""

    rules: tuple[str, ...]
    count: int
    example: tuple[str, str]

    def sentence(self, *, masked: bool = False) -> str:
        """`masked` shows the shape of the pair alone: a report names no patient."""
        what = " and ".join(_MEANING[rule] for rule in self.rules)
        ours, theirs = (shape_of(text) if masked else text for text in self.example)
        pair = f"like '{ours}' in the cohort and '{theirs}' in the predictions"
        which = f"; {self.characters()}" if "unicode" in self.rules else ""
        return f"{self.count} would match if {what} were ignored ({pair}{which})"

    def characters(self) -> str:
        """Which characters of the pair nobody sees, by their Unicode names."""
        found_marks = []
        for side, text in zip(("the cohort's", "the predictions'"), self.example, strict=True):
            unseen = dict.fromkeys(c for c in text if _is_invisible(c))
            names = [f"U+{ord(c):04X} {unicodedata.name(c, 'control character').lower()}" for c in unseen]
            if not unicodedata.is_normalized("NFKC", text):
                names.append("characters in another Unicode normal form")
            if names:
                found_marks.append(f"{side} has {' and '.join(names)}")
        return ", ".join(found_marks)

    def option(self) -> str:
        return f"--normalise-ids {','.join(self.rules)}"


def shape_of(text: str) -> str:
    """An id's shape without its content: digits become 9 (leading zeros stay), letters A or a."""
    shaped = re.sub(r"[1-9]|(?<=[0-9])0(?![0-9]*[1-9])|(?<=[1-9])0", "9", text)
    return "".join("A" if c.isupper() else "a" if c.isalpha() else c for c in shaped)


def check_normalisations(names: Iterable[str]) -> tuple[str, ...]:
    """The rules in their fixed order of use; a bad name offers its neighbours."""
    asked = [name.strip() for name in names if name.strip()]
    for name in asked:
        if name not in _RULES:
            raise unknown_name("id normalisation", name, NORMALISATIONS)
    return tuple(rule for rule in _RULES if rule in asked)


def normalise_id(text: str, rules: Sequence[str]) -> str:
    """One id after the rules, in the order unicode, blanks, case, paths, zeros."""
    for rule in _RULES:
        if rule in rules:
            text = _RULES[rule](text)
    return text


def as_ids(values: Any, *, what: str, where: str) -> npt.NDArray[np.object_]:
    """Ids as text. An empty id is an error that names its rows (row 1 is the first row of data)."""
    series = pd.Series(values)
    if pd.api.types.is_float_dtype(series.dtype):
        whole = series.notna() & (series == series.round())
        text = series.astype("string").where(~whole, series.where(whole, 0).astype("int64").astype("string"))
    else:
        text = series.astype("string")
    empty = (text.isna() | (text == "")).to_numpy(dtype=bool)
    if empty.any():
        rows = (np.flatnonzero(empty) + 1).tolist()
        raise UserError(
            f"{len(rows)} {what} without an id",
            where=f"{where}, rows {name_rows(rows)}" if where else f"rows {name_rows(rows)}",
            fix="Fill the ids in, or take the rows out: predictions are joined by id, never by position.",
        )
    return text.to_numpy(dtype=object)


def _refuse_duplicates(ids: npt.NDArray[np.object_], *, what: str, where: str, fix: str) -> None:
    repeated = pd.Series(ids).duplicated(keep=False).to_numpy()
    if not repeated.any():
        return
    first = ids[int(np.flatnonzero(repeated)[0])]
    rows = (np.flatnonzero(ids == first) + 1).tolist()
    several = len(set(ids[repeated]))
    more = f"; {several} ids are repeated in all" if several > 1 else ""
    raise UserError(
        f"the {what} id '{first}' stands in rows {name_rows(rows)}{more}", where=where or None, fix=fix
    )


def _normalised(
    ids: npt.NDArray[np.object_], rules: Sequence[str], *, what: str, where: str
) -> npt.NDArray[np.object_]:
    out = np.array([normalise_id(text, rules) for text in ids], dtype=object)
    repeated = pd.Series(out).duplicated(keep=False).to_numpy()
    if repeated.any():
        clash = out[int(np.flatnonzero(repeated)[0])]
        same = [f"'{text}'" for text in ids[out == clash]]
        raise UserError(
            f"--normalise-ids {','.join(rules)} makes the {what} ids {name_rows(same)} the same ('{clash}')",
            where=where or None,
            fix="Leave that normalisation out, or mend the ids in the file: two cases must not become one.",
        )
    return out


def _pairs(
    lost: npt.NDArray[np.object_], extra: npt.NDArray[np.object_], rules: Sequence[str]
) -> list[tuple[str, str]]:
    """Lost cases with exactly one extra id that the rules make equal; an ambiguous one is no match."""
    theirs: dict[str, str | None] = {}
    for text in extra:
        key = normalise_id(text, rules)
        theirs[key] = None if key in theirs else text
    found = ((text, theirs.get(normalise_id(text, rules))) for text in lost)
    return [(text, other) for text, other in found if other is not None]


def _diagnose(
    lost: npt.NDArray[np.object_], extra: npt.NDArray[np.object_], *, skip: Sequence[str]
) -> Diagnosis | None:
    """The fewest rules that bring the most of the lost cases home."""
    rules = [rule for rule in NORMALISATIONS if rule not in skip]
    if not lost.size or not extra.size or not rules:
        return None
    step = max(1, lost.size // 50_000)
    sample = lost[::step]
    best: Diagnosis | None = None
    if not any(_pairs(sample, extra, some) for some in (rules, [r for r in rules if r != "paths"])):
        return None
    for size in range(1, len(rules) + 1):
        for chosen in combinations(rules, size):
            pairs = _pairs(sample, extra, chosen)
            if pairs and (best is None or len(pairs) * step > best.count):
                best = Diagnosis(rules=chosen, count=min(len(pairs) * step, lost.size), example=pairs[0])
        if best is not None and best.count >= min(lost.size, extra.size):
            break
    return best


def join_by_id(
    cohort_ids: Any,
    prediction_ids: Any,
    *,
    normalise: Sequence[str] = (),
    source: str = "",
    what: str = "prediction",
    duplicates_fix: str | None = None,
) -> Join:
    """Join predictions to the cohort by exactly equal ids (or by what `normalise` declares equal).

    `flow` and `warnings` go into the report, so they carry no id; errors, which stay on the screen, do.
    Raises `UserError` for an empty id, a repeated id, a normalisation that makes two ids one, and when
    nothing matches at all: that is a wrong file or wrong column, not a model that failed on everyone.
    """
    rules = check_normalisations(normalise)
    ours_raw = as_ids(cohort_ids, what="cohort rows", where="the cohort")
    theirs_raw = as_ids(prediction_ids, what=f"{what} rows", where=source)
    _refuse_duplicates(
        ours_raw, what="cohort", where="the cohort", fix="A case is one row of the cohort: mend the ids."
    )
    _refuse_duplicates(
        theirs_raw,
        what=what,
        where=source,
        fix=duplicates_fix
        or "Keep one row per case. Where rows are views of one exam, say `--unit exam --combine max`.",
    )
    ours, theirs = ours_raw, theirs_raw
    if rules:
        ours = _normalised(ours_raw, rules, what="cohort", where="the cohort")
        theirs = _normalised(theirs_raw, rules, what=what, where=source)

    row_of_case = pd.Index(theirs).get_indexer(pd.Index(ours)).astype(np.int64)
    used = np.zeros(theirs.size, dtype=bool)
    used[row_of_case[row_of_case >= 0]] = True
    extra_rows = np.flatnonzero(~used).astype(np.int64)
    lost = np.flatnonzero(row_of_case < 0)
    diagnosis = _diagnose(ours_raw[lost], theirs_raw[extra_rows], skip=rules)

    if theirs.size and ours.size and not used.any():
        hint = (
            f"{diagnosis.sentence()}: if they are the same cases, say {diagnosis.option()}."
            if diagnosis
            else "Check that the files are of this cohort, and named by case id."
            if what == "mask"
            else "Check that the file is of this cohort. Name the id column with `--map case_id=COLUMN`."
        )
        raise UserError(
            f"not one of {theirs.size} {what} ids is in the cohort of {ours.size} cases "
            f"(predictions: {_examples(theirs_raw)}; cohort: {_examples(ours_raw)})",
            where=source or None,
            fix=hint,
        )

    warnings: list[str] = []
    if diagnosis is not None:
        warnings.append(
            f"{lost.size} cohort cases have no {what}, {extra_rows.size} {what} ids are not in the cohort; "
            f"{diagnosis.sentence(masked=True)}. If they are the same cases, say {diagnosis.option()}."
        )
    elif extra_rows.size:
        warnings.append(f"{extra_rows.size} {what} ids are not in the cohort and were not used.")
    matched = int(used.sum())
    by = f" (ignoring {', '.join(_MEANING[rule] for rule in rules)})" if rules else ""
    flow = (
        {
            "step": f"{what} ids in the file",
            "n": int(theirs.size),
            "lost": 0,
            "why": "",
            "of": "predictions",
        },
        {
            "step": f"{what} ids found in the cohort{by}",
            "n": matched,
            "lost": int(extra_rows.size),
            "why": "the id is not in the cohort" if extra_rows.size else "",
            "of": "predictions",
        },
        {"step": "cohort cases", "n": int(ours.size), "lost": 0, "why": "", "of": "cohort"},
        {
            "step": f"cohort cases with a {what}",
            "n": matched,
            "lost": int(lost.size),
            "why": "no row in the prediction file" if lost.size else "",
            "of": "cohort",
        },
    )
    return Join(
        row_of_case=row_of_case,
        extra=tuple(str(text) for text in theirs_raw[extra_rows]),
        extra_rows=extra_rows,
        flow=flow,
        warnings=tuple(warnings),
        diagnosis=diagnosis,
    )


def _examples(ids: npt.NDArray[np.object_], *, limit: int = 3) -> str:
    return name_rows([f"'{text}'" for text in ids], limit=limit)
