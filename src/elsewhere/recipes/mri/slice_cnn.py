"""One slice through the tumour into a network pretrained on ImageNet: the study's own small pCR network."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.volumes import Grid, Volumes
from elsewhere.radiomics.region import case_region
from elsewhere.recipes.base import (
    RESPONSE,
    Job,
    Prediction,
    Recipe,
    RecipeCase,
    RecipeSettings,
    Trained,
    of_label,
    recipes,
)
from elsewhere.recipes.cost import CostMeter
from elsewhere.recipes.mri.kept_networks import load_state_of, state_of
from elsewhere.recipes.mri.response_models import balanced_shift, sigmoid, training_cases

if TYPE_CHECKING:
    import torch

    from elsewhere.networks.classifiers import Classifier

Picture = npt.NDArray[np.uint8]
Phase = npt.NDArray[np.float32]
ENOUGH_TO_SHIFT = 10
"""The fewest validation cases of each class for shifting the operating point; fewer are too uncertain."""
REGION_NOTE = (
    "The slice and the window come from the automatic enhancing region (of a volume, inside both breasts as they "
    "are found), in training and test alike."
)


@dataclass(frozen=True, kw_only=True)
class SliceSettings(RecipeSettings):
    """Settings of the recipe 'slice-cnn'.

    Args:
        network: One of the networks on pictures, such as 'efficientnet-lite0'.
        weights: 'imagenet', 'none', or a file.
        size_px: Pixels along the side of the slice that the network sees.
        crop_mm: Side of the window around the middle of the enhancing region, in mm.
        epochs: Epochs; the last weights are used, because a validation part with a dozen responders would
            choose an epoch by chance.
        batch: Slices per step.
        learning_rate: Peak learning rate of AdamW's one-cycle schedule.
        weight_decay: Weight decay of AdamW.
        dropout: The probability that a feature is dropped before the last layer.
        label_smoothing: The share of the label that goes to all classes.
        rotate_degrees: Largest rotation, both ways, in degrees.
        scale: Smallest and largest random scale.
        shift: Largest random shift, as a share of the window's side.
        brightness: Spread of the random gain, on a log scale.
        test_mirror: Whether predictions are averaged over mirrored slices.
    """

    network: str = "efficientnet-lite0"
    weights: str = "imagenet"
    size_px: int = 160
    crop_mm: float = 64.0
    """Side of the window around the middle of the enhancing region."""
    epochs: int = 15
    """A fixed number; the last weights are used: validation parts of a dozen responders choose an epoch by
    chance."""
    batch: int = 16
    learning_rate: float = 3e-4
    weight_decay: float = 1e-3
    dropout: float = 0.3
    label_smoothing: float = 0.1
    rotate_degrees: float = 20.0
    scale: tuple[float, ...] = (0.85, 1.15)
    shift: float = 0.06
    brightness: float = 0.15
    test_mirror: bool = True


@recipes.register("slice-cnn")
class SliceCnn(Recipe):
    """Predict the response from one slice with phases as channels, by a network with ImageNet weights."""

    title = "Slice CNN"
    answers: ClassVar[Mapping[str, str]] = {RESPONSE: "probability"}
    version = 1
    follows = (
        "No team of the challenge: a small 2D network for the public data. The slice with the largest enhancing region, "
        "before, early and late phase as three channels on one scale; EfficientNet-Lite0 with ImageNet weights; "
        "both classes drawn equally often, slices mirrored, rotated, scaled and brightened."
    )
    keeps: ClassVar[bool] = True
    holds_out_validation: ClassVar[bool] = True
    Settings = SliceSettings

    @classmethod
    def files(cls, settings: SliceSettings) -> dict[str, Path]:
        return {} if settings.weights in ("imagenet", "none") else {"weights": Path(settings.weights)}

    def run(self, job: Job) -> Trained:
        settings: SliceSettings = job.settings
        training_cases(job)
        train, validation = of_label(job.train), of_label(job.validation)
        if len({case.label for case in train}) < 2:
            train, validation = (*train, *validation), ()
        pictures = {
            part: _pictures(job, cases, settings) for part, cases in (("train", train), ("val", validation))
        }
        with _threads(job.threads):
            model = _network(settings, job)
            history = _train(model, job, settings, train, pictures["train"], validation, pictures["val"])
            shift = 0.0
            labels = np.array([case.label for case in validation], dtype=np.int64)
            if min(int((labels == 1).sum()), int((labels == 0).sum())) >= ENOUGH_TO_SHIFT:
                shift = balanced_shift(_logits(model, pictures["val"], job, settings), labels)
            _predict(model, job, settings, shift)
        return Trained(
            weights={"network": state_of(model), "shift": shift} if job.keep else None,
            history=tuple(history),
            best_epoch=settings.epochs,
            images=settings.epochs * _epoch_length(train, settings),
            notes=(REGION_NOTE,),
            details={
                "cases": len(train),
                "responders": sum(case.label for case in train),
                "shift": shift,
            },
        )

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        settings: SliceSettings = job.settings
        with _threads(job.threads):
            model = _network(replace(settings, weights="none"), job)
            load_state_of(model, weights["network"])
            _predict(model, job, settings, float(weights["shift"]))
        return Trained(notes=(REGION_NOTE,))


def slice_picture(volumes: Volumes, case: str, settings: SliceSettings) -> Picture:
    """Cut the slice of a case that the network sees.

    Its channels are the phase before contrast, the early one (first after the agent) and the last. All are
    divided by the brightest early signal of the window, so that what one phase gains over another stays.

    Args:
        volumes: Where the phases are read.
        case: The name of the case.
        settings: Size and window.

    Returns:
        [3, size, size], 8 bit.
    """
    grid = volumes.grid(case)
    before, early = volumes.phase(case, 0), volumes.phase(case, 1)
    last = volumes.phase(case, -1) if volumes.phases(case) > 2 else early
    return _cut((before, early, last), grid, settings)


def _cut(phases: tuple[Phase, Phase, Phase], grid: Grid, settings: SliceSettings) -> Picture:
    from scipy import ndimage

    before, early, last = phases
    region = case_region(before, early, grid)
    at = int(np.argmax(region.sum(axis=(0, 1))))
    middle = np.argwhere(region[:, :, at]).mean(axis=0)
    step = settings.crop_mm / settings.size_px
    offsets = (np.arange(settings.size_px) - (settings.size_px - 1) / 2) * step
    x = middle[0] + offsets / grid.spacing_mm[0]
    y = middle[1] + offsets / grid.spacing_mm[1]
    where = np.meshgrid(y, x, indexing="ij")
    cut = np.stack(
        [
            ndimage.map_coordinates(
                np.asarray(p[:, :, at], dtype=np.float32), [where[1], where[0]], order=1, cval=0.0
            )
            for p in (before, early, last)
        ]
    )
    bright = max(float(np.percentile(cut[1], 99.5)), 1e-6)
    return np.clip(np.rint(cut / bright * 230.0), 0, 255).astype(np.uint8)


def _pictures(job: Job, cases: Sequence[RecipeCase], settings: SliceSettings) -> Picture:
    out = np.zeros((len(cases), 3, settings.size_px, settings.size_px), dtype=np.uint8)
    for at, case in enumerate(cases):
        out[at] = slice_picture(job.volumes, case.case, settings)
        job.progress("slices", at + 1, len(cases))
    return out


def _network(settings: SliceSettings, job: Job) -> Classifier:
    import torch

    from elsewhere.networks.classifiers import build_network
    from elsewhere.networks.weights import find_weights, load_state

    model = build_network(settings.network, size_px=settings.size_px, dropout=settings.dropout, seed=job.seed)
    path = find_weights(settings.network, settings.weights, job.weights)
    if path is not None:
        load_state(model, path)
    return model.to(job.device).to(memory_format=torch.channels_last)


def _epoch_length(train: Sequence[RecipeCase], settings: SliceSettings) -> int:
    """Return the samples of an epoch: as many as there are cases, in whole batches."""
    batch = min(settings.batch, len(train))
    return max(1, len(train) // batch) * batch


def _order(rng: np.random.Generator, labels: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Draw half of an epoch from each class; every case of a class is drawn before one is drawn again."""
    rows = []
    for c, n in ((1, count // 2), (0, count - count // 2)):
        own = np.flatnonzero(labels == c)
        turns = [rng.permutation(own) for _ in range(math.ceil(n / len(own)))]
        rows.append(np.concatenate(turns)[:n])
    return rng.permutation(np.concatenate(rows))


def _train(
    model: Classifier,
    job: Job,
    settings: SliceSettings,
    train: Sequence[RecipeCase],
    pictures: Picture,
    validation: Sequence[RecipeCase],
    watched: Picture,
) -> list[dict[str, float]]:
    import torch

    rng = np.random.default_rng([job.seed, 17])
    labels = np.array([case.label for case in train], dtype=np.int64)
    images = torch.from_numpy(pictures).to(job.device)
    target = torch.from_numpy(labels).to(job.device)
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=images.is_cuda,
    )
    length = _epoch_length(train, settings)
    batch = min(settings.batch, len(train))
    steps = length // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, settings.learning_rate, total_steps=max(2, settings.epochs * steps), pct_start=0.2
    )
    history = []
    for epoch in range(settings.epochs):
        start, total = time.perf_counter(), 0.0
        model.train()
        order = torch.from_numpy(_order(rng, labels, length)).to(job.device)
        affine, light, keep = _draws(rng, length, settings, model.features, job.device)
        for step in range(steps):
            part = slice(step * batch, (step + 1) * batch)
            rows = order[part]
            x = _views(images.index_select(0, rows), affine[part], light[part])
            with _autocast(job.device):
                logits = model(x, keep[part])
            loss = torch.nn.functional.cross_entropy(
                logits.float(), target.index_select(0, rows), label_smoothing=settings.label_smoothing
            )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
        history.append(
            {
                "epoch": float(epoch + 1),
                "train_loss": total / steps,
                "validation_loss": _loss(_logits(model, watched, job, settings), validation),
                "seconds": time.perf_counter() - start,
            }
        )
        job.progress("epochs", epoch + 1, settings.epochs)
    return history


