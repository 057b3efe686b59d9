"""Detectors by name, with their weights (DBT-16)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from elsewhere.errors import UserError, unknown_name
from elsewhere.networks.detectors.anchors import AnchorSettings
from elsewhere.networks.detectors.backbones import find_body_weights, load_body
from elsewhere.networks.detectors.base import Detector
from elsewhere.networks.detectors.csp import SIZES, CspDetector, CspSettings
from elsewhere.networks.detectors.dense_one_stage import DenseOneStage, DenseOneStageSettings
from elsewhere.networks.detectors.efficientdet import EfficientDet, EfficientDetSettings
from elsewhere.networks.detectors.faster_rcnn import COCO, FasterRcnn, FasterRcnnSettings
from elsewhere.networks.detectors.retinanet import RetinaNet, RetinaNetSettings
from elsewhere.networks.weights import fetch_weights

DetectorSettings = (
    FasterRcnnSettings | RetinaNetSettings | EfficientDetSettings | CspSettings | DenseOneStageSettings
)
_SMALL_ANCHORS = AnchorSettings(smallest=16.0)
DETECTORS: Mapping[str, DetectorSettings] = {
    "faster-rcnn": FasterRcnnSettings(),
    "faster-rcnn-resnet101": FasterRcnnSettings(body="resnet101"),
    "faster-rcnn-res2net50": FasterRcnnSettings(body="res2net50"),
    "faster-rcnn-lite0": FasterRcnnSettings(body="efficientnet-lite0", channels=128, head=512),
    "retinanet": RetinaNetSettings(),
    "retinanet-lite0": RetinaNetSettings(body="efficientnet-lite0", channels=128),
    "retinanet-swin": RetinaNetSettings(body="swin-tiny"),
    "efficientdet": EfficientDetSettings(),
    "csp-medium": SIZES["medium"],
    "csp-large": SIZES["large"],
    "dense-one-stage": DenseOneStageSettings(),
    "faster-rcnn-tiny": FasterRcnnSettings(
        body="plain", channels=32, head=64, smallest=16.0, proposals=100, sampled=64
    ),
    "retinanet-tiny": RetinaNetSettings(body="plain", channels=32, depth=1, anchors=_SMALL_ANCHORS),
    "retinanet-swin-tiny": RetinaNetSettings(
        body="swin-small-test", channels=32, depth=1, anchors=_SMALL_ANCHORS
    ),
    "efficientdet-tiny": EfficientDetSettings(
        body="plain", channels=32, repeats=1, depth=1, anchors=_SMALL_ANCHORS
    ),
    "csp-tiny": replace(SIZES["tiny"], anchors=_SMALL_ANCHORS),
    "dense-one-stage-tiny": DenseOneStageSettings(
        growth=8, blocks=(1, 1, 1, 2, 2), first=8, cell=32, anchor=64.0
    ),
}
"""The detectors by name; those with 'tiny' are for tests and small phantoms."""


def detector_settings(name: str) -> DetectorSettings:
    """Return the settings of a detector.

    Args:
        name: One of `DETECTORS`.

    Returns:
        The settings.

    Raises:
        UserError: The name is unknown.

    Example:
        >>> detector_settings("faster-rcnn-resnet101").body
        'resnet101'
    """
    if name not in DETECTORS:
        raise unknown_name("detector", name, sorted(DETECTORS))
    return DETECTORS[name]


def build_detector(
    settings: DetectorSettings | str,
    *,
    weights: str = "none",
    known: Mapping[str, Path] | None = None,
    seed: int = 0,
) -> Detector:
    """Build a detector; fresh weights are drawn from `seed`, and the global random state is not changed.

    Args:
        settings: A name of `DETECTORS`, or settings.
        weights: "none"; "imagenet": the body's; "coco": the whole detector's but its classes, for a Faster R-CNN with
            ResNet-50; or a file with a whole detector or its body.
        known: Files by "body/weights" ("resnet50/coco"), for machines that cannot fetch.
        seed: Seed of the fresh weights.

    Returns:
        The detector on the CPU.

    Raises:
        UserError: The detector is unknown, or its weights are missing or do not fit.

    Example:
        >>> detector = build_detector("csp-tiny").eval()
        >>> detector(torch.zeros(1, 3, 64, 64)).box.shape
        torch.Size([1, 50, 4])
    """
    chosen = detector_settings(settings) if isinstance(settings, str) else settings
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = _build(chosen)
    path = find_detector_weights(chosen, weights, known)
    if path is not None:
        _load(model, chosen, path)
    return model


def _build(settings: DetectorSettings) -> Detector:
    if isinstance(settings, FasterRcnnSettings):
        return FasterRcnn(settings)
    if isinstance(settings, RetinaNetSettings):
        return RetinaNet(settings)
    if isinstance(settings, EfficientDetSettings):
        return EfficientDet(settings)
    if isinstance(settings, CspSettings):
        return CspDetector(settings)
    return DenseOneStage(settings)


def find_detector_weights(
    settings: DetectorSettings, weights: str, known: Mapping[str, Path] | None = None
) -> Path | None:
    """Return the file that a detector starts from.

    Args:
        settings: The detector.
        weights: "none", "imagenet", "coco", or a file.
        known: Files by "body/weights", for machines that cannot fetch.

    Returns:
        The file; None for "none".

    Raises:
        UserError: There is no such file, it cannot be fetched, or no such weights are published.
    """
    body = getattr(settings, "body", None)
    if weights == "none":
        return None
    given = (known or {}).get(f"{body}/{weights}")
    if given is not None:
        return Path(given)
    if weights == "coco":
        if not isinstance(settings, FasterRcnnSettings) or body not in COCO:
            raise UserError(
                "COCO weights are published for a Faster R-CNN with ResNet-50 alone",
                fix="Set weights = 'imagenet' or 'none', or give a file.",
            )
        return fetch_weights(
            COCO[body],
            what="the COCO weights of Faster R-CNN",
            otherwise="give a file (weights = 'FILE'); or weights = 'none', which trains from scratch.",
        )
    if body is None:
        if weights == "imagenet":
            raise UserError(
                "no ImageNet weights are published for this detector",
                fix="Set weights = 'none', or give a file.",
            )
        path = Path(weights)
        if not path.is_file():
            raise UserError(
                "there is no such file of weights", where=weights, fix="Give a file with a state dict."
            )
        return path
    return find_body_weights(body, weights, known)


def _load(model: Detector, settings: DetectorSettings, path: Path) -> None:
    """Load a whole detector, a COCO detector without its classes, or a body."""
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"these weights cannot be loaded ({error})", where=str(path)) from error
    own = model.state_dict()
    if isinstance(state, dict) and set(state) == set(own):
        model.load_state_dict(state)
        return
    if isinstance(state, dict) and any(name.startswith("roi_heads.") for name in state):
        fitting = {_own_name(name): value for name, value in state.items()}
        fitting = {
            name: value for name, value in fitting.items() if not name.startswith("roi_heads.box_predictor")
        }
        wrong = [name for name, value in fitting.items() if name not in own or own[name].shape != value.shape]
        if wrong:
            raise UserError(
                f"these weights do not fit the detector: {len(wrong)} parameters differ, first {wrong[0]}",
                where=str(path),
                fix="Give weights of a Faster R-CNN with the same body and pyramid.",
            )
        model.load_state_dict(fitting, strict=False)
        return
    body = getattr(model, "body", None)
    name = getattr(settings, "body", None)
    if body is None or name is None:
        raise UserError("these are not the weights of this detector", where=str(path))
    load_body(body, name, path)


def _own_name(name: str) -> str:
    """torchvision's older files name the layers of the pyramid and of the proposals' head differently."""
    parts = name.split(".")
    if parts[:2] == ["backbone", "fpn"] and len(parts) == 5:
        return ".".join([*parts[:4], "0", parts[4]])
    if parts[:3] == ["rpn", "head", "conv"] and len(parts) == 4:
        return ".".join([*parts[:3], "0", "0", parts[3]])
    return name
