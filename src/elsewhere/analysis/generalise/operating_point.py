"""The operating point elsewhere: a pixel threshold fixed on internal slides, carried to external ones (LN-25).

The table of patch scores has a column `threshold`, or `smallest_object_mm` (smaller objects are removed), or both, and a
row for each. Each model's operating point is the one with the highest Dice - false-positive rate on internal slides. It
was chosen on these data, so that the bootstrap chooses it again in every resample (ST-12); next to it stands the one
that the external slides would have liked best, and what not knowing it costs there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.analysis.generalise.settings import Domains
from elsewhere.analysis.generalise.verdicts import sides_of
from elsewhere.errors import UserError
from elsewhere.scoring.patch_scores import DICE, FPR, MODEL, OPERATING_POINT, PatchScores
from elsewhere.statistics.evaluator import FloatArray
from elsewhere.statistics.many_models import SideSums, draw_side
from elsewhere.statistics.resampling import Resampling

CRITERION = "highest Dice - false-positive rate on internal slides"


def carry_thresholds(
    scores: PatchScores, domains: Domains, resampling: Resampling, *, alpha: float = 0.05
) -> tuple[PatchScores, list[dict[str, Any]]]:
    """Choose each model's threshold on internal slides, and keep it for external ones.

    Args:
        scores: The scores, with a threshold for each variant.
        domains: Which slides are internal and external.
        resampling: The resamples in which the threshold is chosen again.
        alpha: The level of each one-sided test; intervals are 1 - 2 alpha.

    Returns:
        The scores at the chosen thresholds, and one row per model with the choice and what it costs.

    Raises:
        UserError: A model has another set of thresholds than the others.
    """
    everything = np.ones(len(scores.parts), dtype=bool)
    dice = sides_of(scores, DICE, domains, everything)
    fpr = sides_of(scores, FPR, domains, everything)
    if min(side.n_patients for side in (*dice, *fpr)) == 0:
        raise UserError(
            "a threshold cannot be chosen: a domain has no tumour patch or no normal patch",
            fix="Leave one threshold per model in the table.",
        )
    gain_in, gain_out = (d.value - f.value for d, f in zip(dice, fpr, strict=True))
    drawn = _Drawn.of(dice, fpr, resampling)
    chosen: list[int] = []
    rows = []
    columns = [name for name in OPERATING_POINT if name in scores.variants.columns]
    points = [tuple(row) for row in scores.variants[columns].to_numpy(dtype=float).tolist()]
    model_of = scores.variants[MODEL].to_numpy()
    sets = {model: sorted(points[i] for i in np.flatnonzero(model_of == model)) for model in scores.models}
    usual = max(sets.values(), key=len)
    odd = [model for model, found in sets.items() if found != usual]
    if odd:
        raise UserError(
            f"{len(odd)} models have other thresholds than the others, such as {odd[0]}",
            fix="Give every model the same operating points, or one each in a table of its own.",
        )
    for model in scores.models:
        mine = np.flatnonzero(model_of == model)
        at = int(mine[np.argmax(gain_in[mine])])
        best = int(mine[np.argmax(gain_out[mine])])
        chosen.append(at)
        rows.append(
            {
                "model": model,
                **dict(zip(columns, points[at], strict=True)),
                **{f"best_external_{name}": value for name, value in zip(columns, points[best], strict=True)},
                "cost_dice": float(dice[1].value[at] - dice[1].value[best]),
                "cost_fpr": float(fpr[1].value[at] - fpr[1].value[best]),
                "criterion": CRITERION,
                **drawn.refitted(mine, at, alpha),
            }
        )
    kept = replace(
        scores,
        variants=scores.variants.iloc[chosen].reset_index(drop=True),
        total={name: values[chosen] for name, values in scores.total.items()},
        square={name: None if values is None else values[chosen] for name, values in scores.square.items()},
    )
    return kept, rows


def operating_point(row: Mapping[str, Any], prefix: str = "") -> str:
    """Name an operating point in words.

    Args:
        row: A row of `carry_thresholds`.
        prefix: `best_external_` for the point that the external slides would have liked.

    Returns:
        The threshold and the smallest object, whichever there is.

    Example:
        >>> operating_point({"threshold": 0.5, "smallest_object_mm": 0.2})
        'threshold 0.5, smallest object 0.2 mm'
    """
    parts = []
    if row.get(f"{prefix}threshold") is not None:
        parts.append(f"threshold {row[f'{prefix}threshold']:g}")
    if row.get(f"{prefix}smallest_object_mm") is not None:
        parts.append(f"smallest object {row[f'{prefix}smallest_object_mm']:g} mm")
    return ", ".join(parts)


class _Drawn:
    """The means of all variants in all resamples: internal and external Dice and false-positive rates."""

    def __init__(self, values: dict[str, tuple[FloatArray, FloatArray]]) -> None:
        self.values = values

    @classmethod
    def of(
        cls, dice: tuple[SideSums, SideSums], fpr: tuple[SideSums, SideSums], resampling: Resampling
    ) -> _Drawn:
        values: dict[str, tuple[FloatArray, FloatArray]] = {}
        if resampling.resamples > 0:
            drawn = []
            for name, sides in (("reference", (dice[0], fpr[0])), ("here", (dice[1], fpr[1]))):
                drawn.append(_shared_draws(sides, resampling.named(f"threshold/{name}")))
            values = {
                "dice": (drawn[0][0], drawn[1][0]),
                "fpr": (drawn[0][1], drawn[1][1]),
            }
        return cls(values)

    def refitted(self, mine: npt.NDArray[np.int64], at: int, alpha: float) -> dict[str, Any]:
        """Percentile intervals of external - internal with the threshold chosen in each resample."""
        if not self.values:
            return {}
        gain = self.values["dice"][0][:, mine] - self.values["fpr"][0][:, mine]
        pick = mine[np.argmax(np.where(np.isfinite(gain), gain, -np.inf), axis=1)]
        rows = np.arange(pick.size)
        out: dict[str, Any] = {"chosen_again": float((pick == at).mean())}
        for name, (inside, outside) in self.values.items():
            moved = outside[rows, pick] - inside[rows, pick]
            moved = moved[np.isfinite(moved)]
            if moved.size >= 100:
                lo, hi = np.quantile(moved, [alpha, 1 - alpha])
                out |= {f"{name}_refitted_lo": float(lo), f"{name}_refitted_hi": float(hi)}
        return out


def _shared_draws(sides: tuple[SideSums, SideSums], resampling: Resampling) -> tuple[FloatArray, FloatArray]:
    """Both metrics under the same draws of the patients who have patches of either kind."""
    people = sorted({*sides[0].patients, *sides[1].patients})
    everyone = SideSums(patients=tuple(people), total=np.zeros((1, len(people))), count=np.ones(len(people)))
    weights = draw_side(everyone, resampling)
    number = {name: i for i, name in enumerate(people)}
    first, second = (side.under(weights[:, [number[name] for name in side.patients]])[0] for side in sides)
    return first, second
