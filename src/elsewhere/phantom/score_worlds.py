"""Tables of scores with a known subgroup gap: no image, no model, only what scoring would have measured.

Patients have the shares of the MAMA-MIA test cohort (table 1 of the study): ages 50/117/146/155/106 of 574, a
third premenopausal, nearly all of them young; density follows the menopausal status. A gap is planted in one
group of one variable: its Dice is lower and its NormHD higher on average, or its TPR lower and its FPR
higher, by exactly the requested amounts. The variables depend on each other, so a gap in the oldest group is
also a smaller gap between pre- and postmenopausal women: `true_gaps` computes the population's gap of every
variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, near_matches

AGES = ("<=40", "(40, 50]", "(50, 60]", "(60, 70]", ">70")
AGE_SHARES = np.array([50, 117, 146, 155, 106]) / 574
_AGE_YEARS = ((25, 40), (41, 50), (51, 60), (61, 70), (71, 88))
_PRE_BY_AGE = np.array([0.98, 0.90, 0.28, 0.02, 0.0])
_DENSITY = {"pre": np.array([0.05, 0.27, 0.46, 0.22]), "post": np.array([0.13, 0.40, 0.36, 0.11])}
_PCR = {"pre": 0.31, "post": 0.26}
GROUPS: Mapping[str, tuple[str, ...]] = {
    "age": AGES,
    "menopausal_status": ("pre", "post"),
    "breast_density": ("A", "B", "C", "D"),
}
SITES = ("GUM", "KAU", "HCB")
_SITE_SHARES = np.array([30, 232, 312]) / 574
_FAILURES = 0.04
_TPR, _FPR = 0.65, 0.35
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PlantedGap:
    """How much worse `group` of `variable` is, in the population; all 0 is a fair world.

    Args:
        variable: One of `GROUPS`: 'age', 'menopausal_status' or 'breast_density'.
        group: The group of that variable that is worse off.
        dice: How much lower its mean Dice is.
        norm_hd: How much higher its mean normalised Hausdorff distance is.
        tpr: How much lower its true positive rate is.
        fpr: How much higher its false positive rate is.

    Raises:
        UserError: The variable or group is unknown, or an amount is negative or more than the metric allows.
    """

    variable: str = "breast_density"
    group: str = "D"
    dice: float = 0.0
    norm_hd: float = 0.0
    tpr: float = 0.0
    fpr: float = 0.0

    def __post_init__(self) -> None:
        groups = GROUPS.get(self.variable)
        if groups is None:
            near = near_matches(self.variable, list(GROUPS))
            raise UserError(
                f"no gap can be planted in '{self.variable}'", fix=f"Known: {near or list(GROUPS)}."
            )
        if self.group not in groups:
            raise UserError(
                f"{self.variable} has no group '{self.group}'", fix=f"Groups: {', '.join(groups)}."
            )
        dice, distance = _population_means()
        most = {"dice": dice, "norm_hd": 1.0 - distance, "tpr": _TPR, "fpr": 1.0 - _FPR}
        for name, largest in most.items():
            if not 0.0 <= getattr(self, name) <= largest:
                raise UserError(
                    f"a gap in {name} of {getattr(self, name)} cannot be planted",
                    fix=f"Give a number between 0 and {largest:.3g}.",
                )


def _patients(n: int, rng: np.random.Generator) -> pd.DataFrame:
    age = rng.choice(len(AGES), n, p=AGE_SHARES)
    low, high = np.array(_AGE_YEARS).T
    status = np.where(rng.random(n) < _PRE_BY_AGE[age], "pre", "post")
    cumulated = np.stack([np.cumsum(_DENSITY[word]) for word in status])
    density = np.array(list("ABCD"))[(rng.random(n)[:, None] > cumulated[:, :3]).sum(axis=1)]
    return pd.DataFrame(
        {
            "case_id": [f"W{i:05d}" for i in range(n)],
            "patient_id": [f"W{i:05d}" for i in range(n)],
            "dataset": "world",
            "site": np.array(SITES)[rng.choice(len(SITES), n, p=_SITE_SHARES)],
            "age": rng.integers(low[age], high[age] + 1),
            "menopausal_status": status,
            "breast_density": pd.array(density, dtype="string"),
            "group_of_age": np.array(AGES)[age],
        }
    )


def _affected(table: pd.DataFrame, gap: PlantedGap) -> npt.NDArray[np.bool_]:
    column = "group_of_age" if gap.variable == "age" else gap.variable
    return (table[column] == gap.group).fillna(False).to_numpy(dtype=bool)


def _draw_scores(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw Dice and NormHD of a good model: most Dice near 0.75, 4 % failures; the two are correlated."""
    skill = rng.normal(0.0, 1.0, n)
    dice = 1.0 / (1.0 + np.exp(-(1.2 + 0.9 * skill)))
    distance = np.exp(-2.0 - 0.5 * skill + 0.6 * rng.normal(0.0, 1.0, n))
    failed = rng.random(n) < _FAILURES
    dice = np.where(failed, 0.0, dice)
    return dice, np.minimum(np.where(failed, 1.0, distance), 1.0)


@lru_cache(maxsize=1)
def _population_means() -> tuple[float, float]:
    """Compute mean Dice and NormHD of unaffected patients, from two million draws of their own generator."""
    dice, distance = _draw_scores(2_000_000, np.random.default_rng(1506))
    return float(dice.mean()), float(distance.mean())


