"""The truth column as classes (US-01). A cell that is no class is left out and counted, never guessed."""

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
    """The truth of each case, read from one column.

    Args:
        label: 0 or 1 for each case, -1 where the case has no class.
        normal: True for the cases without a lesion.
        others: Cells that are neither a class nor normal, and how often each occurs; '' is an empty cell.
    """

    label: npt.NDArray[np.int8]
    normal: npt.NDArray[np.bool_]
    others: dict[str, int]

    @property
    def n_others(self) -> int:
        """How many cells are neither a class nor normal."""
        return sum(self.others.values())

    def others_text(self) -> str:
        """List these cells for a message, at most five of them.

        Returns:
            Text such as "'cyst' (3), empty (1)".
        """
        shown = [f"{'empty' if word == '' else repr(word)} ({count})" for word, count in self.others.items()]
        return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")


def read_truth(
    cases: pd.DataFrame,
    column: str,
    *,
    words: Mapping[str, int] = LESION_WORDS,
    normal_words: frozenset[str] = NORMAL_WORDS,
) -> Truth:
    """Read the truth of each case from a column.

    Words are compared without regard to case and blanks; numbers may be 0, 1, 0.0 or 1.0.

    Args:
        cases: The cases of the cohort.
        column: The name of the column.
        words: The class, 0 or 1, of each word in lower case.
        normal_words: Words in lower case for a case without a lesion.

    Returns:
        The truth.

    Raises:
        UserError: The cohort has no such column.

    Example:
        >>> cases = pd.DataFrame({"label": ["Benign", "malignant", "normal", "cyst"]})
        >>> read_truth(cases, "label").label.tolist()
        [0, 1, -1, -1]
    """
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

    Args:
        label: The class of each case: 0, 1, or -1 without a class.
        column: The name of the column, for the message.
        names: The names of class 0 and class 1, for the message.
        truth: What was read from the column.

    Returns:
        One warning, or none.

    Raises:
        UserError: No case has a class.
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