def _draws(
    rng: np.random.Generator, count: int, settings: SliceSettings, features: int, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw all that is random in an epoch: the affine maps, the brightness of each channel, and dropout."""
    import torch

    angle = np.deg2rad(rng.uniform(-settings.rotate_degrees, settings.rotate_degrees, count))
    size = rng.uniform(settings.scale[0], settings.scale[1], count)
    flip = np.where(rng.random((count, 2)) < 0.5, -1.0, 1.0)
    theta = np.zeros((count, 2, 3), dtype=np.float32)
    theta[:, 0, 0], theta[:, 0, 1] = np.cos(angle) / size * flip[:, 0], -np.sin(angle) / size * flip[:, 1]
    theta[:, 1, 0], theta[:, 1, 1] = np.sin(angle) / size * flip[:, 0], np.cos(angle) / size * flip[:, 1]
    theta[:, :, 2] = rng.uniform(-2 * settings.shift, 2 * settings.shift, (count, 2))
    b = settings.brightness
    light = np.exp(rng.uniform(-b, b, (count, 1)) + rng.uniform(-b / 3, b / 3, (count, 3)))
    keep = rng.random((count, features)) >= settings.dropout
    return (
        torch.from_numpy(theta).to(device),
        torch.from_numpy(light.astype(np.float32)).to(device),
        torch.from_numpy(keep).to(device),
    )


def _views(images: torch.Tensor, affine: torch.Tensor, light: torch.Tensor) -> torch.Tensor:
    from torch import channels_last
    from torch.nn import functional

    x = images.float().mul_(1 / 255)
    grid = functional.affine_grid(affine, list(x.shape), align_corners=False)
    x = functional.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return (x * light[:, :, None, None]).clamp_(0, 1).contiguous(memory_format=channels_last)


def _logits(
    model: Classifier, pictures: Picture, job: Job, settings: SliceSettings
) -> npt.NDArray[np.float64]:
    """Return the responder's logit minus the non-responder's, averaged over mirrored slices if asked for."""
    import torch

    model.eval()
    found = []
    with torch.inference_mode(), _autocast(job.device):
        for start in range(0, len(pictures), 64):
            x = torch.from_numpy(pictures[start : start + 64]).to(job.device).float().mul_(1 / 255)
            x = x.contiguous(memory_format=torch.channels_last)
            views = [x, x.flip(2), x.flip(3), x.flip(2, 3)] if settings.test_mirror else [x]
            logits = model(torch.cat(views)).float().view(len(views), len(x), -1).mean(0)
            found.append((logits[:, 1] - logits[:, 0]).cpu().numpy().astype(np.float64))
    return np.concatenate(found) if found else np.zeros(0)


def _loss(logit: npt.NDArray[np.float64], cases: Sequence[RecipeCase]) -> float:
    if not len(cases):
        return math.nan
    y = np.array([case.label for case in cases])
    return float(np.logaddexp(0.0, np.where(y == 1, -logit, logit)).mean())


def _predict(model: Classifier, job: Job, settings: SliceSettings, shift: float) -> None:
    meter = CostMeter(job.device)
    if job.device.startswith("cuda") and job.predict:
        # The first pass of a shape chooses its kernels: this is not part of any case's cost.
        blank = np.zeros((1, 3, settings.size_px, settings.size_px), dtype=np.uint8)
        _logits(model, blank, job, settings)
    for at, case in enumerate(job.predict):
        with meter:
            picture = slice_picture(job.volumes, case.case, settings)
            logit = _logits(model, picture[None], job, settings)[0]
        p = float(sigmoid(np.array([logit + shift]))[0])
        job.emit(Prediction(case=case.case, probability=p, **meter.fields()))
        job.progress("predict", at + 1, len(job.predict))


def _autocast(device: str) -> Any:
    """Use bf16 on a GPU, and single precision on a CPU."""
    import torch

    kind = torch.device(device).type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, count))
    try:
        yield
    finally:
        torch.set_num_threads(before)
