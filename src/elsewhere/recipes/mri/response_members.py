"""What the response recipes with networks share: a job's crops, and an ensemble of networks.

torch is imported at first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from elsewhere.errors import TrainingError
from elsewhere.recipes.base import Job, Prediction, RecipeCase, Trained
from elsewhere.recipes.cost import CostMeter, controlled_cost
from elsewhere.recipes.mri.kept_networks import load_state_of, state_of

if TYPE_CHECKING:
    from elsewhere.training.response.augment import Augmentation
    from elsewhere.training.response.contrast import Contrast
    from elsewhere.training.response.crops import Crops, CropSpec
    from elsewhere.training.response.fitting import FitOptions, Fitted
    from elsewhere.training.response.lesions import LesionSource
    from elsewhere.training.response.networks import ResponseNetwork, Time

Rows = npt.NDArray[np.int64]
MEASURED_CASES = 2


@dataclass(frozen=True, kw_only=True)
class MemberPlan:
    """One network of an ensemble, to be trained.

    Args:
        name: The name of the member, which also names its checkpoint.
        network: One of `RESPONSE_NETWORKS`.
        train: Rows of the crops to learn from.
        watch: Rows of the crops that choose the best epoch; may be empty.
        seed: The job's seed and the member's own numbers.
        epochs: Epochs.
        batch: Crops per step.
        learning_rate: Learning rate of AdamW.
        weight_decay: Weight decay of AdamW.
        augmentation: The ranges that views of a crop are drawn from.
        contrast: SimCLR's loss and its weight over the epochs; None: supervised training alone.
        one_phase: Whether one phase at a time is the input, instead of all as channels.
        weights: 'none', 'kinetics', a folder of NETWORK.pth files, or a file.
        time: 'depth': phases are channels and slices are frames; 'phases': phases are frames.
        keep: Which epoch's weights the member has: the 'best' by validation loss, or the 'last'.
        checkpoint_seconds: Seconds between two checkpoints.
    """

    name: str
    network: str
    train: Rows
    watch: Rows
    seed: tuple[int, ...]
    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float
    augmentation: Augmentation
    contrast: Contrast | None = None
    one_phase: bool = False
    weights: str = "none"
    time: Time = "depth"
    keep: Literal["best", "last"] = "best"
    checkpoint_seconds: float = 120.0


@dataclass(frozen=True, kw_only=True)
class Member:
    """A trained network of an ensemble.

    Args:
        plan: What was asked for.
        network: The trained network.
        fitted: Its history and best epoch.
        options: The options of its training, which prediction needs too.
    """

    plan: MemberPlan
    network: ResponseNetwork
    fitted: Fitted
    options: FitOptions


@dataclass(frozen=True, kw_only=True)
class ResponseWork:
    """The crops of a job's training and validation parts, and how to cut those of its predictions.

    Args:
        job: The job.
        spec: Size, spacing and phases of a crop.
        lesion: How the lesion is found.
        crops: The crops of training and validation cases, on the device.
        label: 0, 1 or -1 per crop.
        notes: What a reader of the report must know.
    """

    job: Job
    spec: CropSpec
    lesion: LesionSource
    crops: Crops
    label: Rows
    notes: tuple[str, ...] = field(default=())

    @staticmethod
    def of(
        job: Job,
        *,
        size: tuple[int, int, int],
        spacing_mm: tuple[float, float, float],
        phases: tuple[str, ...],
        each: bool,
        lesion: str,
        masks: str,
    ) -> ResponseWork:
        """Cut every crop of a job's training and validation parts.

        Where these are all slices the window is one too; what is predicted decides nothing, since it is in no
        key.

        Args:
            job: The job.
            size: Voxels of a crop along x, y and z.
            spacing_mm: Voxel size of a crop.
            phases: The phases of a crop, such as 'p0'; 'p1..px' stands for all after contrast.
            each: Whether every phase has its own z-score, for networks that see one phase at a time.
            lesion: How the lesion is found; one of `training.response.lesions.KINDS`.
            masks: A folder of predicted masks that the crops are found by; empty: none.

        Returns:
            The crops.

        Raises:
            TrainingError: The job has no case to train on.
        """
        from elsewhere.training.response.crops import CropSpec, flat, load_crops

        known = [*job.train, *job.validation]
        if not known:
            raise TrainingError("there is no case to train on")
        if flat(job.volumes, [case.case for case in known]):
            size, spacing_mm = (size[0], size[1], 1), (spacing_mm[0], spacing_mm[1], 1.0)
        spec = CropSpec(size=size, spacing_mm=spacing_mm, phases=phases, each=each)
        source = lesion_source(lesion, masks)
        crops = load_crops(
            job.volumes,
            [case.case for case in known],
            spec,
            source,
            device=job.device,
            threads=job.threads,
            progress=job.progress,
            cache=job.scratch / "crops.npz",
        )
        label = np.array([case.label for case in known], dtype=np.int64)
        unknown = int((label < 0).sum())
        notes = (f"{unknown} cases have no known outcome.",) if unknown else ()
        return ResponseWork(
            job=job, spec=spec, lesion=source, crops=crops, label=label, notes=(*crops.notes, *notes)
        )

    def rows(self, cases: Sequence[RecipeCase]) -> Rows:
        """Return the rows of cases in the crops.

        Args:
            cases: Training or validation cases.

        Returns:
            One row per case.
        """
        return self.crops.rows([case.case for case in cases])

    def fit_member(self, plan: MemberPlan) -> Member:
        """Train one network, or resume the training that a killed run left.

        Args:
            plan: The network and its training.

        Returns:
            The trained network.
        """
        from elsewhere.training.response.fitting import FitOptions, fit
        from elsewhere.training.response.networks import build_response_network

        seed = int(np.random.SeedSequence([*plan.seed, 11]).generate_state(1)[0])
        network = build_response_network(
            plan.network,
            phases=1 if plan.one_phase else self.crops.images.shape[1],
            weights=plan.weights,
            known=self.job.weights,
            seed=seed,
            time=plan.time,
            projection=plan.contrast is not None,
        )
        options = FitOptions(
            name=plan.name,
            epochs=plan.epochs,
            batch=plan.batch,
            learning_rate=plan.learning_rate,
            weight_decay=plan.weight_decay,
            seed=seed,
            device=self.job.device,
            spacing_mm=self.spec.spacing_mm,
            augmentation=plan.augmentation,
            contrast=plan.contrast,
            one_phase=plan.one_phase,
            keep=plan.keep,
            checkpoint=self.job.scratch / f"member-{plan.name}.pt",
            checkpoint_seconds=plan.checkpoint_seconds,
            progress=self.job.progress,
        )
        fitted = fit(
            network,
            self.crops,
            train=plan.train,
            validation=plan.watch,
            label=self.label,
            options=options,
        )
        return Member(plan=plan, network=network, fitted=fitted, options=options)

    def member_probabilities(
        self, members: Sequence[Member], rows: Rows, *, flip: bool
    ) -> npt.NDArray[np.float64]:
        """Return the members' mean probability for training or validation crops.

        Args:
            members: The trained networks.
            rows: Rows of the crops.
            flip: Whether predictions are averaged over mirrored copies.

        Returns:
            One probability of response per row.
        """
        from elsewhere.training.response.fitting import probabilities

        each = [probabilities(m.network, self.crops, rows, options=m.options, flip=flip) for m in members]
        return np.asarray(np.mean(each, axis=0), dtype=np.float64)

    def predict(self, members: Sequence[Member], *, flip: bool) -> dict[str, Any]:
        """Emit every case of the job, and measure the cost of the first ones again under control.

        Args:
            members: The trained networks.
            flip: Whether predictions are averaged over mirrored copies.

        Returns:
            The controlled cost as plain JSON; empty where nothing is predicted.
        """
        job = self.job
        probability = emit_probabilities(
            job,
            [member.network for member in members],
            self.spec,
            self.lesion,
            one_phase=members[0].plan.one_phase,
            flip=flip,
        )
        if not job.predict:
            return {}
        some = [case.case for case in job.predict[:MEASURED_CASES]]
        return controlled_cost(probability, some, device=job.device, repeats=3).to_dict()

    def kept(self, members: Sequence[Member]) -> dict[str, Any] | None:
        """Return the weights where the study saves them.

        Args:
            members: The trained networks.

        Returns:
            The window, and how every member is built with its state; None where weights are not saved.
        """
        if not self.job.keep:
            return None
        return {
            "size": list(self.spec.size),
            "spacing_mm": list(self.spec.spacing_mm),
            "phases": list(self.spec.phases),
            "each": self.spec.each,
            "one_phase": members[0].plan.one_phase,
            "members": [
                {
                    "network": member.plan.network,
                    "channels": 1 if member.plan.one_phase else int(self.crops.images.shape[1]),
                    "time": member.plan.time,
                    "projection": member.plan.contrast is not None,
                    "state": state_of(member.network),
                }
                for member in members
            ],
        }

    def trained(
        self, members: Sequence[Member], *, details: Mapping[str, Any], notes: Sequence[str] = ()
    ) -> Trained:
        """Make what the recipe reports at its end.

        Args:
            members: The trained networks; the history is the first member's.
            details: Further entries of the details, as plain JSON.
            notes: Further notes for the report.

        Returns:
            The report; its details hold every member's best epoch.
        """
        first = members[0]
        return Trained(
            weights=self.kept(members),
            history=first.fitted.history,
            best_epoch=first.fitted.best_epoch,
            images=sum(member.fitted.images for member in members),
            notes=(*self.notes, *notes),
            details={
                "members": [
                    {"name": m.plan.name, "best_epoch": m.fitted.best_epoch, "cases": len(m.plan.train)}
                    for m in members
                ],
                "window_voxels": list(self.spec.size),
                "window_spacing_mm": list(self.spec.spacing_mm),
                "phases": list(self.spec.phases),
                "lesion_found_by": self.lesion.kind,
                **details,
            },
        )


def lesion_source(lesion: str, masks: str) -> LesionSource:
    """Return how crops are found.

    Args:
        lesion: One of `training.response.lesions.KINDS`; it does not count where there are masks.
        masks: A folder of predicted masks; empty: none.

    Returns:
        The source of lesions' boxes.

    Raises:
        UserError: The way is unknown, or there is no such folder.
    """
    from elsewhere.training.response.lesions import LesionSource, masks_in

    if masks:
        return LesionSource(kind="masks", mask_of=masks_in(Path(masks)))
    return LesionSource(kind=lesion)  # type: ignore[arg-type]


def emit_probabilities(
    job: Job,
    networks: list[ResponseNetwork],
    spec: CropSpec,
    lesion: LesionSource,
    *,
    one_phase: bool,
    flip: bool,
) -> Callable[[str], float]:
    """Predict and emit every case of the job.

    The cost of a case includes reading its volume, finding the lesion and all networks.

    Args:
        job: The job.
        networks: The trained networks, whose mean is taken.
        spec: Size, spacing and phases of a crop.
        lesion: How the lesion is found.
        one_phase: Whether the networks take one phase at a time.
        flip: Whether predictions are averaged over mirrored copies.

    Returns:
        The function from a case's name to its probability.
    """
    from elsewhere.training.response.crops import case_crop
    from elsewhere.training.response.fitting import crop_probability

    def probability(case: str) -> float:
        cut, _ = case_crop(job.volumes, case, spec, lesion, device=job.device)
        images = cut.half().unsqueeze(0)
        return float(crop_probability(networks, images, one_phase=one_phase, flip=flip)[0])

    meter = CostMeter(job.device)
    for done, case in enumerate(job.predict, start=1):
        if done == 1 and job.device.startswith("cuda"):
            probability(case.case)
        with meter:
            value = probability(case.case)
        job.emit(Prediction(case=case.case, probability=value, **meter.fields()))
        job.progress("predictions", done, len(job.predict))
    return probability


def apply_members(job: Job, weights: Mapping[str, Any], *, lesion: str, masks: str, flip: bool) -> Trained:
    """Predict from saved networks.

    Args:
        job: The job.
        weights: What `ResponseWork.kept` returned.
        lesion: How the lesion is found; one of `training.response.lesions.KINDS`.
        masks: A folder of predicted masks that the crops are found by; empty: none.
        flip: Whether predictions are averaged over mirrored copies.

    Returns:
        What a report needs to know of the predictions.
    """
    from elsewhere.training.response.crops import CropSpec
    from elsewhere.training.response.networks import build_response_network

    x, y, z = weights["size"]
    dx, dy, dz = weights["spacing_mm"]
    spec = CropSpec(
        size=(x, y, z), spacing_mm=(dx, dy, dz), phases=tuple(weights["phases"]), each=weights["each"]
    )
    networks = []
    for member in weights["members"]:
        network = build_response_network(
            member["network"],
            phases=member["channels"],
            time=member["time"],
            projection=member["projection"],
        )
        load_state_of(network, member["state"])
        networks.append(network.to(job.device).eval())
    source = lesion_source(lesion, masks)
    emit_probabilities(job, networks, spec, source, one_phase=weights["one_phase"], flip=flip)
    return Trained(details={"lesion_found_by": source.kind})
