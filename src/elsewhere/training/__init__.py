"""Training on one device: many trainings in one process (US-12 to US-16, US-31). Needs torch and numpy.

Every loop uses `training.loop` (epochs, best weights, checkpoints, history) and `training.cuda` (device,
precision, determinism, CUDA graphs): `pictures` (classifiers), `detection` (lesion finders), `volumes`
(segmentation), `joint` (pretraining and shared encoders, trained by the loop of `volumes`) and `response`
(lesion crops).
"""

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
    """Train picture classifiers and lesion finders on one device, and let each predict.

    The numbers of a training do not depend on what trains at the same time.

    Args:
        units: The trainings.
        work: Cases, pictures and files of weights.
        device: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:N".
        lanes: Trainings at the same time on a GPU, each a CUDA graph on a stream of its own; 0: the default
            of the network.
        finished: Called with every outcome.
        failed: Called with the reason of every training that could not run.
        progress: Called with "trainings", how many are done, and how many there are.
        stop: Asked before a training starts; True leaves the rest undone.

    Raises:
        UserError: There is no such device, its memory is too small, or weights are missing.

    Example:
        >>> train_units([], None, finished=print, failed=print)
    """
    from elsewhere.training.pictures.concurrent import Callbacks, train_all

    callbacks = Callbacks(finished=finished, failed=failed, progress=progress, stop=stop)
    train_all(units, work, device=device, lanes=lanes, callbacks=callbacks)
