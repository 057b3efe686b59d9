"""The parameters of a transformer's body in one piece of memory, in the precisions that a step needs."""

from __future__ import annotations

import torch
from torch import nn

ALIGNED = 128
"""Every parameter starts at a multiple of so many elements, as wide loads and matrix products like it."""


class FlatParameters:
    """Single precision values, a copy in the products' precision, and gradients in it, all laid out alike.

    The module's parameters become views of `values`, so its state_dict still works; a module must not be
    moved or cast afterwards. Parameters come in three runs: matrices and embeddings, whose gradients are
    written by themselves; vectors, whose gradients are column sums; and the in-projections' biases, whose
    gradients are summed over attention's blocks.

    Args:
        vit: The module.
        precision: The precision of the copy and the gradients.
    """

    def __init__(self, vit: nn.Module, precision: torch.dtype) -> None:
        named = dict(vit.named_parameters())
        runs = (
            [n for n, p in named.items() if not _is_summed(n, p)],
            [n for n, p in named.items() if _is_summed(n, p) and not n.endswith("in_proj_bias")],
            [n for n in named if n.endswith("in_proj_bias")],
        )
        self._places: dict[str, tuple[int, torch.Size]] = {}
        ends, at = [], 0
        for names in runs:
            for name in names:
                self._places[name] = (at, named[name].shape)
                at += -(-named[name].numel() // ALIGNED) * ALIGNED
            ends.append(at)
        self.vectors = slice(ends[0], ends[1])
        self.attention_biases = slice(ends[1], ends[2])
        device = next(iter(named.values())).device
        self.values = torch.zeros(at, dtype=torch.float32, device=device)
        self.copy = torch.zeros(at, dtype=precision, device=device)
        self.gradient = torch.zeros(at, dtype=precision, device=device)
        with torch.no_grad():
            for name, parameter in named.items():
                view = self.view(self.values, name)
                view.copy_(parameter)
                parameter.data = view
        self.refresh()

    def refresh(self) -> None:
        """Make the copy again, after weights were written to the module."""
        self.copy.copy_(self.values)

    def names(self) -> list[str]:
        """Return the parameters' names.

        Returns:
            Names in the order of the memory.
        """
        return list(self._places)

    def view(self, of: torch.Tensor, name: str) -> torch.Tensor:
        """Return a parameter's part of a buffer of this layout.

        Args:
            of: `values`, `copy`, `gradient`, or a buffer alike.
            name: The parameter.

        Returns:
            A view in the module's own shape.
        """
        at, shape = self._places[name]
        return of[at : at + shape.numel()].view(shape)

    def columns(self, name: str, run: slice) -> slice:
        """Return a vector's columns among the partial sums of its run.

        Args:
            name: The parameter.
            run: `vectors` or `attention_biases`.

        Returns:
            The columns.
        """
        at, shape = self._places[name]
        return slice(at - run.start, at - run.start + shape.numel())


def _is_summed(name: str, parameter: nn.Parameter) -> bool:
    return parameter.dim() == 1 and name.startswith("encoder.")
