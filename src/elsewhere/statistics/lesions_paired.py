"""Do two models find different lesions? Paired per lesion, at equal budgets of false positives, by patient.

Only lesions that one model finds and the other misses (discordant lesions) say which model finds more. Lesions
of one patient, often the same finding in two views, are found or missed together, and the score at which a
model has spent its budget is itself estimated from the false positives of the same patients. McNemar's test takes the
lesions as independent and the thresholds as known, and is wrong too often.

Here the two models are exchanged patient by patient (ST-12): under the hypothesis that they are equally good, all
that one model says of a patient could as well have been said by the other one. Scores of two models have no
common scale, so that a box is exchanged by its cost, the false positives per volume of its own model that score as
high or higher. After each exchange both thresholds are found anew. Where at most 12 patients matter, all
exchanges are looked at and the p-value is exact; otherwise B of them are drawn, and p = (b + 1)/(B + 1).
Intervals come from resampled patients, with thresholds found anew in each resample.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import unknown_name
from elsewhere.statistics.bootstrap_weights import generator_for, thread_count
from elsewhere.statistics.found_lesions import FoundLesions, level_masks
from elsewhere.statistics.paired import holm
from elsewhere.statistics.resampling import Resampling

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
EXACT, DRAWN = "exact exchange of the models by patient", "exchange of the models by patient"
MOST_EXACT = 12
"""Up to so many patients all exchanges are looked at."""
ALL = ("all lesions", "")
_LEVEL = 0.95
_BLOCK = 500
_SLACK = 1e-9
_EXCHANGE_STREAM, _RESAMPLE_STREAM = 911, 912


@dataclass(frozen=True, kw_only=True)
class LesionComparison:
    """The lesions that two models find and miss at one budget of false positives.

    Attributes:
        a: The first model.
        b: The second model.
        attribute: What divides the lesions, such as the class; 'all lesions' for no division.
        level: Which of these lesions are compared; empty for all.
        budget: False positives per volume that each model may spend.
        lesions: How many lesions are compared.
        patients: How many patients have them.
        both: Lesions that both find.
        only_a: Lesions that only the first finds.
        only_b: Lesions that only the second finds.
        neither: Lesions that both miss.
        discordant_patients: Patients with a lesion that only one model finds.
        difference: Share of the lesions that the first finds less that of the second; None without lesions.
        lo: Lower end of its 95 % interval over resampled patients; None without resamples.
        hi: Upper end of its interval.
        p: Two-sided p-value; None without discordant lesions, or where nothing was drawn.
        p_method: How it was computed.
        p_holm: The p-value adjusted for all comparisons that were made with it; None for no test.
    """

    a: str
    b: str
    attribute: str = ALL[0]
    level: str = ALL[1]
    budget: float
    lesions: int
    patients: int
    both: int
    only_a: int
    only_b: int
    neither: int
    discordant_patients: int
    difference: float | None
    lo: float | None = None
    hi: float | None = None
    p: float | None = None
    p_method: str = ""
    p_holm: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as it stands in a summary.

        Returns:
            The fields by name; `budget` as `budget_fp_per_volume`.
        """
        row = asdict(self)
        return {"budget_fp_per_volume" if key == "budget" else key: value for key, value in row.items()}


@dataclass(frozen=True, kw_only=True)
class _PairOfModels:
    """The false positives and lesions of two models by rising cost; of equal costs false positives come first.

    The last patient stands for all volumes that the cohort does not list.
    """

    cluster: npt.NDArray[np.int64]
    model: npt.NDArray[np.int64]
    lesion: npt.NDArray[np.int64]
    members: BoolArray
    patient_of_lesion: npt.NDArray[np.int64]
    volumes_of: FloatArray
    budget: float

    @property
    def patients(self) -> int:
        return self.volumes_of.size

    def differences(self, swap: BoolArray, weight: FloatArray) -> FloatArray:
        """(rows, groups): lesions of the first model less those of the second."""
        out = np.zeros((len(swap), self.members.shape[1]))
        limit = self.budget * (weight @ self.volumes_of) + _SLACK
        _differences(self.cluster, self.model, self.lesion, self.members, swap, weight, limit, out)
        return out


@numba.njit(cache=True, nogil=True)
def _differences(
    cluster: npt.NDArray[np.int64],
    model: npt.NDArray[np.int64],
    lesion: npt.NDArray[np.int64],
    groups: npt.NDArray[np.bool_],
    swap: npt.NDArray[np.bool_],
    weight: FloatArray,
    limit: FloatArray,
    out: FloatArray,
) -> None:
    """Count lesions of the first model less those of the second, for each row of exchanges and weights."""
    for r in range(swap.shape[0]):
        spent = np.zeros(2)
        for e in range(cluster.size):
            c = cluster[e]
            owner = model[e]
            if swap[r, c]:
                owner = 1 - owner
            if lesion[e] < 0:
                spent[owner] += weight[r, c]
                if spent[0] > limit[r] and spent[1] > limit[r]:
                    break
            elif spent[owner] <= limit[r]:
                step = weight[r, c] if owner == 0 else -weight[r, c]
                for g in range(groups.shape[1]):
                    if groups[lesion[e], g]:
                        out[r, g] += step


