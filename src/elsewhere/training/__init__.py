"""Training on one device: many units in one process (US-12 to US-16, US-31). Needs torch and numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elsewhere.training.pictures.settings import Failed, Finished, PictureTraining, PictureWork

__all__ = ["train_units"]


def train_units(
    units: Sequence[PictureTraining],
    work: PictureWork,
    *,
    device: str = "auto",
    lanes: int = 0,
    finished: Finished,
    failed: Failed,
    progress: Callable[[str, int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> None:
    """Train and predict `units` on one device.

    `lanes`: trainings side by side on a GPU, each a CUDA graph on a stream of its own (0: the default of the
    network). The numbers of a unit do not depend on what runs beside it. `stop`: asked before a unit starts;
    True leaves the rest undone.
    """
    from elsewhere.training.lanes import train_all

    train_all(
        units,
        work,
        device=device,
        lanes=lanes,
        finished=finished,
        failed=failed,
        progress=progress,
        stop=stop,
    )
