"""A unit of work: one training with all its predictions. Plain data that travels as JSON.

A unit's key is the hash of everything its numbers depend on, so that the same training is never done twice
(US-10: a source's training serves all its targets).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.engine.packed_masks import PackedMask
from elsewhere.inputs import Cases, Pictures
from elsewhere.inputs.volumes import Volumes

UNIT_VERSION = 1
"""Goes up when the same unit would give other numbers; older results are then not taken for the same."""
RECIPE = "recipe"
COSTS = ("seconds", "peak_bytes", "energy_joule")
"""What `Outcome.cost` holds of a case and task (MRI-12), NaN where it was not measured."""


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """What the network sees (US-12, US-13)."""

    kind: str = "whole"
    """'whole' image or 'roi', the lesion crop."""
    size_px: int = 224
    margin: float = 0.12
    """The crop grows on each side by this part of the box's larger side; no meaning for 'whole'."""
    outline: bool = False
    """True: the third channel is the lesion's mask instead of the picture (not in the study)."""


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """How a network is trained (US-14). The defaults are the study's CNN."""

    network: str = "efficientnet-b0"
    weights: str = "imagenet"
    """'imagenet', 'none', or a file."""
    weights_digest: str = ""
    learning_rate: float = 1e-4
    batch: int = 16
    epochs: int = 10
    weight_decay: float = 1e-4
    """L2, as a part of the gradient (Adam, not AdamW)."""
    gradient_norm: float = 5.0
    patience: int = 5
    mirror: bool = True
    rotate_degrees: float = 10.0
    shift_px: float = 10.0
    scale: tuple[float, float] = (0.9, 1.1)
    oversample: bool = True
    schedule: str = "constant"
    """'constant' or 'cosine' over the epochs."""
    batch_statistics: str = "population"
    """'population': before each check, batch-norm means and variances are taken anew over the training part
    (as the study's software does); 'running': the moving averages, which lag on small sources."""
    keep: str = "best"
    """'best' validation loss, or 'last'."""
    dropout: float = 0.2
    brightness: float = 0.0
    """Contrast, gain and gamma jitter, 0 none (not in the study)."""
    noise: float = 0.0
    """Speckle jitter, 0 none (not in the study)."""
    erase: float = 0.0
    label_smoothing: float = 0.0
    test_mirror: bool = False
    """Average the logits of the picture and its mirror image at prediction."""
    balance_datasets: bool = False
    """Several sources: each dataset is drawn equally often."""
    method: str = "plain"
    """'plain', 'group-dro', 'coral' or 'mixstyle' (US-31)."""
    strength: float = 0.0
    """Of the method: CORAL's weight, group-DRO's step, MixStyle's probability; 0: the method's default."""


