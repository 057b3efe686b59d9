"""How a segmentation network is trained: lengths, rates and the optimiser."""

from __future__ import annotations

from dataclasses import dataclass

from elsewhere.errors import UserError


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How a segmentation network is trained.

    Attributes:
        epochs: Rounds of `steps_per_epoch` steps.
        steps_per_epoch: Updates per epoch.
        batch: Patches per step; 0: the plan's.
        optimiser: "sgd" (Nesterov momentum) or "adamw".
        learning_rate: Learning rate of the first epoch; it falls by the poly schedule.
        weight_decay: Weight decay of the optimiser.
        momentum: Nesterov momentum of "sgd".
        gradient_norm: Gradients of a larger norm are scaled down to it.
        foreground: The share of patches that are centred on a lesion.
        augment: Change the patches.
        keep: "last" (nnU-Net's) or "best", by the smoothed Dice of validation patches.
        validation_steps: Batches of validation patches per epoch.
        checkpoint_every: Epochs between two checkpoints.
        compiled: Use torch.compile on a GPU; a CPU runs the plain step.

    Example:
        >>> FitSettings(epochs=2, steps_per_epoch=4).rate_at(1) < 0.01
        True
    """

    epochs: int = 1000
    steps_per_epoch: int = 250
    batch: int = 0
    optimiser: str = "sgd"
    learning_rate: float = 0.01
    weight_decay: float = 3e-5
    momentum: float = 0.99
    gradient_norm: float = 12.0
    foreground: float = 1 / 3
    augment: bool = True
    keep: str = "last"
    validation_steps: int = 50
    checkpoint_every: int = 25
    compiled: bool = True

    def __post_init__(self) -> None:
        for name in ("epochs", "steps_per_epoch", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.keep not in ("last", "best"):
            raise UserError(f"keep must be 'last' or 'best', not '{self.keep}'")
        if self.optimiser not in ("sgd", "adamw"):
            raise UserError(f"optimiser must be 'sgd' or 'adamw', not '{self.optimiser}'")
        if not 0 <= self.foreground <= 1:
            raise UserError(f"foreground must lie in 0 to 1, not {self.foreground}")

    def rate_at(self, epoch: int) -> float:
        """Return the learning rate of an epoch by the poly schedule: rate x (1 - epoch / epochs) ^ 0.9.

        Args:
            epoch: The number of the epoch, from 0.

        Returns:
            The rate.
        """
        return self.learning_rate * (1 - epoch / self.epochs) ** 0.9
