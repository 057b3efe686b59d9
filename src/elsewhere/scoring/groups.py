"""From an attribute of the cohort to groups: the one place where ages, menopausal states and densities
become codes (MRI-06, ST-08).

What is missing, or left out by the protocol, has code -1: it is counted and may be shown as a row of its
own, but never enters a range. Nothing is guessed: a spelling that is not known is missing, and the note
names it. Notes and warnings reach reports that are shared, so they tell no count of one to four.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows, near_matches
from elsewhere.protocols import FairnessRules

CodeArray = npt.NDArray[np.int16]

MISSING_WORDS = frozenset(
    {"", "na", "n/a", "nan", "none", "null", "nil", "unknown", "unk", "not available", "not known", "missing"}
    | {"not reported", "not recorded", "?", "-", "--", ".", "<na>"}
)
MOST_CATEGORIES = 10
SMALLEST_TOLD = 5
"""As `report.privacy.SMALLEST_CELL`: fewer may be recognised."""
MOST_GROUPS = 60
_DENSITY_WORDS = {
    "fatty": "A",
    "fat": "A",
    "scattered": "B",
    "heterogeneous": "C",
    "heterogeneously": "C",
} | {
    "extremely": "D",
    "extreme": "D",
}
_DENSITY_MARKS = {"1": "A", "2": "B", "3": "C", "4": "D", "i": "A", "ii": "B", "iii": "C", "iv": "D"} | {
    letter: letter.upper() for letter in "abcd"
}
_DENSITY_PREFIX = re.compile(
    r"^(acr|bi-?\s?rads|breast|density|dens|composition|category|cat|type|class|grade|[\s:._#=-])+"
)


@dataclass(frozen=True)
class GroupCodes:
    """`codes[i]` is the group of case i, an index into `names`; -1 is missing or left out.

    `missing` counts the cases with -1; `note` says what was left out and why.
    """

    variable: str
    names: tuple[str, ...]
    codes: CodeArray
    missing: int
    note: str = ""

    @property
    def n_groups(self) -> int:
        return len(self.names)

    def sizes(self) -> dict[str, int]:
        """Cases in each group, empty groups included."""
        known = self.codes[self.codes >= 0]
        counts = np.bincount(known, minlength=self.n_groups)
        return {name: int(count) for name, count in zip(self.names, counts, strict=True)}

    def take(self, cases: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> GroupCodes:
        """The same groups over some of the cases."""
        codes = self.codes[cases]
        return GroupCodes(self.variable, self.names, codes, int((codes < 0).sum()), self.note)


def _make(variable: str, names: Sequence[str], codes: npt.ArrayLike, notes: Sequence[str]) -> GroupCodes:
    array = np.asarray(codes, dtype=np.int16)
    return GroupCodes(variable, tuple(names), array, int((array < 0).sum()), " ".join(n for n in notes if n))


def told(count: int) -> str:
    """A count of cases as a report may say it."""
    return f"fewer than {SMALLEST_TOLD}" if 0 < count < SMALLEST_TOLD else str(count)


def _told_sizes(sizes: Mapping[str, int]) -> str:
    """Every group with its size; where one alone is small the next is said roughly, or it would be the rest."""
    words = {name: told(count) for name, count in sizes.items()}
    small = [name for name, count in sizes.items() if 0 < count < SMALLEST_TOLD]
    large = {name: count for name, count in sizes.items() if count >= SMALLEST_TOLD}
    if len(small) == 1 and large:
        nearest = min(large, key=lambda name: large[name])
        words[nearest] = f"about {10 * max(1, round(large[nearest] / 10))}"
    return ", ".join(f"{name} {word}" for name, word in words.items())


def _words(values: pd.Series) -> list[str | None]:
    """Cells as stripped, lower-case words with single blanks; None where missing."""
    out: list[str | None] = []
    for cell in values.astype("string").array:
        word = None if cell is pd.NA else " ".join(str(cell).split()).casefold()
        out.append(None if word is None or word in MISSING_WORDS else word)
    return out


def _strange_note(variable: str, strange: Sequence[str]) -> str:
    if not strange:
        return ""
    kinds = list(dict.fromkeys(strange))
    return f"{told(len(strange))} cells of {variable} are not understood and count as missing: {name_rows(kinds)}."


def _numbers(values: pd.Series) -> tuple[npt.NDArray[np.float64], list[str]]:
    """The column as numbers (NaN where missing), and the cells that are neither numbers nor missing."""
    numbers = np.array(pd.to_numeric(values, errors="coerce"), dtype=np.float64)
    numbers[np.isinf(numbers)] = np.nan
    if pd.api.types.is_numeric_dtype(values):
        return numbers, []
    strange = [w for w, v in zip(_words(values), numbers, strict=True) if w is not None and np.isnan(v)]
    return numbers, strange


def _number_texts(values: Sequence[float]) -> list[str]:
    """With six digits, or as many as it takes to tell them apart: two groups of one name would be one."""
    texts: list[str] = []
    for digits in range(6, 18):
        texts = [f"{value:.{digits}g}" for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def _bin_names(edges: Sequence[float], lowest: float | None, highest: float | None) -> list[str]:
    if not edges:
        return ["all"]
    ends = [end for end in (lowest, highest) if end is not None]
    texts = _number_texts([*edges, *ends])
    inner, outer = texts[: len(edges)], iter(texts[len(edges) :])
    low = f"<={inner[0]}" if lowest is None else f"({next(outer)}, {inner[0]}]"
    high = f">{inner[-1]}" if highest is None else f"({inner[-1]}, {next(outer)}]"
    return [low, *(f"({a}, {b}]" for a, b in pairwise(inner)), high]


def binned_groups(
    values: pd.Series,
    upper_edges: Sequence[float],
    *,
    variable: str,
    lowest: float | None = None,
    highest: float | None = None,
) -> GroupCodes:
    """Half-open bins (lower, upper]; beyond `lowest` (exclusive) or `highest` a value is left out."""
    edges = [float(e) for e in upper_edges]
    if any(b <= a for a, b in pairwise(edges)):
        raise UserError(
            f"the bin edges of {variable} do not rise: {edges}", fix="List them from low to high."
        )
    numbers, strange = _numbers(values)
    codes = np.searchsorted(np.asarray(edges), numbers, side="left").astype(np.int16)
    codes[np.isnan(numbers)] = -1
    outside = np.zeros(numbers.size, dtype=bool)
    if lowest is not None:
        outside |= numbers <= lowest
    if highest is not None:
        outside |= numbers > highest
    codes[outside] = -1
    note = (
        f"{told(int(outside.sum()))} values outside the protocol's bins are left out."
        if outside.any()
        else ""
    )
    names = _bin_names(edges, lowest, highest)
    return _make(variable, names, codes, [note, _strange_note(variable, strange)])


def age_groups(values: pd.Series, rules: FairnessRules, *, variable: str = "age") -> GroupCodes:
    """MRI-06: (..40], (40,50], (50,60], (60,70], (70..); closed outside by protocols that drop the rest."""
    return binned_groups(
        values, rules.age_upper_edges, variable=variable, lowest=rules.age_lowest, highest=rules.age_highest
    )


def menopausal_groups(
    values: pd.Series, rules: FairnessRules, *, variable: str = "menopausal_status"
) -> GroupCodes:
    """pre, post (and peri, unknown where the protocol has them as groups), from any spelling that begins so.

    The MAMA-MIA table writes 'pre (<6 months since LMP ...)', 'peri (6-12 months ...)': what counts is how
    the cell begins.
    """
    names = ["pre", "post"]
    if rules.peri_counts_as == "own-group":
        names.append("peri")
    if rules.unknown_menopausal == "own-group":
        names.append("unknown")
    unknown = names.index("unknown") if "unknown" in names else -1
    peri = names.index("peri") if "peri" in names else 0
    begins = {"pre": 0, "post": 1, "peri": peri}
    codes, strange = [], []
    peris = 0
    for word in _words(values):
        found = next(
            (code for start, code in begins.items() if word is not None and word.startswith(start)), None
        )
        if word is not None and found is None:
            strange.append(word)
        peris += word is not None and word.startswith("peri")
        codes.append(unknown if found is None else found)
    notes = []
    if peris and peri == 0:
        notes.append(f"{told(peris)} perimenopausal cases count as pre.")
    n_unknown = sum(code == -1 for code in codes)
    if n_unknown:
        notes.append(f"{told(n_unknown)} cases of unknown status are left out.")
    return _make(variable, names, codes, [*notes, _strange_note(variable, strange)])


def density_groups(values: pd.Series, *, variable: str = "breast_density") -> GroupCodes:
    """BI-RADS composition A to D from letters, 1-4, I-IV, or the words of the lexicon, in any case."""
    codes, strange = [], []
    numbered = 0
    for word in _words(values):
        letter = None
        if word is not None:
            rest = re.sub(r"\.0+$", "", _DENSITY_PREFIX.sub("", word).strip(" ()[]"))
            first = re.split(r"[\s,;:()/-]+", rest, maxsplit=1)[0]
            letter = _DENSITY_MARKS.get(first)
            numbered += letter is not None and not first.isalpha()
            if letter is None:
                hits = {_DENSITY_WORDS[w] for w in re.split(r"[^a-z]+", word) if w in _DENSITY_WORDS}
                letter = hits.pop() if len(hits) == 1 else None
            if letter is None:
                strange.append(word)
        codes.append(-1 if letter is None else "ABCD".index(letter))
    notes = [f"{told(numbered)} densities given as 1 to 4 are read as A to D." if numbered else ""]
    return _make(variable, list("ABCD"), codes, [*notes, _strange_note(variable, strange)])


def attribute_groups(
    values: pd.Series, *, variable: str, upper_edges: Sequence[float] | None = None, quantile_bins: int = 4
) -> GroupCodes:
    """Any attribute (ST-08): categories as they are; numbers in given bins, or in quantile bins.

    Bins are half-open, (lower, upper]. A numeric column of at most ten distinct values is taken as
    categories: a field strength or a count.
    """
    numbers, strange = _numbers(values)
    booleans = all(isinstance(cell, bool | np.bool_) for cell in values.dropna().array)
    numeric = not strange and bool(np.isfinite(numbers).any()) and not booleans
    if upper_edges is not None:
        return binned_groups(values, upper_edges, variable=variable)
    if numeric:
        known = numbers[np.isfinite(numbers)]
        distinct = np.unique(known)
        if distinct.size > MOST_CATEGORIES:
            quantiles = np.quantile(known, np.arange(1, quantile_bins) / quantile_bins)
            edges = [float(e) for e in np.unique(quantiles) if e < distinct[-1]]
            coded = binned_groups(values, edges, variable=variable)
            note = f"Numeric: {coded.n_groups} quantile bins of this cohort, each (lower, upper]."
            return GroupCodes(
                variable, coded.names, coded.codes, coded.missing, f"{note} {coded.note}".strip()
            )
        codes = np.where(np.isfinite(numbers), np.searchsorted(distinct, numbers), -1)
        return _make(variable, _number_texts(distinct.tolist()), codes, [])
    cells = [
        " ".join(str(c).split()) if w is not None else None
        for c, w in zip(values.array, _words(values), strict=True)
    ]
    names = sorted({cell for cell in cells if cell is not None})
    if len(names) > MOST_GROUPS:
        raise UserError(
            f"'{variable}' has {len(names)} different values: too many to be groups",
            fix="Group by a column with fewer categories, or by a numeric one, which is cut into bins.",
        )
    place = {name: i for i, name in enumerate(names)}
    return _make(variable, names, [-1 if cell is None else place[cell] for cell in cells], [])


def group_codes(
    table: pd.DataFrame,
    variable: str,
    rules: FairnessRules | None = None,
    *,
    upper_edges: Sequence[float] | None = None,
) -> GroupCodes:
    """The groups of one column of the cohort (or scores) table, by the protocol's rules where it has any."""
    if variable not in table.columns:
        near = near_matches(variable, [str(c) for c in table.columns])
        raise UserError(
            f"there is no column '{variable}' to group by",
            fix=f"Did you mean {' or '.join(near)}?"
            if near
            else f"Columns: {', '.join(map(str, table.columns))}.",
        )
    rules = rules or FairnessRules()
    values = table[variable].reset_index(drop=True)
    if upper_edges is None and variable == "age":
        return age_groups(values, rules)
    if upper_edges is None and variable == "menopausal_status":
        return menopausal_groups(values, rules)
    if upper_edges is None and variable == "breast_density":
        return density_groups(values)
    return attribute_groups(values, variable=variable, upper_edges=upper_edges)


