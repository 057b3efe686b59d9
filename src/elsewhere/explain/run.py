"""Maps of one run: the cases chosen by rule, their maps, the numbers and the sanity check (US-23)."""

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
"""How many maps the sanity check compares: each is drawn again for every random network."""


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The relevance maps of one run, with the numbers that tell how far to trust them.

    Args:
        run: The name of the run.
        seen: The maps of all cases that were explained, shown or not.
        shown: The cases chosen to be shown; the numbers rest on the other cases of `seen` too.
        label: The label of each test case: 1 for malignant, 0 for benign.
        check: The sanity check of the maps; None where none was asked for.
    """

    run: str
    seen: Explained
    shown: tuple[str, ...]
    label: Mapping[str, int]
    check: SanityCheck | None

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of the run: the means over cases, the sanity check and the warnings.

        Returns:
            A dictionary with `run`, `method`, `cases`, `with_region`, `share_inside`, `area_inside`, `hits`,
            `sanity` and `warnings`.
        """
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
        """Name the label of a case.

        Args:
            at: The position of the case in `seen.case`.

        Returns:
            'malignant' or 'benign'.
        """
        return "malignant" if self.label[self.seen.case[at]] else "benign"

    def panel(self, at: int, title: str, *, size_px: int = 320) -> Image:
        """Draw the input of a case side by side with the input under its map.

        Args:
            at: The position of the case in `seen.case`.
            title: The first line of the caption.
            size_px: The longer side of each picture, in pixels.

        Returns:
            The panel as an image.
        """
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
    """Draw maps of a run: of named cases or of cases chosen by rule, and of further cases for the numbers.

    Args:
        run: The name of the run.
        unit: The training whose network is explained.
        outcome: Its outcome, with the saved weights.
        work: The cases and pictures that the training refers to.
        test: The run's test part, with the columns `case`, `label` and `probability`.
        needs: The outcomes of the trainings whose answers it uses, by role; None for none.
        cases: The cases to show; empty to choose them by rule (`choose_cases`).
        choose: How many cases are chosen by rule.
        measure: How many further cases, drawn with `seed`, the numbers rest on.
        method: 'grad-cam' or 'occlusion'; empty for the one that suits the network.
        sanity: Whether the maps are compared with those of networks with random weights.
        device: 'auto', 'cpu', 'cuda' or 'cuda:N'.
        seed: The seed of the drawn cases and of the random weights.

    Returns:
        The maps, the numbers and the sanity check.

    Raises:
        UserError: A named case is not in the test part, there is no case at all, the weights were not
            saved, or the recipe draws no maps.
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
    """Choose the cases to show, and further ones for the numbers."""
    known = list(test["case"])
    if named:
        for case in named:
            if case not in known:
                raise unknown_name("test case", case, known)
        shown = tuple(dict.fromkeys(named))
    else:
        probability = test["probability"].to_numpy(float)
        shown = choose_cases(known, test["label"].to_numpy(), probability, choose)
    rest = [case for case in known if case not in set(shown)]
    drawn = np.random.default_rng(seed).permutation(len(rest))[: max(0, measure)]
    further = tuple(rest[at] for at in sorted(drawn))
    if not shown and not further:
        raise UserError("no case to explain", fix="Give --cases, or a --choose or --measure above 0.")
    return shown, further
