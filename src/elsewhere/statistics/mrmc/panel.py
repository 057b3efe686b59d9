"""One model against a panel of readers: is it as good as their mean? (ST-15a)

The model has one figure of merit and the readers have one each, on the same cases. The difference of each
reader and the model is taken as the figure of merit of one treatment, whose mean over readers is compared with
0 by the analysis of a single treatment: random readers and cases (Hillis 2007 for the degrees of freedom), fixed
readers, or fixed cases, which is the t-test of Hupse et al. (Radiology 266:123, 2013). The model is not a sample
of models: the conclusion is about this model and other readers and cases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from elsewhere.errors import UserError
from elsewhere.statistics.mrmc.analysis import (
    RandomFactors,
    TreatmentDifference,
    check_level,
    half_width,
    single_mean,
    two_sided_p,
)
from elsewhere.statistics.mrmc.components import ErrorCovariances, treatment_covariances
from elsewhere.statistics.mrmc.figures import FigureMatrix


@dataclass(frozen=True, kw_only=True)
class PanelComparison:
    """A model against the mean of a panel of readers.

    Args:
        model: The name of the model.
        panel: The name of the readers' treatment.
        value: The figure of merit of the model.
        readers: The figure of merit of each reader, by name.
        mean: Their mean.
        above: How many readers have a higher figure of merit than the model.
        errors: Var and Cov2 of the differences.
        differences: Model minus mean of the readers, by what is random.
        notes: Full sentences about estimates that were cut off at 0.
    """

    model: str
    panel: str
    value: float
    readers: Mapping[str, float]
    mean: float
    above: int
    errors: ErrorCovariances
    differences: Mapping[RandomFactors, TreatmentDifference]
    notes: tuple[str, ...] = ()


def compare_with_panel(study: FigureMatrix, *, model: str, level: float = 0.95) -> PanelComparison:
    """Compare one of the readers of a treatment, the model, with the mean of the others.

    Args:
        study: One treatment: the model and the readers are its readers.
        model: The name of the model among them.
        level: The level of the intervals.

    Returns:
        The difference model minus readers, with its interval and test in the three analyses.

    Raises:
        UserError: There is more than one treatment, or no such name, or nobody else.

    Example:
        >>> values = [[0.85, 0.80, 0.75, 0.78]]
        >>> covariance = 0.0002 * (np.eye(4) + np.ones((4, 4)))
        >>> study = FigureMatrix.crossed(
        ...     values, covariance, treatments=("unaided",), readers=("AI", "1", "2", "3")
        ... )
        >>> found = compare_with_panel(study, model="AI").differences[RandomFactors.READERS_AND_CASES]
        >>> round(found.value, 4), round(found.p, 3)
        (0.0733, 0.007)
    """
    check_level(level)
    if study.shape[0] != 1:
        raise UserError(
            f"a model is compared with the readers of one treatment, and there are {study.shape[0]}",
            fix="Take one treatment at a time.",
        )
    names = study.readers[0]
    if model not in names or len(names) < 2:
        raise UserError(
            f"'{model}' and at least one reader are needed",
            where=study.treatments[0],
            fix=f"There are {', '.join(names)}.",
        )
    at = names.index(model)
    others = [j for j in range(len(names)) if j != at]
    contrast = np.zeros((len(others), len(names)))
    contrast[np.arange(len(others)), others] = -1.0
    contrast[:, at] = 1.0
    panel = tuple(names[j] for j in others)
    away = FigureMatrix.crossed(
        [contrast @ study.values[0]],
        contrast @ study.covariance @ contrast.T,
        treatments=(study.treatments[0],),
        readers=panel,
    )
    errors = treatment_covariances(away)[0]
    values = study.values[0]
    notes: tuple[str, ...] = ()
    if (errors.cov2 or 0.0) < 0:
        notes = ("Cov2 of the differences is negative and counts as 0.",)
    return PanelComparison(
        model=model,
        panel=study.treatments[0],
        value=float(values[at]),
        readers={names[j]: float(values[j]) for j in others},
        mean=float(values[others].mean()),
        above=int((values[others] > values[at]).sum()),
        errors=errors,
        differences={
            random: _difference(random, away, errors, (model, "mean of the readers"), level)
            for random in RandomFactors
        },
        notes=notes,
    )


def _difference(
    random: RandomFactors,
    away: FigureMatrix,
    errors: ErrorCovariances,
    names: tuple[str, str],
    level: float,
) -> TreatmentDifference:
    value = float(away.values[0].mean())
    se, df, reason = single_mean(random, away.values[0], errors)
    t = p = lo = hi = None
    if se is not None and df is not None:
        t, half = value / se, half_width(level, df, se)
        p, lo, hi = two_sided_p(t, df), value - half, value + half
    return TreatmentDifference(
        first=names[0],
        second=names[1],
        value=value,
        se=se,
        df=df if df is None or math.isinf(df) else float(df),
        t=t,
        p=p,
        p_holm=p,
        lo=lo,
        hi=hi,
        reason=reason,
    )
