"""One run looked at: its cases chosen by rule, their maps, the numbers and the sanity check (US-23)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from elsewhere.engine.training import Outcome, Training, Work
from elsewhere.errors import UserError, unknown_name
from elsewhere.explain.panels import Caption, panel
from elsewhere.explain.sanity import SanityCheck
from elsewhere.explain.trainings import Explained, Explainer, choose_cases
from elsewhere.recipes.base import recipe_of

if TYPE_CHECKING:
    from PIL.Image import Image

CHECKED = 8
"""Maps that the sanity check compares: each is drawn again for every random network."""


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The maps of one run, with what they are worth."""

    run: str
    seen: Explained
    shown: tuple[str, ...]
    """The cases chosen to be shown; the numbers rest on further ones too."""
    label: Mapping[str, int]
    check: SanityCheck | None

    def to_dict(self) -> dict[str, Any]:
        inside = [one for one in self.seen.inside if one is not None and np.isfinite(one.share)]
        return {
            "run": self.run,
            "method": self.seen.method,
            "cases": len(self.seen.case),
            "with_region": len(inside),
            "share_inside": float(np.mean([one.share for one in inside])) if inside else None,
            "area_inside": float(np.mean([one.area for one in inside])) if inside else None,
            "hits": float(np.mean([one.hit for one in inside])) if inside else None,
            "sanity": None if self.check is None else self.check.to_dict(),
            "warnings": list(self.seen.warnings),
        }

    def word(self, at: int) -> str:
        """The case's label."""
        return "malignant" if self.label[self.seen.case[at]] else "benign"

    def panel(self, at: int, title: str, *, size_px: int = 320) -> Image:
        """The input beside the input with its map."""
        one = self.seen.inside[at]
        note = "" if one is None or not np.isfinite(one.share) else f"{one.share:.0%} in the lesion"
        caption = Caption(
            title=title,
            label=self.word(at),
            probability=float(self.seen.probability[at]),
            method=self.seen.method,
            note=note,
        )
        box = self.seen.box[at].tolist()
        return panel(self.seen.pixels[at], self.seen.maps[at], caption, box=box, size_px=size_px)


def explainer_of(unit: Training) -> type[Explainer]:
    """The class that draws relevance maps of a training, as its recipe names it.

    Args:
        unit: The training.

    Returns:
        A class like `elsewhere.explain.trainings.Explainer`.

    Raises:
        UserError: The recipe names none.
    """
    place = recipe_of(unit.recipe.name).maps
    if not place:
        raise UserError(
            f"recipe '{unit.recipe.name}' draws no relevance maps",
            where=unit.name or unit.key,
            fix="Choose runs of a recipe that does: picture-classifier.",
        )
    module, _, name = place.partition(":")
    found: type[Explainer] = getattr(import_module(module), name)
    return found


def look_at_run(
    run: str,
    unit: Training,
    outcome: Outcome,
    work: Work,
    test: pd.DataFrame,
    *,
    needs: Mapping[str, Outcome] | None = None,
    cases: Sequence[str] = (),
    choose: int = 4,
    measure: int = 16,
    method: str = "",
    sanity: bool = True,
    device: str = "auto",
    seed: int = 42,
) -> Looked:
    """Maps of the named `cases`, or of `choose` of them by rule, and of `measure` further ones drawn with `seed`.

    `test`: the run's test part as the study gives it. `needs`: the outcomes of the trainings whose answers it uses.
    """
    shown, further = _cases(test, cases, choose=choose, measure=measure, seed=seed)
    explainer = explainer_of(unit)(unit, outcome, work, device=device, needs=needs)
    seen = explainer.explain((*shown, *further), method)
    check = explainer.check(seen.case[:CHECKED], seed=seed, method=method) if sanity else None
    label = {str(case): int(one) for case, one in zip(test["case"], test["label"], strict=True)}
    return Looked(run=run, seen=seen, shown=shown, label=label, check=check)


def _cases(
    test: pd.DataFrame, named: Sequence[str], *, choose: int, measure: int, seed: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The cases to show, and further ones for the numbers."""
    known = list(test["case"])
    if named:
        for case in named:
            if case not in known:
                raise unknown_name("test case", case, known)
        shown = tuple(dict.fromkeys(named))
    else:
        odds = (test["logit_malignant"] - test["logit_benign"]).to_numpy(float)
        probability = 1 / (1 + np.exp(-np.clip(odds, -500, 500)))
        shown = choose_cases(known, test["label"].to_numpy(), probability, choose)
    rest = [case for case in known if case not in set(shown)]
    drawn = np.random.default_rng(seed).permutation(len(rest))[: max(0, measure)]
    further = tuple(rest[at] for at in sorted(drawn))
    if not shown and not further:
        raise UserError("no case to explain", fix="Give --cases, or a --choose or --measure above 0.")
    return shown, further