def segmentation_world(
    gap: PlantedGap, rng: np.random.Generator, *, patients: int = 516, density_known: int | None = None
) -> pd.DataFrame:
    """Draw a table of patients with Dice and NormHD, worse in one group.

    Args:
        gap: The planted gap; `dice` and `norm_hd` count.
        rng: The generator of all draws.
        patients: Number of patients, one case each.
        density_known: Number of patients whose breast density is known; None: all.

    Returns:
        Attributes, `dice`, `norm_hd` and `affected` (whether the gap concerns the patient), one row per
        patient.
    """
    table = _patients(patients, rng)
    affected = _affected(table, gap)
    dice, distance = _draw_scores(patients, rng)
    mean_dice, mean_distance = _population_means()
    table["dice"] = np.where(affected, dice * (1.0 - gap.dice / mean_dice), dice)
    nearness = (1.0 - distance) * np.where(affected, 1.0 - gap.norm_hd / (1.0 - mean_distance), 1.0)
    table["norm_hd"] = 1.0 - nearness
    return _hide(table, affected, rng, density_known)


def response_world(
    gap: PlantedGap, rng: np.random.Generator, *, patients: int = 516, density_known: int | None = None
) -> pd.DataFrame:
    """Draw a table of patients with pCR and a probability of it, worse in one group.

    Decisions at 0.5 have a TPR of 0.65 and an FPR of 0.35; in the group, the gap makes both worse.

    Args:
        gap: The planted gap; `tpr` and `fpr` count.
        rng: The generator of all draws.
        patients: Number of patients, one case each.
        density_known: Number of patients whose breast density is known; None: all.

    Returns:
        Attributes, `pcr`, `probability` and `affected` (whether the gap concerns the patient), one row per
        patient.
    """
    table = _patients(patients, rng)
    affected = _affected(table, gap)
    prevalence = table["menopausal_status"].map(_PCR).to_numpy(dtype=np.float64)
    pcr = rng.random(patients) < prevalence
    tpr, fpr = _TPR - gap.tpr * affected, _FPR + gap.fpr * affected
    yes = rng.random(patients) < np.where(pcr, tpr, fpr)
    table["pcr"] = pcr.astype(np.int64)
    table["probability"] = np.where(yes, rng.uniform(0.5, 1.0, patients), rng.uniform(0.0, 0.499, patients))
    return _hide(table, affected, rng, density_known)


def _hide(
    table: pd.DataFrame,
    affected: npt.NDArray[np.bool_],
    rng: np.random.Generator,
    density_known: int | None,
) -> pd.DataFrame:
    out = table.drop(columns="group_of_age").assign(affected=affected)
    if density_known is not None:
        out.loc[rng.permutation(len(out))[density_known:], "breast_density"] = pd.NA
    return out


def true_group_shares(gap: PlantedGap, variable: str, *, pcr: bool | None = None) -> dict[str, float]:
    """Compute the share of every group's population that the gap affects.

    Args:
        gap: The planted gap.
        variable: The variable whose groups are wanted, which need not be the gap's own.
        pcr: True or False looks only at the patients with or without pCR; None at all of them.

    Returns:
        Shares, 0 to 1, by group.

    Example:
        >>> true_group_shares(PlantedGap(variable="age", group=">70"), "age")[">70"]
        1.0
    """
    weight = dict.fromkeys(GROUPS[variable], 0.0)
    hit = dict(weight)
    for (i, age), status, (k, density) in product(
        enumerate(AGES), GROUPS["menopausal_status"], enumerate(GROUPS["breast_density"])
    ):
        pre = float(_PRE_BY_AGE[i])
        p = float(AGE_SHARES[i]) * (pre if status == "pre" else 1.0 - pre) * float(_DENSITY[status][k])
        if pcr is not None:
            p *= _PCR[status] if pcr else 1.0 - _PCR[status]
        groups = {"age": age, "menopausal_status": status, "breast_density": density}
        weight[groups[variable]] += p
        hit[groups[variable]] += p * (groups[gap.variable] == gap.group)
    return {name: hit[name] / weight[name] for name in weight}


def true_gaps(
    gap: PlantedGap, *, task: str, among: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, float]:
    """Compute the population's gap of every variable by the protocol.

    For segmentation it is the mean of two ranges (MRI-04), for response their sum (MRI-05).

    Args:
        gap: The planted gap.
        task: 'segmentation'; anything else is response.
        among: The groups that are compared, by variable, where a world does not have all of them; None:
            `GROUPS`.

    Returns:
        The gap by variable.

    Example:
        >>> round(true_gaps(PlantedGap(dice=0.1, norm_hd=0.06), task="segmentation")["breast_density"], 3)
        0.08
    """
    out = {}
    for variable, groups in (among or GROUPS).items():
        if task == "segmentation":
            shares = [true_group_shares(gap, variable)[name] for name in groups]
            out[variable] = (gap.dice + gap.norm_hd) / 2 * (max(shares) - min(shares))
        else:
            ill = [true_group_shares(gap, variable, pcr=True)[name] for name in groups]
            well = [true_group_shares(gap, variable, pcr=False)[name] for name in groups]
            out[variable] = gap.tpr * (max(ill) - min(ill)) + gap.fpr * (max(well) - min(well))
    return out
