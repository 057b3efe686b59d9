"""The operating point elsewhere: a pixel threshold fixed on internal slides, carried to external ones (LN-25).

The table of patch scores has a column `threshold` (and one row per threshold). Each model's threshold is the one with
the highest Dice - false-positive rate on internal slides. It was chosen on these data, so that the bootstrap chooses it
again in every resample (ST-12); next to it stands the threshold that the external slides would have liked best, and
what not knowing it costs there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.analysis.generalise.settings import Domains
from elsewhere.analysis.generalise.verdicts import sides_of
from elsewhere.errors import UserError
from elsewhere.scoring.patch_scores import DICE, FPR, MODEL, THRESHOLD, PatchScores
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
    thresholds = scores.variants[THRESHOLD].to_numpy(dtype=float)
    sets = {
        model: tuple(sorted(thresholds[(scores.variants[MODEL] == model).to_numpy()]))
        for model in scores.models
    }
    usual = max(sets.values(), key=len)
    odd = [model for model, found in sets.items() if found != usual]
    if odd:
        raise UserError(
            f"{len(odd)} models have other thresholds than the others, such as {odd[0]}",
            fix="Give every model the same thresholds, or one threshold each in a table of its own.",
        )
    for model in scores.models:
        mine = np.flatnonzero((scores.variants[MODEL] == model).to_numpy())
        at = int(mine[np.argmax(gain_in[mine])])
        best = int(mine[np.argmax(gain_out[mine])])
        chosen.append(at)
        rows.append(
            {
                "model": model,
                "threshold": float(thresholds[at]),
                "best_external_threshold": float(thresholds[best]),
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
