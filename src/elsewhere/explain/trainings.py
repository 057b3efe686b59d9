"""Maps of a training: its saved weights, the input it was trained on, and the chosen cases (US-23)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from elsewhere.engine.training import Outcome, Training, Work
from elsewhere.errors import UserError
from elsewhere.explain.gradcam import Maps, method_for
from elsewhere.explain.localisation import Inside, box_in_input, box_region, relevance_inside
from elsewhere.explain.sanity import SanityCheck, sanity_check
from elsewhere.recipes.pictures.settings import CLASSIFICATION, LESION_BOXES, NEEDS_BOXES, settings_of
from elsewhere.training.pictures.settings import InputSpec

if TYPE_CHECKING:
    import torch

    from elsewhere.networks import Classifier

FAR = 0.1
"""A larger difference between a stored probability and the one computed here gives a warning."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """The maps of some cases of one training, in the pixels of the network's input.

    Args:
        case: The names of the cases.
        method: How the maps were made: 'grad-cam' or 'occlusion'.
        maps: Maps in [0, 1], of shape (n, size, size).
        pixels: The network's input as grey values, of shape (n, size, size).
        box: The annotated lesion in these pixels, of shape (n, 4); zeros where there is none.
        region: What counts as the lesion of each case: 'mask', 'box' or 'none'.
        inside: How much of each map lies in the lesion; None where there is no lesion.
        probability: The probabilities of malignancy that were computed here, from the saved weights.
        stored: The probabilities of the stored run.
    """

    case: tuple[str, ...]
    method: str
    maps: Maps
    pixels: npt.NDArray[np.uint8]
    box: npt.NDArray[np.float64]
    region: tuple[str, ...]
    inside: tuple[Inside | None, ...]
    probability: npt.NDArray[np.float64]
    stored: npt.NDArray[np.float64]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warn where the probabilities computed here differ from the stored ones by more than `FAR`."""
        away = float(np.abs(self.probability - self.stored).max()) if len(self.case) else 0.0
        if away <= FAR:
            return ()
        return (f"probabilities computed here differ from the stored run's by up to {away:.2f}",)