@dataclass(frozen=True, kw_only=True)
class RecipeSpec:
    """Which published method trains, and how (MRI-14, MRI-15): all of it counts in a unit's key."""

    name: str
    version: int = 1
    """Of the recipe's own code."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Plain values, every default written out."""
    tasks: tuple[str, ...] = ()
    """'segmentation', 'response', in this order."""
    clinical: bool = False
    """It reads clinical columns of what it predicts."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Digests of the files that settings name (weights, a folder of masks), by setting."""

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> RecipeSpec:
        values = {"name": content["name"], **_typed(cls(name=""), content)}
        return cls(**values | {"tasks": _names(values.get("tasks", ()), "tasks")})

    def to_dict(self) -> dict[str, Any]:
        """As JSON gives it back: lists, no tuples. Without files it is what it was before there were any, for
        keys rest on it."""
        content = dict(json.loads(json.dumps(asdict(self))))
        if not self.files:
            del content["files"]
        return content


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training. `train`, `validation` and `predict` name cases of the study ('DATASET/case_id')."""

    key: str = ""
    name: str = ""
    kind: str = "classify"
    """'classify', 'find-boxes' (US-33), or 'recipe': a published method, whose `job` says which."""
    train: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    predict: tuple[str, ...] = ()
    input: InputSpec = field(default_factory=InputSpec)
    recipe: ClassifierSettings = field(default_factory=ClassifierSettings)
    seed: int = 0
    keep_weights: bool = False
    boxes_from: str = ""
    """Key of the 'find-boxes' unit whose boxes replace the annotated ones at prediction (US-33)."""
    job: RecipeSpec | None = None
    """Of kind 'recipe'; `input` and `recipe` then say nothing."""

    @property
    def method(self) -> str:
        """What trains: the network, or the recipe's name."""
        return self.recipe.network if self.job is None else self.job.name

    def to_dict(self) -> dict[str, Any]:
        content = asdict(self)
        if self.job is None:
            del content["job"]
            return content
        del content["input"], content["recipe"]
        return content | {"job": self.job.to_dict()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Training:
        """The unit that `to_dict` wrote. TypeError where a value is of another type: it may come from elsewhere."""
        rest = {name: value for name, value in content.items() if name not in ("input", "recipe", "job")}
        values = _typed(cls(), rest)
        for name, made in (("input", InputSpec()), ("recipe", ClassifierSettings())):
            given = content.get(name, {})
            strange = sorted(set(_mapping(given, name)) - {f.name for f in fields(made)})
            if strange:
                raise TypeError(f"{name} has an unknown '{strange[0]}'")
            values[name] = replace(made, **_typed(made, given))
        if content.get("job") is not None:
            values["job"] = RecipeSpec.from_dict(_mapping(content["job"], "job"))
        for name in ("train", "validation", "predict"):
            values[name] = _names(values.get(name, ()), name)
        return cls(**values)

    def fingerprints(self, cases: Cases) -> npt.NDArray[np.uint64]:
        """What this unit sees of every case: its pixels; its box too for a crop; its mask too where that is
        a channel or what is learnt. A recipe is given no mask of what it predicts, and clinical values only
        where it says that it reads them.
        """
        if self.job is not None:
            prints = cases.fingerprints(with_box=False)
            return _mixed(prints, cases.clinical_prints) if self.job.clinical else prints
        with_mask = self.input.outline or self.kind == "find-boxes"
        return cases.fingerprints(with_box=self.input.kind == "roi" or with_mask, with_mask=with_mask)

    def with_key(self, cases: Cases) -> Training:
        """The unit with its key. Names of cases do not count; their pixels, boxes, labels, order and
        (for methods that use it) dataset do. What is predicted does not: see `Outcome.covers`.
        """
        if self.job is not None:
            return replace(self, key=_hash(self._recipe_content(cases, self.job)))
        prints = self.fingerprints(cases)

        def part(names: tuple[str, ...]) -> list[list[Any]]:
            rows = cases.rows(names)
            groups = {name: at for at, name in enumerate(dict.fromkeys(cases.dataset[r] for r in rows))}
            return [
                [format(int(prints[r]), "016x"), int(cases.label[r]), groups[cases.dataset[r]]] for r in rows
            ]

        content = {
            "version": UNIT_VERSION,
            "kind": self.kind,
            "input": asdict(self.input),
            "recipe": asdict(self.recipe),
            "seed": self.seed,
            "boxes_from": self.boxes_from,
            "train": part(self.train),
            "validation": part(self.validation),
        }
        return replace(self, key=_hash(content))

    def _recipe_content(self, cases: Cases, job: RecipeSpec) -> dict[str, Any]:
        """What a recipe is given of its training and validation parts: volume, mask, label, clinical values,
        and which of them share a dataset or a group.
        """
        rows = cases.rows((*self.train, *self.validation))
        prints, clinical = cases.fingerprints(with_box=False), cases.clinical_prints
        datasets = _codes([cases.dataset[r] for r in rows])
        groups = _codes([cases.group[r] if cases.group else cases.case[r] for r in rows])
        seen = [
            [
                format(int(prints[r]), "016x"),
                cases.mask_digest[r] if cases.mask_digest else "",
                int(cases.label[r]),
                format(int(clinical[r]), "016x"),
                dataset,
                group,
            ]
            for r, dataset, group in zip(rows, datasets, groups, strict=True)
        ]
        return {
            "version": UNIT_VERSION,
            "kind": self.kind,
            "job": job.to_dict(),
            "seed": self.seed,
            "train": seen[: len(self.train)],
            "validation": seen[len(self.train) :],
        }


def _typed(default: Any, content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that `content` has of a dataclass, each of the type that its default has."""
    values: dict[str, Any] = {}
    for f in fields(default):
        if f.name not in content:
            continue
        value, like = content[f.name], getattr(default, f.name)
        if isinstance(like, tuple):
            fits = isinstance(value, list | tuple)
            value = tuple(value) if fits else value
        elif isinstance(like, float):
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        elif isinstance(like, Mapping):
            fits = isinstance(value, Mapping)
        else:
            fits = isinstance(value, type(like)) and isinstance(value, bool) == isinstance(like, bool)
        if f.name == "scale" and fits:
            fits = len(value) == 2 and all(isinstance(part, int | float) for part in value)
        if not fits:
            raise TypeError(f"{f.name} is no {type(like).__name__}")
        values[f.name] = value
    return values


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is no mapping")
    return value


def _names(values: Any, name: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise TypeError(f"{name} holds something else than names")
    return tuple(values)


def _hash(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _codes(values: list[str]) -> list[int]:
    """Each value's place in the order of first appearance: names do not count, who shares one does."""
    seen: dict[str, int] = {}
    return [seen.setdefault(value, len(seen)) for value in values]


def _mixed(one: npt.NDArray[np.uint64], two: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    pairs = np.column_stack([one, two]).astype("<u8")
    heads = b"".join(hashlib.sha256(pair.tobytes()).digest()[:8] for pair in pairs)
    return np.frombuffer(heads, dtype="<u8").astype(np.uint64)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a unit gives: a row a predicted case, and how the training went."""

    case: tuple[str, ...]
    fingerprint: npt.NDArray[np.uint64]
    logits: npt.NDArray[np.float32]
    """(n, 2): benign, malignant. Empty for 'find-boxes' and 'recipe'."""
    distance: npt.NDArray[np.float32]
    """Mahalanobis distance of the features to the nearer class of the training part (US-32); NaN: none."""
    box: npt.NDArray[np.int32] | None = None
    """'find-boxes': (n, 4) the boxes found, zeros where none."""
    probability: npt.NDArray[np.float64] | None = None
    """Of a recipe's response task: (n,)."""
    masks: tuple[PackedMask, ...] | None = None
    """Of a recipe's segmentation task, one a case."""
    cost: npt.NDArray[np.float64] | None = None
    """Of a recipe: (n, tasks, 3), `COSTS` of each case in the order of the unit's tasks."""
    notes: tuple[str, ...] = ()
    """What a recipe wants the report's reader to know."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What a recipe found out about its training set, as plain JSON."""
    history: tuple[Mapping[str, float], ...] = ()
    """An entry an epoch: epoch, train_loss, validation_loss, seconds."""
    best_epoch: int = 0
    images: int = 0
    """Training images seen, repeats counted."""
    seconds: float = 0.0
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, Any] | None = None
    """Where the unit keeps them: the state dict (torch tensors on the CPU), or what a recipe learnt, as plain
    values, arrays and tensors (`engine.kept`)."""
    trained_on: Mapping[str, Any] | None = None
    """Beside kept weights: whom they were trained on, hashed (`engine.trained_on`)."""

    def covers(self, names: tuple[str, ...], prints: npt.NDArray[np.uint64]) -> bool:
        """True where every named case was predicted with the same pixels and box."""
        held = dict(zip(self.case, self.fingerprint.tolist(), strict=True))
        return all(held.get(name) == int(p) for name, p in zip(names, prints, strict=True))


@dataclass(frozen=True, kw_only=True)
class Work:
    """What units refer to: the cases, their pictures or volumes, and files of weights by name."""

    cases: Cases
    pictures: Pictures = field(default_factory=lambda: Pictures({}))
    volumes: Volumes | None = None
    weights: Mapping[str, Path] = field(default_factory=dict)
    """(network, 'imagenet') as 'network/imagenet' -> file, for machines that cannot fetch."""
    found_boxes: Callable[[str], Outcome] | None = None
    """The outcome of a 'find-boxes' unit by key."""
    scratch: Path | None = None
    """Where a recipe keeps its checkpoints, a folder a unit; None: a temporary one, lost with its process."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What kept weights tell of their training: 'study', 'cohorts' (hash a dataset), 'patients' (case ->
    'DATASET/id' and her id in another set), 'pixels' (case -> digest of its voxels). No number rests on it."""
