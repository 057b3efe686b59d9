"""What all detectors of lesions in volumes share: training of named networks, prediction volume by volume, saved weights.

A recipe says which networks it trains on which cases (`learn`), how one of them is built anew (`build`), and how the
boxes of one volume are found with them (`find`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from elsewhere.boxes import Boxes
from elsewhere.errors import UserError
from elsewhere.recipes.base import Job, Prediction, Recipe, RecipeCase, Trained
from elsewhere.recipes.cost import CostMeter
from elsewhere.recipes.tomosynthesis.settings import DetectorSettings, fit_options, sampling_of

if TYPE_CHECKING:
    import torch

    from elsewhere.engine.training import RecipeSpec
    from elsewhere.networks.detectors import Detector
    from elsewhere.networks.detectors.building import DetectorSettings as NetworkSettings
    from elsewhere.networks.detectors.slice_classifier import SliceClassifier
    from elsewhere.training.detection.device_slices import DeviceSlices
    from elsewhere.training.detection.fitting import FitOptions, Fitted
    from elsewhere.training.detection.sampling import SliceTable

DETECTION = "detection"
Networks = Mapping[str, Any]
"""Trained networks by name, on the device of the job."""


@dataclass(kw_only=True)
class Learned:
    """The trained networks of a job, and what a report says of their trainings.

    Args:
        networks: The networks by name.
        history: One entry per epoch of each network, with its number.
        best_epoch: The epoch of the last network's weights.
        tiles: Tiles that were trained on.
        notes: What a reader of the report must know.
        details: Plain JSON.
    """

    networks: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    tiles: int = 0
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, network: Any, fitted: Fitted, *, keep: bool = True) -> None:
        """Take a finished training up.

        Args:
            name: The network's name.
            network: The network.
            fitted: The report of its training.
            keep: Whether it predicts; otherwise only its training is reported.
        """
        number = float(len(self.details.setdefault("networks", [])))
        self.details["networks"].append(name)
        self.history += [dict(entry) | {"network": number} for entry in fitted.history]
        self.best_epoch, self.tiles = fitted.best_epoch, self.tiles + fitted.tiles
        if keep:
            self.networks[name] = network


class VolumeDetector(Recipe):
    """A recipe that answers with boxes in volumes of tomosynthesis."""

    reads: ClassVar[str] = "tomosynthesis"
    answers: ClassVar[Mapping[str, str]] = {DETECTION: "boxes"}
    keeps: ClassVar[bool] = True
    Settings = DetectorSettings

    def learn(self, job: Job) -> Learned:
        """Train the networks of a job.

        Args:
            job: The job.

        Returns:
            The networks by name.

        Raises:
            NotImplementedError: A recipe has to say what it trains.
        """
        raise NotImplementedError(type(self).__name__)

    def build(self, settings: Any, name: str) -> torch.nn.Module:
        """Build a network without weights, for saved ones.

        Args:
            settings: The recipe's settings.
            name: The network's name in `Learned.networks`.

        Returns:
            The network on the CPU.
        """
        from elsewhere.networks.detectors import build_detector

        return build_detector(settings.network)

    def find(self, job: Job, networks: Networks, case: str) -> Boxes:
        """Find the lesions of one volume.

        Args:
            job: The job.
            networks: Its trained networks.
            case: The case.

        Returns:
            Boxes in pixels of the volume.

        Raises:
            NotImplementedError: A recipe has to say how.
        """
        raise NotImplementedError(type(self).__name__)

    @classmethod
    def files(cls, settings: Any) -> Mapping[str, Path]:
        """Return the file of weights that the settings name.

        Args:
            settings: The recipe's settings.

        Returns:
            The file by setting; empty where the weights are published ones, or none.
        """
        return {} if settings.weights_file is None else {"weights": settings.weights_file}

    @classmethod
    def published_weights(cls, spec: RecipeSpec) -> tuple[str, ...]:
        """Return the bodies whose ImageNet weights a training starts from.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            Names of bodies.
        """
        if spec.settings.get("weights") != "imagenet":
            return ()
        from elsewhere.networks.detectors import detector_settings

        body = getattr(detector_settings(str(spec.settings["network"])), "body", "")
        return (body,) if body else ()

    def run(self, job: Job) -> Trained:
        """Train on `job.train`, choose on `job.validation`, and predict `job.predict`.

        Args:
            job: What to train and predict.

        Returns:
            The report, with the weights where `job.keep` is set.
        """
        learned = self.learn(job)
        self._emit(job, learned.networks)
        learned.details["parameters"] = sum(
            value.numel() for network in learned.networks.values() for value in network.parameters()
        )
        return Trained(
            history=tuple(learned.history),
            best_epoch=learned.best_epoch,
            images=learned.tiles,
            notes=tuple(learned.notes),
            details=learned.details,
            weights=_states(learned.networks) if job.keep else None,
        )

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        """Predict `job.predict` with saved weights.

        Args:
            job: What to predict.
            weights: What `run` handed over.

        Returns:
            The report.

        Raises:
            UserError: The weights do not fit the networks of this version.
        """
        networks = {}
        for name, state in weights["networks"].items():
            network = self.build(job.settings, str(name))
            try:
                network.load_state_dict(dict(state))
            except RuntimeError as error:
                raise UserError(
                    f"the saved weights do not fit the network of this version ({str(error).splitlines()[0]})",
                    fix="Use the version of Elsewhere that trained them, or train again.",
                ) from error
            networks[str(name)] = _on_device(network, job.device).eval()
        self._emit(job, networks)
        return Trained()

    def _emit(self, job: Job, networks: Networks) -> None:
        """Predict each volume by itself, with its cost; boxes are clipped to the volume."""
        meter = CostMeter(job.device)
        for done, case in enumerate(job.predict, start=1):
            with meter:
                found = self.find(job, networks, case.case)
            held = clip_to_volume(found, job.pixels.shape(case.case)).best(job.settings.boxes_per_volume)
            answer = held.corners(), held.score
            job.emit(Prediction(case=case.case, answers={DETECTION: answer}, **meter.fields()))
            job.progress("predict", done, len(job.predict))


def _states(networks: Networks) -> dict[str, Any]:
    return {
        "networks": {
            name: {key: value.detach().cpu() for key, value in network.state_dict().items()}
            for name, network in networks.items()
        }
    }


def _on_device(network: torch.nn.Module, device: str) -> torch.nn.Module:
    from elsewhere.training.cuda import select_device
    from elsewhere.training.detection.device_slices import lay_out

    return lay_out(network.to(select_device(device)))


def clip_to_volume(boxes: Boxes, shape: tuple[int, int, int]) -> Boxes:
    """Cut boxes at the borders of their volume; what lies outside is dropped.

    Args:
        boxes: Boxes in pixels of the volume.
        shape: Rows, columns and slices of the volume.

    Returns:
        Boxes inside the volume, in their order.

    Example:
        >>> clip_to_volume(Boxes.on_slice([[-4, 2, 9, 8], [50, 0, 60, 9]], [0.5, 0.4], 2), (40, 30, 3)).plane.tolist()
        [[0.0, 2.0, 9.0, 8.0]]
    """
    rows, columns, slices = shape
    corners = np.clip(boxes.corners(), 0, [columns, rows, slices, columns, rows, slices])
    solid = (corners[:, 3:] > corners[:, :3]).all(axis=1)
    return Boxes.in_volume(corners[solid], boxes.score[solid], boxes.label[solid])


def network_seed(job: Job, number: int) -> int:
    """Return the seed of one of a job's networks.

    Args:
        job: The job.
        number: Which network.

    Returns:
        The seed.
    """
    return int(np.random.SeedSequence([job.seed, number]).generate_state(1)[0])


def with_volume(job: Job, cases: Sequence[RecipeCase]) -> list[str]:
    """Return the names of cases whose volume can be read.

    Args:
        job: The job.
        cases: Cases of it.

    Returns:
        Their names.
    """
    return [case.case for case in cases if case.case in job.pixels]


def have_lesions(job: Job, cases: Sequence[RecipeCase]) -> bool:
    """Tell whether a detector can learn from some cases.

    Args:
        job: The job.
        cases: Cases that it learns from.

    Returns:
        Whether one of them has an annotated lesion.
    """
    return any(job.pixels.lesions(name) for name in with_volume(job, cases))


@dataclass(frozen=True, kw_only=True)
class Member:
    """One network of a job: what it is, and what it learns from.

    Args:
        name: Its name, also that of its checkpoint.
        number: Its number, from which its seed follows.
        train: The cases to learn from.
        validation: The cases that the best epoch is chosen by; none: the last epoch counts.
        network: Another network than that of the settings: a name, or settings.
        view: Another view of the volumes than the job's.
        start: A trained network to go on from, in place of a new one.
        detections: Detections in actionable volumes, by case, that are learned as background.
    """

    name: str
    number: int = 0
    train: Sequence[RecipeCase]
    validation: Sequence[RecipeCase] = ()
    network: str | NetworkSettings | None = None
    view: Any = None
    start: Detector | None = None
    detections: Mapping[str, Boxes] | None = None


def train_member(
    job: Job, settings: DetectorSettings, member: Member, learned: Learned, *, keep: bool = True
) -> Detector:
    """Train one detector, and take its training up. A training that was stopped resumes from its checkpoint.

    Args:
        job: The job.
        settings: The recipe's settings, or changed ones for this network.
        member: The network and its cases.
        learned: Where the network and its history go.
        keep: Whether the network predicts.

    Returns:
        The detector in evaluation mode.

    Raises:
        TrainingError: No training case has a lesion, the loss is no number any more, or the device has too little
            memory.
    """
    from elsewhere.training.detection.fitting import fit_detector
    from elsewhere.training.detection.sampling import list_slices

    view = job.pixels if member.view is None else member.view
    seed = network_seed(job, member.number)
    sampling = sampling_of(settings)
    rng = np.random.default_rng([seed, 0])
    train = list_slices(view, with_volume(job, member.train), sampling, rng=rng, detections=member.detections)
    only_lesions = replace(sampling, negatives=0.0, actionable=0.0)
    validation = list_slices(view, with_volume(job, member.validation), only_lesions, rng=rng)
    options = fit_options(job, settings, name=member.name, seed=seed)
    stored = store_tables(job, view, (train, validation), options)
    network = member.start
    if network is None:
        network = _new_detector(job, settings, member, seed)
    fitted = fit_detector(
        network, stored, train=train, validation=validation if len(validation) else None, options=options
    )
    learned.add(member.name, network.eval(), fitted, keep=keep)
    return network


def _new_detector(job: Job, settings: DetectorSettings, member: Member, seed: int) -> Detector:
    from elsewhere.networks.detectors import build_detector

    network = settings.network if member.network is None else member.network
    built = build_detector(network, weights=settings.weights, known=job.weights, seed=seed % 2**31)
    on_device: Detector = _on_device(built, job.device)  # type: ignore[assignment]
    return on_device


def store_tables(job: Job, view: Any, tables: Sequence[SliceTable], options: FitOptions) -> DeviceSlices:
    """Put the slices of a training on the device.

    Args:
        job: The job.
        view: The volumes.
        tables: The slices of its parts.
        options: How it is trained.

    Returns:
        The stored slices.
    """
    from elsewhere.training.cuda import select_device
    from elsewhere.training.detection.device_slices import DeviceSlices

    pairs = [pair for table in tables for pair in zip(table.case, table.z.tolist(), strict=True)]
    return DeviceSlices(
        view,
        pairs,
        options.inference.storage,
        select_device(job.device),
        neighbours=options.inference.neighbours,
    )


def train_classifier(
    job: Job,
    options: FitOptions,
    tables: tuple[SliceTable, SliceTable | None],
    build: Callable[[], SliceClassifier],
    learned: Learned,
) -> SliceClassifier:
    """Train a classifier of slices or tiles, and take its training up.

    Args:
        job: The job.
        options: How it is trained; their name is the network's.
        tables: What it learns from, and what its best epoch is chosen by.
        build: Makes the classifier on the CPU.
        learned: Where the network and its history go.

    Returns:
        The classifier in evaluation mode.

    Raises:
        TrainingError: One of the two kinds of slices is missing, or the device has too little memory.
    """
    from elsewhere.training.detection.fitting import fit_slice_classifier

    train, validation = tables
    held = [table for table in (train, validation) if table is not None]
    stored = store_tables(job, job.pixels, held, options)
    network: SliceClassifier = _on_device(build(), job.device)  # type: ignore[assignment]
    fitted = fit_slice_classifier(network, stored, train=train, validation=validation, options=options)
    learned.add(options.name, network.eval(), fitted)
    return network


def slices_of(job: Job, case: str) -> int:
    """Return how many slices a volume has.

    Args:
        job: The job.
        case: The case.

    Returns:
        The number.
    """
    return int(job.pixels.shape(case)[2])
