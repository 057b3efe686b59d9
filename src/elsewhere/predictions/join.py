"""Predictions meet the cohort by id alone: exactly equal, or not at all.

Ids that only look alike (leading zeros that a spreadsheet ate, letter case, blanks, file names) are diagnosed
and offered as `--normalise-ids`. They are never joined without being asked for, because a wrong join gives a
wrong number that looks right. Every row that is lost is listed in `flow`.
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
    """The compatibility form that Unicode calls NFKC, without invisible marks and control characters."""
    if text.isascii() and text.isprintable():
        return text
    seen = "".join(c for c in unicodedata.normalize("NFKC", text) if not _is_invisible(c))
    return unicodedata.normalize("NFKC", seen)  # what a mark without width separated may be one character now


def _is_invisible(character: str) -> bool:
    """Whether it is a control character or a mark without width (direction, joiner, soft hyphen)."""
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
    """How predictions meet the cohort, and what is lost on either side.

    Args:
        row_of_case: (cases,) the row of the prediction file for each case of the cohort; -1: it has none.
        extra: The prediction ids that the cohort does not have.
        extra_rows: Their rows.
        flow: An account of every row: two steps about the predictions, then two about the cohort.
        warnings: Sentences for the report, without ids.
        diagnosis: What would have joined, and by which normalisation; None: nothing would have.

    Example:
        >>> joined = join_by_id(["a", "b"], ["b", "x"])
        >>> joined.row_of_case.tolist(), joined.extra, joined.n_missing
        ([-1, 0], ('x',), 1)
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
        """How many cases of the cohort have a prediction row."""
        return int((self.row_of_case >= 0).sum())

    @property
    def n_missing(self) -> int:
        """How many cases of the cohort have none."""
        return int((self.row_of_case < 0).sum())


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Ids that differ and would be equal after normalisation.

    Args:
        rules: The names of the rules, as `--normalise-ids` takes them.
        count: How many cases would have joined.
        example: One pair: the cohort's id and the prediction's.
    """

    rules: tuple[str, ...]
    count: int
    example: tuple[str, str]

    def sentence(self, *, masked: bool = False) -> str:
        """Describe the diagnosis in a sentence.

        Args:
            masked: Whether the pair is shown by its shape alone, since a report names no patient.

        Returns:
            The sentence without its full stop.

        Example:
            >>> Diagnosis(rules=("case",), count=3, example=("P1", "p1")).sentence()
            "3 would match if letter case were ignored (like 'P1' in the cohort and 'p1' in the predictions)"
        """
        what = " and ".join(_MEANING[rule] for rule in self.rules)
        ours, theirs = (shape_of(text) if masked else text for text in self.example)
        pair = f"like '{ours}' in the cohort and '{theirs}' in the predictions"
        which = f"; {self.characters()}" if "unicode" in self.rules else ""
        return f"{self.count} would match if {what} were ignored ({pair}{which})"

    def characters(self) -> str:
        """Name the characters of the pair that cannot be seen, by their Unicode names.

        Returns:
            A clause; empty where there are none.
        """
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
        """Write the option that would join these ids.

        Returns:
            Such as `--normalise-ids zeros`.
        """
        return f"--normalise-ids {','.join(self.rules)}"


def shape_of(text: str) -> str:
    """Show the shape of an id without its content: digits become 9 (leading zeros stay), letters A or a.

    Args:
        text: The id.

    Returns:
        Its shape.

    Example:
        >>> shape_of("Pat-0071")
        'Aaa-0099'
    """
    shaped = re.sub(r"[1-9]|(?<=[0-9])0(?![0-9]*[1-9])|(?<=[1-9])0", "9", text)
    return "".join("A" if c.isupper() else "a" if c.isalpha() else c for c in shaped)


def check_normalisations(names: Iterable[str]) -> tuple[str, ...]:
    """Sort rules of `--normalise-ids` into the order in which they are applied.

    Args:
        names: The names of the rules; blank ones are ignored.

    Returns:
        The rules in their fixed order: unicode, blanks, case, paths, zeros.

    Raises:
        UserError: A name is unknown; the message offers similar ones.

    Example:
        >>> check_normalisations(["zeros", "case"])
        ('case', 'zeros')
    """
    asked = [name.strip() for name in names if name.strip()]
    for name in asked:
        if name not in _RULES:
            raise unknown_name("id normalisation", name, NORMALISATIONS)
    return tuple(rule for rule in _RULES if rule in asked)


def normalise_id(text: str, rules: Sequence[str]) -> str:
    """Apply rules to an id, in the order unicode, blanks, case, paths, zeros.

    Args:
        text: The id.
        rules: The names of the rules, in any order.

    Returns:
        The normalised id.

    Example:
        >>> normalise_id("Images/P-007.png", ["paths", "case", "zeros"])
        'p-7'
    """
    for rule in _RULES:
        if rule in rules:
            text = _RULES[rule](text)
    return text


def as_ids(values: Any, *, what: str, where: str) -> npt.NDArray[np.object_]:
    """Turn ids into text; whole numbers lose their decimal point.

    Args:
        values: The ids, as a series, an array or a list.
        what: What the rows are called, for the message.
        where: The file, for the message.

    Returns:
        (n,) the ids.

    Raises:
        UserError: An id is empty; the message names the rows, of which row 1 is the first row of data.

    Example:
        >>> as_ids([7.0, 8.0], what="rows", where="x.csv").tolist()
        ['7', '8']
    """
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
        f"the {what} id '{first}' is in rows {name_rows(rows)}{more}", where=where or None, fix=fix
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
            fix="Leave that normalisation out, or correct the ids in the file: two cases must not become one.",
        )
    return out


def _pairs(
    lost: npt.NDArray[np.object_], extra: npt.NDArray[np.object_], rules: Sequence[str]
) -> list[tuple[str, str]]:
    """Pair lost cases with the only extra id that the rules make equal; an ambiguous id is no match."""
    theirs: dict[str, str | None] = {}
    for text in extra:
        key = normalise_id(text, rules)
        theirs[key] = None if key in theirs else text
    found = ((text, theirs.get(normalise_id(text, rules))) for text in lost)
    return [(text, other) for text, other in found if other is not None]


def _diagnose(
    lost: npt.NDArray[np.object_], extra: npt.NDArray[np.object_], *, skip: Sequence[str]
) -> Diagnosis | None:
    """The fewest rules by which most of the lost cases would join."""
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

    Args:
        cohort_ids: The id of each case of the cohort.
        prediction_ids: The id of each row of the prediction file.
        normalise: Rules of `--normalise-ids` that the user declared.
        source: The prediction file, for messages.
        what: What a row is called in messages, such as 'prediction' or 'mask'.
        duplicates_fix: What to do about repeated ids; None: the advice for a table of scores.

    Returns:
        Which row belongs to which case, and what is left over.

    Raises:
        UserError: An id is empty or repeated, a normalisation makes two ids one, or nothing matches at all:
            that is a wrong file or wrong column, not a model that failed on everyone.

    Example:
        >>> join_by_id(["P-1", "P-2"], ["p-2", "p-1"], normalise=["case"]).row_of_case.tolist()
        [1, 0]
    """
    rules = check_normalisations(normalise)
    ours_raw = as_ids(cohort_ids, what="cohort rows", where="the cohort")
    theirs_raw = as_ids(prediction_ids, what=f"{what} rows", where=source)
    _refuse_duplicates(
        ours_raw, what="cohort", where="the cohort", fix="A case is one row of the cohort: correct the ids."
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
