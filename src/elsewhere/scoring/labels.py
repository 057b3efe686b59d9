"""The truth column as classes (US-01). What is no class is left out and counted, never guessed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, near_matches

LESION_WORDS: Mapping[str, int] = {"benign": 0, "malignant": 1, "0": 0, "1": 1, "false": 0, "true": 1}
NORMAL_WORDS = frozenset({"normal"})
OUTCOME_WORDS: Mapping[str, int] = {
    "0": 0,
    "1": 1,
    "no": 0,
    "yes": 1,
    "false": 0,
    "true": 1,
    "non-pcr": 0,
    "pcr": 1,
}


@dataclass(frozen=True, kw_only=True)
class Truth:
    """`label[i]` is 0 or 1, -1 where the case has no class; `normal` marks the cases without a lesion."""

    label: npt.NDArray[np.int8]
    normal: npt.NDArray[np.bool_]
    others: dict[str, int]
    """What the cells said that are neither a class nor normal, and how often; '' is an empty cell."""

    @property
    def n_others(self) -> int:
        return sum(self.others.values())

    def others_text(self) -> str:
        shown = [f"{'empty' if word == '' else repr(word)} ({count})" for word, count in self.others.items()]
        return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")


def read_truth(
    cases: pd.DataFrame,
    column: str,
    *,
    words: Mapping[str, int] = LESION_WORDS,
    normal_words: frozenset[str] = NORMAL_WORDS,
) -> Truth:
    """Words are compared without regard to case and blanks; numbers may be 0, 1, 0.0 or 1.0."""
    if column not in cases.columns:
        near = near_matches(column, [str(name) for name in cases.columns])
        raise UserError(
            f"the cohort has no column '{column}', which holds the truth",
            where="the cohort",
            fix=(f"Did you mean {' or '.join(near)}? " if near else "")
            + f"Rename it to '{column}' (`elsewhere cohort read csv TABLE --map {column}=COLUMN --out DIR`).",
        )
    cells = cases[column]
    if pd.api.types.is_float_dtype(cells.dtype) or pd.api.types.is_integer_dtype(cells.dtype):
        text = cells.astype("Float64").astype("string")
    else:
        text = cells.astype("string")
    text = text.str.strip().str.casefold().fillna("").str.replace(r"^(-?\d+)\.0+$", r"\1", regex=True)
    codes, uniques = pd.factorize(text)
    code_of = np.array([words.get(str(word), -1) for word in uniques], dtype=np.int8)
    normal_of = np.array([str(word) in normal_words for word in uniques], dtype=bool)
    label = code_of[codes] if len(uniques) else np.zeros(0, dtype=np.int8)
    normal = normal_of[codes] if len(uniques) else np.zeros(0, dtype=bool)
    strange = text[(label < 0) & ~normal]
    others = Counter(strange.tolist())
    return Truth(label=label, normal=normal, others=dict(others.most_common()))


def need_truth(
    label: npt.NDArray[np.int8], *, column: str, names: tuple[str, str], truth: Truth
) -> tuple[str, ...]:
    """Refuse a column without any truth; return a warning where all cases are of one class.

    One class is no mistake of the user: a screening month may have no cancer. What needs both classes is then
    undefined, with the reason, and everything else is computed.
    """
    known = label[label >= 0]
    said = truth.others_text() if truth.others else ""
    if known.size == 0:
        raise UserError(
            f"no case has a truth in the column '{column}'",
            where="the cohort",
            fix=f"Write {names[0]} or {names[1]} (0 or 1)." + (f" It says: {said}." if said else ""),
        )
    for value in (0, 1):
        if not (known == value).any():
            left_out = f" Left out of the column '{column}': {said}." if said else ""
            return (
                f"All {known.size} cases are {names[1 - value]}; there is no {names[value]} case, so that "
                f"metrics that need both classes are undefined.{left_out}",
            )
    return ()