def fairness_codes(
    table: pd.DataFrame, rules: FairnessRules
) -> tuple[tuple[GroupCodes, ...], tuple[str, ...]]:
    """The codes of the protocol's variables that the table has, and a warning for each it has not.

    A variable whose cells are all missing is kept: its disparity is undefined, and the warning says so. One that
    is known for fewer than half of the cases is scored as the rules say, and the warning says on whom it rests. So is
    a group of a few, whose rate is 0 or 1 by the luck of one case.
    """
    found, warnings = [], []
    for variable in rules.variables:
        if variable not in table.columns:
            warnings.append(f"The cohort has no column '{variable}': the fairness score leaves it out.")
            continue
        coded = group_codes(table, variable, rules)
        if coded.missing == coded.codes.size:
            warnings.append(
                f"'{variable}' is empty or not understood in every case: its disparity is undefined."
            )
        elif coded.missing * 2 > coded.codes.size:
            warnings.append(
                f"'{variable}' is known for {told(coded.codes.size - coded.missing)} of {coded.codes.size} cases "
                f"({_told_sizes(coded.sizes())}): fairness over it cannot be estimated for this cohort, and the fairness score rests on "
                "those few."
            )
        found.append(coded)
    small = [
        f"{coded.variable} {name}"
        for coded in found
        for name, count in coded.sizes().items()
        if 0 < count < SMALLEST_TOLD
    ]
    if small:
        warnings.append(
            f"Fewer than {SMALLEST_TOLD} cases in a group ({', '.join(small)}): the fairness score counts such a "
            "group like any other."
        )
    return tuple(found), tuple(warnings)