class Explainer:
    """The network of a training with its saved weights, on one device.

    Args:
        unit: A training of the recipe 'picture-classifier'.
        outcome: Its outcome, with the saved weights.
        work: The cases and pictures that the training refers to.
        device: 'auto', 'cpu', 'cuda' or 'cuda:N'.
        needs: The outcomes of the trainings that it needs, by role: that of its finder, where its crops
            are found by a model (US-33).

    Raises:
        UserError: The weights were not saved.
    """

    def __init__(
        self,
        unit: Training,
        outcome: Outcome,
        work: Work,
        *,
        device: str = "auto",
        needs: Mapping[str, Outcome] | None = None,
    ) -> None:
        """Load the network."""
        from elsewhere.networks import build_network
        from elsewhere.training.cuda import select_device

        if not outcome.weights:
            raise UserError(
                f"the weights of {unit.name or unit.key} were not saved",
                fix="Name its scenario in keep_weights under [study], and run the study again.",
            )
        self.unit, self.outcome, self.work = unit, outcome, work
        self.device = select_device(device)
        held = settings_of(unit.recipe)
        self.input: InputSpec = held.input
        self.pictures: Any = work.sources["pictures"]
        finder = (needs or {}).get(NEEDS_BOXES)
        self.found = (
            {} if finder is None else dict(zip(finder.case, finder.answers[LESION_BOXES].best(), strict=True))
        )
        self.model: Classifier = build_network(
            held.training.network, size_px=held.input.size_px, dropout=held.training.dropout
        )
        self.model.load_state_dict(dict(outcome.weights))
        self.model.to(self.device).eval()

    def explain(self, names: Sequence[str], method: str = "") -> Explained:
        """Draw maps of cases.

        Args:
            names: Cases of the training's test part.
            method: 'grad-cam' or 'occlusion'; empty for the one that suits the network.

        Returns:
            The maps, what the network saw, and how much of each map lies in the lesion.

        Raises:
            UserError: The training did not predict one of the cases, or the method does not suit the network.
        """
        import torch

        place = {name: at for at, name in enumerate(self.outcome.case)}
        lost = [name for name in names if name not in place]
        if lost:
            raise UserError(
                f"{self.unit.name} did not predict {lost[0]}", fix="Choose cases of its test part."
            )
        chosen, see = method_for(self.model, method)
        pixels, box, regions, kinds = self._inputs(names)
        images = self._tensor(pixels, names)
        maps = see(self.model, images)
        with torch.no_grad():
            logits = torch.cat([self.model(part) for part in images.split(32)]).double().cpu().numpy()
        known = (
            self.outcome.answers[CLASSIFICATION].logits[[place[name] for name in names]].astype(np.float64)
        )
        inside = relevance_inside(maps, regions)
        return Explained(
            case=tuple(names),
            method=chosen,
            maps=maps,
            pixels=pixels,
            box=box,
            region=kinds,
            inside=tuple(one if kind != "none" else None for one, kind in zip(inside, kinds, strict=True)),
            probability=_probability(logits),
            stored=_probability(known),
        )

    def check(self, names: Sequence[str], *, seed: int, method: str = "", repeats: int = 3) -> SanityCheck:
        """Check whether the maps of cases depend on what the network learnt.

        Args:
            names: Cases of the training's test part.
            seed: The seed of the random weights.
            method: 'grad-cam' or 'occlusion'; empty for the one that suits the network.
            repeats: How many networks with all weights random are compared.

        Returns:
            The result of `sanity_check`.
        """
        import torch

        _, see = method_for(self.model, method)
        images = self._tensor(self._inputs(names)[0], names)
        generator = torch.Generator().manual_seed(seed)
        return sanity_check(self.model, images, see, generator, repeats=repeats)

    def _tensor(self, pixels: npt.NDArray[np.uint8], names: Sequence[str]) -> torch.Tensor:
        import torch

        from elsewhere.training.pictures.augment import plain

        outline = None
        if self.input.outline:
            outline = torch.from_numpy(self._masks(names)).to(self.device)
        return plain(torch.from_numpy(pixels).to(self.device), outline).contiguous()

    def _inputs(self, names: Sequence[str]) -> tuple[npt.NDArray[np.uint8], Any, Any, tuple[str, ...]]:
        """Collect what the network sees of each case, and where the annotated lesion lies in it."""
        spec, cases, size = self.input, self.work.cases, self.input.size_px
        pixels = np.zeros((len(names), size, size), dtype=np.uint8)
        box = np.zeros((len(names), 4))
        regions = np.zeros((len(names), size, size), dtype=bool)
        kinds = []
        masks = self._masks(names)
        for at, name in enumerate(names):
            window = self._window(name)
            pixels[at] = _resized(self.pictures.grey(name), window, spec.size_px)
            annotated = cases.box[cases.row[name]]
            if annotated.any():
                box[at] = box_in_input(annotated, window, size)
            if (masks[at] >= 128).any():
                regions[at] = masks[at] >= 128
                kinds.append("mask")
            elif annotated.any():
                regions[at] = box_region(box[at].tolist(), (size, size))
                kinds.append("box")
            else:
                kinds.append("none")
        return pixels, box, regions, tuple(kinds)

    def _window(self, name: str) -> tuple[int, int, int, int]:
        from elsewhere.training.pictures.crops import crop_window

        height, width = self.pictures.grey(name).shape
        if self.input.kind != "roi":
            return (0, 0, width, height)
        box = (
            self.found.get(name)
            if NEEDS_BOXES in self.unit.needs
            else self.work.cases.box[self.work.cases.row[name]]
        )
        if box is None:
            raise UserError(f"no box was found for {name}: the outcome of its finder is not given")
        return crop_window(box.tolist(), width, height, self.input.margin)[0]

    def _masks(self, names: Sequence[str]) -> npt.NDArray[np.uint8]:
        size = self.input.size_px
        made = np.zeros((len(names), size, size), dtype=np.uint8)
        for at, name in enumerate(names):
            if self.pictures.has_mask(name):
                mask = self.pictures.mask(name, self.pictures.grey(name).shape)
                made[at] = _resized(mask.astype(np.uint8) * 255, self._window(name), size)
        return made


def choose_cases(
    names: Sequence[str], label: npt.ArrayLike, probability: npt.ArrayLike, count: int
) -> tuple[str, ...]:
    """Choose cases to look at by rule and not by eye.

    In turn: the most certain right answer on a malignant and on a benign lesion, then the most certain
    wrong ones. A probability of 0.5 or more is malignant (US-15).

    Args:
        names: The names of the cases.
        label: The label of each case: 1 for malignant, 0 for benign.
        probability: The probability of malignancy of each case.
        count: How many cases to choose at most.

    Returns:
        The chosen names.

    Example:
        >>> choose_cases(["a", "b", "c", "d"], [1, 1, 0, 0], [0.9, 0.4, 0.2, 0.8], 3)
        ('a', 'c', 'b')
    """
    truth, value = np.asarray(label), np.asarray(probability, dtype=np.float64)
    order = np.argsort(-np.abs(value - 0.5), kind="stable")
    said = value >= 0.5
    groups = [
        [names[at] for at in order if truth[at] == wanted and said[at] == (wanted if right else not wanted)]
        for right in (True, False)
        for wanted in (1, 0)
    ]
    chosen: list[str] = []
    while len(chosen) < count and any(groups):
        for group in groups:
            if group and len(chosen) < count:
                chosen.append(group.pop(0))
    return tuple(chosen)


def _resized(
    picture: npt.NDArray[np.uint8], window: tuple[int, int, int, int], size_px: int
) -> npt.NDArray[np.uint8]:
    """Resize on the CPU: the resize of a GPU may differ by a grey level, and a panel need not."""
    import torch

    from elsewhere.training.pictures.crops import resize

    return np.asarray(resize(torch.from_numpy(np.ascontiguousarray(picture)), window, size_px).numpy())


def _probability(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    from scipy.special import expit

    return np.asarray(expit(logits[:, 1] - logits[:, 0]))