def pairs_of(models: Sequence[str], baseline: str | None) -> list[tuple[str, str]]:
    """List the pairs of models that are compared.

    Args:
        models: The names of the models.
        baseline: The model that all others are compared with; None for every pair.

    Returns:
        The pairs; with a baseline it is the second of each.

    Raises:
        UserError: No model has the name of the baseline.

    Example:
        >>> pairs_of(["A", "B", "C"], None), pairs_of(["A", "B", "C"], "B")
        ([('A', 'B'), ('A', 'C'), ('B', 'C')], [('A', 'B'), ('C', 'B')])
    """
    if baseline is None:
        return list(itertools.combinations(models, 2))
    if baseline not in models:
        raise unknown_name("model", baseline, list(models))
    return [(name, baseline) for name in models if name != baseline]


def compare_pairs(
    found: FoundLesions,
    patients: pd.Series,
    *,
    budget: float,
    resampling: Resampling,
    baseline: str | None = None,
) -> list[LesionComparison]:
    """Compare several models lesion by lesion, with Holm's correction over the pairs.

    Args:
        found: What each lesion and each false positive costs each model.
        patients: The patient of each volume, by its id.
        budget: False positives per volume that each model may spend.
        resampling: How many exchanges and resamples are drawn; 0 for exact tests alone.
        baseline: The model that all others are compared with; None for every pair.

    Returns:
        One comparison per pair.

    Raises:
        UserError: No model has the name of the baseline.

    Example:
        >>> rows = [("v1", "L1", 0.9, "tp"), ("v2", "L2", 0.8, "tp"), ("v3", None, 0.1, "fp")]
        >>> good = pd.DataFrame(rows, columns=["case_id", "lesion_id", "score", "kind"])
        >>> poor = good.assign(score=[0.9, None, 0.95], kind=["tp", "fn", "fp"])
        >>> from elsewhere.statistics.found_lesions import found_lesions
        >>> made = found_lesions({"good": good, "poor": poor}, volumes=3)
        >>> who = pd.Series({"v1": "P1", "v2": "P2", "v3": "P3"})
        >>> row = compare_pairs(made, who, budget=1.0, resampling=Resampling(key="k", resamples=0))[0]
        >>> row.only_a, row.only_b, row.p
        (1, 0, 1.0)
    """
    everything = {ALL: np.ones(len(found.lesions), dtype=bool)}
    with ThreadPoolExecutor(thread_count(resampling.threads)) as pool:
        rows = list(
            pool.map(
                lambda pair: _compare(
                    found, patients, everything, pair=pair, budget=budget, resampling=resampling
                )[0],
                pairs_of(found.models, baseline),
            )
        )
    return _adjusted(rows)


def compare_by_stratum(
    found: FoundLesions,
    patients: pd.Series,
    strata: Mapping[str, pd.Series],
    *,
    pair: tuple[str, str],
    budget: float,
    resampling: Resampling,
) -> list[LesionComparison]:
    """Compare two models in groups of lesions; Holm's correction counts every group of every attribute.

    The threshold of a model is that of the whole set, so that a group is judged at the operating point that users
    would have.

    Args:
        found: What each lesion and each false positive costs each model.
        patients: The patient of each volume, by its id.
        strata: The level of each lesion by the name of the attribute.
        pair: The two models.
        budget: False positives per volume that each model may spend.
        resampling: How many exchanges and resamples are drawn; 0 for exact tests alone.

    Returns:
        One comparison per attribute and level.
    """
    groups = {
        (name, level): members
        for name, levels in strata.items()
        for level, members in level_masks(levels).items()
    }
    if not groups:
        return []
    return _adjusted(_compare(found, patients, groups, pair=pair, budget=budget, resampling=resampling))


def _compare(
    found: FoundLesions,
    patients: pd.Series,
    groups: Mapping[tuple[str, str], BoolArray],
    *,
    pair: tuple[str, str],
    budget: float,
    resampling: Resampling,
) -> list[LesionComparison]:
    a, b = (found.models.index(name) for name in pair)
    hit = found.within(budget)
    both = _pair(found, patients, np.column_stack(list(groups.values())), models=(a, b), budget=budget)
    exchanged, method = _exchanged(both, resampling)
    low, high = _interval(both, resampling)
    rows = []
    for g, ((attribute, level), inside) in enumerate(groups.items()):
        x, y, who = hit[inside, a], hit[inside, b], both.patient_of_lesion[inside]
        gap = int(x.sum()) - int(y.sum())
        discordant = np.unique(who[x != y]).size
        p = None
        if discordant and exchanged is not None:
            extreme = int((np.abs(exchanged[:, g]) >= abs(gap) - _SLACK).sum())
            p = extreme / len(exchanged) if method == EXACT else (extreme + 1) / (len(exchanged) + 1)
        rows.append(
            LesionComparison(
                a=pair[0],
                b=pair[1],
                attribute=attribute,
                level=level,
                budget=float(budget),
                lesions=int(inside.sum()),
                patients=np.unique(who).size,
                both=int((x & y).sum()),
                only_a=int((x & ~y).sum()),
                only_b=int((y & ~x).sum()),
                neither=int((~x & ~y).sum()),
                discordant_patients=discordant,
                difference=gap / int(inside.sum()) if inside.any() else None,
                lo=low[g],
                hi=high[g],
                p=p,
                p_method=method if p is not None else "",
            )
        )
    return rows


