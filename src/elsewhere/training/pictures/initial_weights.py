"""The weights that a picture classifier's training starts with."""

from __future__ import annotations

import math

import numpy as np
import torch

from elsewhere.networks import build_network, find_weights, load_state
from elsewhere.training.pictures.settings import PictureTraining, PictureWork


class InitialWeights:
    """Published weights, read from their files once, or weights drawn from a training's seed.

    Args:
        work: Where the files of published weights are.
        device: Where the weights are put.
    """

    def __init__(self, work: PictureWork, device: torch.device) -> None:
        self._work, self.device = work, device
        self._published: dict[tuple[str, str, int], dict[str, torch.Tensor]] = {}

    def load(self, unit: PictureTraining) -> None:
        """Read the published weights of a training; call it before the training starts.

        Args:
            unit: The training.

        Raises:
            UserError: The weights are not there, or do not fit the network.
        """
        recipe, size = unit.recipe, unit.input.size_px
        name = (recipe.network, recipe.weights, size)
        if recipe.weights == "none" or name in self._published:
            return
        path = find_weights(recipe.network, recipe.weights, self._work.weights)
        model = build_network(recipe.network, size_px=size, dropout=recipe.dropout, seed=0)
        if path is not None:
            load_state(model, path)
        self._published[name] = {key: value.to(self.device) for key, value in model.state_dict().items()}

    def state(self, unit: PictureTraining) -> dict[str, torch.Tensor]:
        """Return the weights that a training starts with. The head is always drawn from the training's seed.

        Args:
            unit: The training; `load` was called for it.

        Returns:
            A state dict on the device.
        """
        recipe, size = unit.recipe, unit.input.size_px
        seed = int(np.random.SeedSequence([unit.seed, 1]).generate_state(1)[0])
        if recipe.weights == "none":
            with torch.device(self.device):
                fresh = build_network(recipe.network, size_px=size, dropout=recipe.dropout, seed=seed)
            return fresh.state_dict()
        state = dict(self._published[recipe.network, recipe.weights, size])
        generator = torch.Generator().manual_seed(seed)
        width = state["head.weight"].shape[1]
        bound = 1.0 / math.sqrt(width)
        for key in ("head.weight", "head.bias"):
            drawn = torch.empty(state[key].shape).uniform_(-bound, bound, generator=generator)
            state[key] = drawn.to(self.device)
        return state
