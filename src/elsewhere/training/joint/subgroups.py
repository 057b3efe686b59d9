"""Subgroups whose score diverges from the mean of all cases, and case weights (MRI-15, AIH-MAMA).

After DivExplorer: a subgroup is a conjunction of attribute values (age <= 40 and centre B); all with enough
cases are searched, and the divergence of one is its mean score minus the mean of all. Missing values make no
subgroup. The subgroups of the validation part are used to weigh the training part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

AGE_EDGES = (40.0, 50.0, 60.0, 70.0)
Item = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Subgroup:
    """A conjunction of attribute values, and the score of its cases.

    Attributes:
        items: (column, value) pairs.
        cases: How many.
        mean: The mean of their scores.
        divergence: Mean of the subgroup minus the mean of all: below 0 is worse.
        t: Welch's t of the subgroup against the rest.
    """

    items: tuple[Item, ...]
    cases: int
    mean: float
    divergence: float
    t: float

    def holds(self, attributes: Mapping[str, str]) -> bool:
        """Say whether a case belongs to the subgroup.

        Args:
            attributes: The attributes of the case.

        Returns:
            True or False.
        """
        return all(attributes.get(column) == value for column, value in self.items)

    def to_dict(self) -> dict[str, Any]:
        """Return the subgroup for a report.

        Returns:
            Its attributes in words, and its numbers.
        """
        return {
            "subgroup": " and ".join(f"{column} = {value}" for column, value in self.items),
            "cases": self.cases,
            "mean": self.mean,
            "divergence": self.divergence,
            "t": self.t,
        }


def attributes_of(clinical: Mapping[str, Any], dataset: str, columns: Sequence[str]) -> dict[str, str]:
    """Return a case's attribute values as words.

    Age is one of the challenge's five groups; "dataset" is the dataset. Empty cells are left out.

    Args:
        clinical: The case's clinical columns.
        dataset: The dataset of the case.
        columns: Which columns.

    Returns:
        Column to value.

    Example:
        >>> attributes_of({"age": 47.0, "subtype": None}, "DUKE", ["age", "subtype", "dataset"])
        {'age': 'group 1', 'dataset': 'DUKE'}
    """
    out = {}
    for column in columns:
        value: Any = dataset if column == "dataset" else clinical.get(column)
        if value is None or (isinstance(value, float) and math.isnan(value)) or str(value).strip() == "":
            continue
        if column == "age":
            try:
                years = float(value)
            except ValueError:
                continue
            out[column] = f"group {int(np.searchsorted(AGE_EDGES, years, side='left'))}"
        else:
            out[column] = str(value).strip()
    return out


def divergent_subgroups(
    score: npt.ArrayLike,
    attributes: Sequence[Mapping[str, str]],
    *,
    support: float = 0.1,
    longest: int = 2,
) -> list[Subgroup]:
    """Find all subgroups that hold enough cases.

    Args:
        score: One score per case; cases without a score are left out.
        attributes: One mapping per case, from `attributes_of`.
        support: The least share of the cases, and at least three of them.
        longest: Values per subgroup at most.

    Returns:
        The subgroups, the worst first; one that holds all cases is left out.
    """
    values = np.asarray(score, dtype=np.float64)
    known = np.isfinite(values)
    values, rows = values[known], [a for a, k in zip(attributes, known, strict=True) if k]
    least = max(3, math.ceil(support * len(values)))
    items = sorted({item for row in rows for item in row.items()})
    member = {item: np.array([row.get(item[0]) == item[1] for row in rows], dtype=bool) for item in items}
    frequent = [item for item in items if member[item].sum() >= least]
    found = []
    for size in range(1, longest + 1):
        for chosen in itertools.combinations(frequent, size):
            if len({column for column, _ in chosen}) < size:
                continue
            inside = np.logical_and.reduce([member[item] for item in chosen])
            if inside.sum() < least or inside.all():
                continue
            found.append(_described(values, inside, chosen))
    return sorted(found, key=lambda group: (group.divergence, len(group.items), group.items))


def _described(
    values: npt.NDArray[np.float64], inside: npt.NDArray[np.bool_], items: tuple[Item, ...]
) -> Subgroup:
    own, rest = values[inside], values[~inside]
    spread = sum(
        part.var(ddof=1) / len(part) if len(part) > 1 else part.var() + 1e-12 for part in (own, rest)
    )
    return Subgroup(
        items=items,
        cases=int(inside.sum()),
        mean=float(own.mean()),
        divergence=float(own.mean() - values.mean()),
        t=float((own.mean() - rest.mean()) / math.sqrt(max(spread, 1e-12))),
    )


def weights_of(
    subgroups: Sequence[Subgroup],
    attributes: Mapping[str, Mapping[str, str]],
    *,
    strength: float,
    least_t: float,
    most: float,
) -> dict[str, float]:
    """Turn divergences into weights of cases.

    A weight is 1 + strength x the divergence of the worst subgroup that the case is in, scaled to a mean of
    1.

    Args:
        subgroups: What `divergent_subgroups` found.
        attributes: Case to its attributes.
        strength: How much a divergence weighs.
        least_t: A subgroup counts where it is worse than the others by at least this many standard errors.
        most: The largest weight before the mean is brought to 1.

    Returns:
        Case to weight.
    """
    worse = [group for group in subgroups if group.divergence < 0 and group.t <= -least_t]
    raw = {
        case: min(
            most, 1.0 + strength * max([0.0, *(-g.divergence for g in worse if g.holds(attributes[case]))])
        )
        for case in attributes
    }
    mean = sum(raw.values()) / max(1, len(raw))
    return {case: value / mean for case, value in raw.items()}