def _pair(
    found: FoundLesions,
    patients: pd.Series,
    members: BoolArray,
    *,
    models: tuple[int, int],
    budget: float,
) -> _PairOfModels:
    codes, everyone = pd.factorize(patients.astype(object), sort=True)  # the order of rows changes no number
    code_of_case = pd.Series(codes, index=patients.index)

    def clusters(case_ids: npt.NDArray[np.object_]) -> npt.NDArray[np.int64]:
        known = code_of_case.reindex(case_ids).to_numpy(dtype=np.float64)
        return np.where(np.isnan(known), len(everyone), known).astype(np.int64)

    of_lesion = clusters(found.lesions["case_id"].to_numpy(dtype=object))
    cost, cluster, model, lesion = [], [], [], []
    for k, m in enumerate(models):
        hits = np.flatnonzero(np.isfinite(found.cost[:, m]))
        cost += [found.false_cost[m], found.cost[hits, m]]
        cluster += [clusters(found.false_case[m]), of_lesion[hits]]
        lesion += [np.full(found.false_cost[m].size, -1), hits]
        model.append(np.full(found.false_cost[m].size + hits.size, k))
    numbers = np.concatenate(lesion).astype(np.int64)
    order = np.lexsort((numbers >= 0, np.round(np.concatenate(cost) * found.volumes)))
    return _PairOfModels(
        cluster=np.concatenate(cluster)[order],
        model=np.concatenate(model)[order].astype(np.int64),
        lesion=numbers[order],
        members=members,
        patient_of_lesion=of_lesion,
        volumes_of=np.append(np.bincount(codes, minlength=len(everyone)), 0).astype(np.float64),
        budget=float(budget),
    )


def _exchanged(both: _PairOfModels, resampling: Resampling) -> tuple[FloatArray | None, str]:
    """The differences under all exchanges, or under drawn ones."""
    acting = np.unique(both.cluster)
    if acting.size <= MOST_EXACT:
        swap = np.zeros((2**acting.size, both.patients), dtype=bool)
        swap[:, acting] = np.arange(2**acting.size)[:, None] >> np.arange(acting.size) & 1
        return both.differences(swap, np.ones(swap.shape)), EXACT
    if resampling.resamples == 0:
        return None, ""
    rng = generator_for(resampling.key, resampling.seed, _EXCHANGE_STREAM)
    parts = []
    for first in range(0, resampling.resamples, _BLOCK):
        n = min(_BLOCK, resampling.resamples - first)
        swap = rng.integers(0, 2, size=(n, both.patients), dtype=np.uint8).astype(bool)
        parts.append(both.differences(swap, np.ones(swap.shape)))
    return np.concatenate(parts), DRAWN


def _interval(both: _PairOfModels, resampling: Resampling) -> tuple[list[float | None], list[float | None]]:
    """Percentile intervals of the differences over resampled patients; without lesions there is none."""
    n_groups, n = both.members.shape[1], both.patients - 1
    if resampling.resamples == 0 or n == 0:
        return [None] * n_groups, [None] * n_groups
    lesions_of = np.zeros((both.patients, n_groups))
    np.add.at(lesions_of, both.patient_of_lesion, both.members.astype(np.float64))
    rng = generator_for(resampling.key, resampling.seed, _RESAMPLE_STREAM)
    parts = []
    for first in range(0, resampling.resamples, _BLOCK):
        rows = min(_BLOCK, resampling.resamples - first)
        drawn = rng.integers(0, n, size=(rows, n))
        weight = np.stack([np.bincount(row, minlength=n + 1) for row in drawn]).astype(np.float64)
        weight[:, n] = 1.0
        made = both.differences(np.zeros(weight.shape, dtype=bool), weight)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts.append(made / (weight @ lesions_of))
    ends: list[tuple[float | None, float | None]] = []
    for column in np.concatenate(parts).T:
        known = column[np.isfinite(column)]
        tail = 50.0 * (1.0 - _LEVEL)
        low, high = np.percentile(known, [tail, 100.0 - tail]) if known.size else (None, None)
        ends.append((None if low is None else float(low), None if high is None else float(high)))
    return [low for low, _ in ends], [high for _, high in ends]


def _adjusted(rows: Sequence[LesionComparison]) -> list[LesionComparison]:
    adjusted = holm([row.p for row in rows])
    return [replace(row, p_holm=value) for row, value in zip(rows, adjusted, strict=True)]
