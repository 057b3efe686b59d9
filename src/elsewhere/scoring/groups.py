"""Groups of cases from an attribute of the cohort: ages, menopausal states, densities and others as codes.

This is the only place where they become codes (MRI-06, ST-08). What is missing, or left out by the protocol,
has code -1: it is counted and may be shown as a row of its own, but never enters a range. Nothing is guessed:
a spelling that is not known is missing, and the note names it. Notes and warnings are part of reports that
are shared, so they give no count of one to four.
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
"""Equal to `elsewhere.privacy.SMALLEST_CELL`: fewer people could be recognised."""
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
    """The group of each case by one variable; code -1 is missing or left out.

    Args:
        variable: The name of the variable.
        names: The names of the groups.
        codes: The group of each case, as an index into `names`.
        missing: How many cases have code -1.
        note: What was left out and why, as sentences; empty where nothing was.
    """

    variable: str
    names: tuple[str, ...]
    codes: CodeArray
    missing: int
    note: str = ""

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        return len(self.names)

    def sizes(self) -> dict[str, int]:
        """Count the cases in each group, empty groups included.

        Returns:
            The number of cases by the name of the group.
        """
        known = self.codes[self.codes >= 0]
        counts = np.bincount(known, minlength=self.n_groups)
        return {name: int(count) for name, count in zip(self.names, counts, strict=True)}

    def take(self, cases: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> GroupCodes:
        """Take some of the cases.

        Args:
            cases: Numbers of cases, or True for each case to keep.

        Returns:
            The same groups over these cases.
        """
        codes = self.codes[cases]
        return GroupCodes(self.variable, self.names, codes, int((codes < 0).sum()), self.note)


def _make(variable: str, names: Sequence[str], codes: npt.ArrayLike, notes: Sequence[str]) -> GroupCodes:
    array = np.asarray(codes, dtype=np.int16)
    return GroupCodes(variable, tuple(names), array, int((array < 0).sum()), " ".join(n for n in notes if n))


def told(count: int) -> str:
    """Write a count of cases as a report may show it.

    Args:
        count: The number of cases.

    Returns:
        The number, or 'fewer than 5' for one to four.

    Example:
        >>> told(3), told(0), told(12)
        ('fewer than 5', '0', '12')
    """
    return f"fewer than {SMALLEST_TOLD}" if 0 < count < SMALLEST_TOLD else str(count)


def _told_sizes(sizes: Mapping[str, int]) -> str:
    """Write every group with its size; where only one is small, the next is rounded.

    Otherwise the small one would be the total less the others.
    """
    words = {name: told(count) for name, count in sizes.items()}
    small = [name for name, count in sizes.items() if 0 < count < SMALLEST_TOLD]
    large = {name: count for name, count in sizes.items() if count >= SMALLEST_TOLD}
    if len(small) == 1 and large:
        nearest = min(large, key=lambda name: large[name])
        words[nearest] = f"about {10 * max(1, round(large[nearest] / 10))}"
    return ", ".join(f"{name} {word}" for name, word in words.items())


def _words(values: pd.Series) -> list[str | None]:
    """Return cells as stripped, lower-case words with single blanks; None where missing."""
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
    """Return the column as numbers (NaN where missing), and cells that are neither numbers nor missing."""
    numbers = np.array(pd.to_numeric(values, errors="coerce"), dtype=np.float64)
    numbers[np.isinf(numbers)] = np.nan
    if pd.api.types.is_numeric_dtype(values):
        return numbers, []
    strange = [w for w, v in zip(_words(values), numbers, strict=True) if w is not None and np.isnan(v)]
    return numbers, strange


def _number_texts(values: Sequence[float]) -> list[str]:
    """Write numbers with six digits, or as many as it takes to keep them distinct.

    Two groups of one name would be one group.
    """
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
    """Divide numbers into half-open bins (lower, upper].

    Args:
        values: The variable, one value per case.
        upper_edges: The upper edges of all bins but the last, rising.
        variable: The name of the variable.
        lowest: Values at or below it are left out; None leaves none out.
        highest: Values above it are left out; None leaves none out.

    Returns:
        The bin of each case.

    Raises:
        UserError: The edges do not rise.

    Example:
        >>> made = binned_groups(pd.Series([35, 40, 62, None]), [40, 60], variable="age")
        >>> made.names, made.codes.tolist()
        (('<=40', '(40, 60]', '>60'), [0, 0, 2, -1])
    """
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
    """Divide ages into the groups of the protocol (MRI-06).

    By default (..40], (40,50], (50,60], (60,70] and (70..); protocols that leave the rest out close the outer
    bins.

    Args:
        values: Ages in years, one per case.
        rules: The protocol's rules: the edges, and the lowest and highest age.
        variable: The name of the variable.

    Returns:
        The age group of each case.

    Example:
        >>> age_groups(pd.Series([35, 71]), FairnessRules()).sizes()
        {'<=40': 1, '(40, 50]': 0, '(50, 60]': 0, '(60, 70]': 0, '>70': 1}
    """
    return binned_groups(
        values, rules.age_upper_edges, variable=variable, lowest=rules.age_lowest, highest=rules.age_highest
    )


def menopausal_groups(
    values: pd.Series, rules: FairnessRules, *, variable: str = "menopausal_status"
) -> GroupCodes:
    """Divide cases into pre and post, and into peri and unknown where the protocol has them as groups.

    The MAMA-MIA table writes 'pre (<6 months since LMP ...)', 'peri (6-12 months ...)': what counts is how
    the cell begins.

    Args:
        values: Menopausal status, one text per case.
        rules: The protocol's rules for perimenopausal and unknown cases.
        variable: The name of the variable.

    Returns:
        The group of each case.

    Example:
        >>> menopausal_groups(pd.Series(["Pre", "post (natural)", "peri"]), FairnessRules()).codes.tolist()
        [0, 1, 0]
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
    """Read BI-RADS composition A to D from letters, 1-4, I-IV, or the words of the lexicon, in any case.

    Args:
        values: Breast density, one value per case.
        variable: The name of the variable.

    Returns:
        The density of each case.

    Example:
        >>> density_groups(pd.Series(["B", "ACR 3", "IV", "scattered", "?"])).codes.tolist()
        [1, 2, 3, 1, -1]
    """
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
    """Divide cases by any attribute (ST-08): categories as they are, numbers in given or quantile bins.

    Bins are half-open, (lower, upper]. A numeric column of at most ten distinct values is taken as
    categories: a field strength or a count.

    Args:
        values: The attribute, one value per case.
        variable: The name of the attribute.
        upper_edges: The upper edges of all bins but the last; None for categories or quantile bins.
        quantile_bins: How many quantile bins a numeric column gets.

    Returns:
        The group of each case.

    Raises:
        UserError: There are more than 60 categories, or the edges do not rise.

    Example:
        >>> made = attribute_groups(pd.Series([1.5, 3.0, 1.5]), variable="field_strength")
        >>> made.names, made.codes.tolist()
        (('1.5', '3'), [0, 1, 0])
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
    """Divide cases by one column of the cohort (or scores) table, by the protocol's rules where it has any.

    Args:
        table: One row per case.
        variable: The name of a column; age, menopausal_status and breast_density have rules of their own.
        rules: The protocol's rules; None takes the defaults.
        upper_edges: The upper edges of bins, which replace the rules; None keeps the rules.

    Returns:
        The group of each case.

    Raises:
        UserError: There is no such column, or it has too many categories.

    Example:
        >>> group_codes(pd.DataFrame({"breast_density": ["a", "d"]}), "breast_density").sizes()
        {'A': 1, 'B': 0, 'C': 0, 'D': 1}
    """
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
    """Divide cases by each of the protocol's fairness variables that the table has.

    A variable whose cells are all missing is kept: its disparity is undefined, and a warning states this. One
    that is known for fewer than half of the cases is scored as the rules say, and a warning states on how
    many cases it rests. So does a group of fewer than five cases, whose rate is 0 or 1 by the chance of one
    case.

    Args:
        table: One row per case.
        rules: The protocol's rules.

    Returns:
        The groups by each variable, and warnings, among them one for each variable that the table lacks.
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
