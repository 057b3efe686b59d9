"""The study file: cohorts, scenarios, inputs, models, seeds and analyses, as TOML.

A study is data. Every key is known: a mistyped one is refused with its neighbours, because a study that
silently runs with a default is a wrong study.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from elsewhere.engine.unit import InputSpec, Recipe
from elsewhere.errors import UserError, near_matches

DATA_VARIABLE = "ELSEWHERE_DATA"
_RECIPE = Recipe()

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Part = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Kind = Literal["internal", "external", "leave-one-dataset-out", "folds", "nested"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StudySection(_Section):
    """[study]: what it is called, and the rules that hold for all of it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", description="Also the default output folder.")
    task: Literal["classification"] = Field("classification", description="What is predicted.")
    description: str = Field("", description="Stands in the report.")
    publication: bool = Field(
        True, description="An empty patient id stops the study before any training (US-02)."
    )
    ids: Literal["patient", "image"] = Field(
        "patient", description="image: every picture counts as a patient, to measure what that leak is worth."
    )
    data: str = Field("", description="Stands for {data} in the cohorts' sources; --data goes before it.")
    store: str = Field("", description="Folder of what is trained; default: store in the output folder.")
    keep_weights: tuple[str, ...] = Field(
        (), description="Scenarios whose trained weights are kept, or ['all']; maps of relevance need them."
    )


class CohortSection(_Section):
    """[[cohort]]: one dataset, read from its published layout, from a cohort folder, or made up."""

    reader: str = Field("", description="`elsewhere readers` lists them; empty: a cohort folder or a table.")
    source: str = Field("", description="Folder or file; {data} is the data folder.")
    name: str = Field("", description="Another name for the dataset; default: the reader's.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the reader.")
    phantom: dict[str, Any] | None = Field(None, description="Make a synthetic hospital instead of reading.")

    @model_validator(mode="after")
    def _one_origin(self) -> CohortSection:
        if (self.phantom is None) == (not self.source):
            raise ValueError("give either source or phantom")
        if self.phantom is not None and self.reader:
            raise ValueError("a phantom needs no reader")
        return self


class ScenarioSection(_Section):
    """[scenarios]: who is trained on and who is tested (US-06 to US-10)."""

    kinds: tuple[Kind, ...] = Field(
        ("internal", "external"), min_length=1, description="Which comparisons, in this order."
    )
    only: tuple[str, ...] = Field((), description="Scenarios by name, such as BUSI or BUSI>BUS-BRA.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (1, 2, 3, 4, 5), min_length=1, description="The same for every model and input (US-09)."
    )
    folds: int = Field(5, ge=2, description="Of the kind 'folds'.")
    keep_duplicates_together: bool = Field(
        True, description="Near-duplicates stay on one side of every split (US-30)."
    )

    @field_validator("seeds", "kinds", "only")
    @classmethod
    def _no_repeats(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(value)) != len(value):
            raise ValueError("an entry stands twice")
        return value


class InputSection(_Section):
    """[inputs.NAME]: what the network sees (US-12, US-13). The size comes from the model."""

    kind: Literal["whole", "roi"] = Field(description="The whole picture, or the lesion crop.")
    margin: NotNegative = Field(
        InputSpec().margin, description="Of the crop: this part of the box's larger side, on each side."
    )
    outline: bool = Field(False, description="The third channel is the lesion's mask (not in the study).")
    boxes: Literal["annotated", "found"] = Field(
        "annotated", description="found: a model finds the boxes at prediction (US-33)."
    )

    @model_validator(mode="after")
    def _only_of_a_crop(self) -> InputSection:
        if self.kind == "whole" and ({"margin", "boxes"} & self.model_fields_set):
            raise ValueError("margin and boxes have a meaning for kind = 'roi' alone")
        if self.outline and self.boxes == "found":
            raise ValueError(
                "outline = true takes the annotated mask, and boxes = 'found' is to do without it"
            )
        return self

    def spec(self, size_px: int) -> InputSpec:
        """`margin` is left at its default for the whole picture: a key must not depend on what is not used."""
        margin = self.margin if self.kind == "roi" else InputSpec().margin
        return InputSpec(kind=self.kind, size_px=size_px, margin=margin, outline=self.outline)


class ModelSection(_Section):
    """[models.NAME]: a network and how it is trained (US-14); the defaults are the study's CNN."""

    network: str = Field(_RECIPE.network, description="efficientnet-b0, efficientnet-lite0, vit-b-16, ...")
    weights: str = Field(_RECIPE.weights, description="imagenet, none, or a file.")
    size_px: int = Field(224, ge=16, le=2048, description="Pixels a side of what the network sees.")
    learning_rate: Positive = Field(_RECIPE.learning_rate, description="Of Adam.")
    batch: Count = Field(_RECIPE.batch, description="Pictures a step.")
    epochs: Count = Field(_RECIPE.epochs, description="At most.")
    weight_decay: NotNegative = Field(_RECIPE.weight_decay, description="L2, as a part of the gradient.")
    gradient_norm: Positive = Field(_RECIPE.gradient_norm, description="Threshold on the global L2 norm.")
    patience: Count = Field(_RECIPE.patience, description="Epochs without a better validation loss.")
    mirror: bool = Field(_RECIPE.mirror, description="Mirror left-right at random.")
    rotate_degrees: NotNegative = Field(
        _RECIPE.rotate_degrees, description="Rotate by up to this, both ways."
    )
    shift_px: NotNegative = Field(_RECIPE.shift_px, description="Shift by up to this in x and y.")
    scale: tuple[Positive, Positive] = Field(_RECIPE.scale, description="Smallest and largest scale.")
    oversample: bool = Field(_RECIPE.oversample, description="The rarer class, in the training part only.")
    schedule: Literal["constant", "cosine"] = Field("constant", description="Of the learning rate.")
    batch_statistics: Literal["population", "running"] = Field(
        "population", description="Batch norm at prediction: over the training part anew, or moving averages."
    )
    keep: Literal["best", "last"] = Field(
        "best", description="Weights of the best validation loss, or the last."
    )
    dropout: Part = Field(_RECIPE.dropout, description="Before the last layer.")
    brightness: NotNegative = Field(
        _RECIPE.brightness, description="Contrast, gain and gamma jitter; 0 none."
    )
    noise: NotNegative = Field(_RECIPE.noise, description="Speckle jitter; 0 none.")
    erase: NotNegative = Field(_RECIPE.erase, description="Probability of an erased rectangle.")
    label_smoothing: Part = Field(_RECIPE.label_smoothing, description="0 none.")
    test_mirror: bool = Field(_RECIPE.test_mirror, description="Average over the mirror image at prediction.")
    balance_datasets: bool = Field(
        _RECIPE.balance_datasets, description="Several sources: each is drawn equally often."
    )
    method: Literal["plain", "group-dro", "coral", "mixstyle"] = Field(
        "plain", description="How several sources are trained on (US-31)."
    )
    strength: NotNegative = Field(_RECIPE.strength, description="Of the method; 0: its default.")
    inputs: tuple[str, ...] = Field((), description="Only these inputs; default: all of the study.")
    kinds: tuple[Kind, ...] = Field(
        (), description="Only these kinds of scenario; default: all of the study."
    )

    @field_validator("scale")
    @classmethod
    def _in_order(cls, value: tuple[float, float]) -> tuple[float, float]:
        if value[0] > value[1]:
            raise ValueError("the smaller scale comes first")
        return value

    def recipe(self, *, weights: str = "", digest: str = "") -> Recipe:
        """The recipe; `weights` and `digest` where the weights are a file, whose place must not count."""
        values = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(Recipe) if f.name != "weights_digest"
        }
        return Recipe(**values | {"weights": weights or self.weights, "weights_digest": digest})


class FinderSection(_Section):
    """[finder]: the network that finds boxes for inputs with boxes = 'found' (US-33)."""

    network: str = Field("finder-lite0", description="finder-lite0 (ImageNet weights), finder-small, ...")
    weights: Literal["", "imagenet", "none"] = Field("", description="Default: as suits the network.")
    size_px: int = Field(256, ge=32, le=1024, description="Pixels a side of what it sees.")
    epochs: Count = Field(40, description="The best Dice on the validation part is kept.")
    learning_rate: Positive = Field(1e-3, description="Of Adam; it fades by a cosine.")
    batch: Count = Field(16, description="Pictures a step.")

    def changes(self) -> dict[str, Any]:
        """What differs from the finder's own recipe."""
        values: dict[str, Any] = {name: getattr(self, name) for name in ("epochs", "learning_rate", "batch")}
        return values | {"patience": self.epochs} | ({"weights": self.weights} if self.weights else {})


class AnalysesSection(_Section):
    """[analyses]: what the report shows beside the plain tables."""

    reference: str = Field("", description="Published numbers to show beside ours: ultrasound; empty: none.")
    without: tuple[str, ...] = Field((), description="Datasets each of which is left out once (US-21).")
    margin_reference: NotNegative | None = Field(
        None, description="A margin study: the crop margin the others are held against (US-22)."
    )
    verdict_margin: NotNegative | None = Field(
        None, description="The largest drop in AUROC that would not matter: a verdict on every transfer."
    )
    ensemble: bool = Field(True, description="Also the mean over the seeds, as one model (US-32).")
    resamples: int = Field(1000, ge=0, description="Of patients, a scenario; 0 leaves these intervals out.")


class Study(_Section):
    """A whole study file, checked. Paths are not resolved: see `source_of`."""

    study: StudySection
    cohort: tuple[CohortSection, ...] = Field(min_length=1)
    scenarios: ScenarioSection = Field(default_factory=lambda: ScenarioSection.model_validate({}))
    inputs: dict[str, InputSection] = Field(min_length=1)
    models: dict[str, ModelSection] = Field(min_length=1)
    finder: FinderSection = Field(default_factory=lambda: FinderSection.model_validate({}))
    analyses: AnalysesSection = Field(default_factory=lambda: AnalysesSection.model_validate({}))

    @model_validator(mode="after")
    def _names_are_known(self) -> Study:
        for name, model in self.models.items():
            for wanted in model.inputs:
                if wanted not in self.inputs:
                    raise ValueError(
                        f"models.{name}.inputs: there is no input '{wanted}'; known: {', '.join(self.inputs)}"
                    )
        for group in (self.inputs, self.models):
            for name in group:
                if not name or not all(c.isalnum() or c in "-_." for c in name):
                    raise ValueError(f"'{name}' cannot be a name: letters, digits, - _ . only")
        return self

    def pairs(self) -> Iterator[tuple[str, ModelSection, str, InputSection]]:
        """Every model with each of its inputs."""
        for model, section in self.models.items():
            for name in section.inputs or tuple(self.inputs):
                yield model, section, name, self.inputs[name]

    def to_dict(self) -> dict[str, Any]:
        """The study as data, every default written out."""
        return self.model_dump(mode="json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyFile:
    """A study with where it stands: relative paths are relative to the file."""

    study: Study
    path: Path
    data: Path | None = None

    @property
    def name(self) -> str:
        return self.study.study.name

    def source_of(self, cohort: CohortSection) -> Path:
        """The cohort's folder or file, with {data} filled in."""
        text = cohort.source
        if "{data}" in text:
            if self.data is None:
                raise UserError(
                    "the study does not know where the data are",
                    where=f"{self.path}, source '{text}'",
                    fix=f'Give --data DIR, set {DATA_VARIABLE}, or write data = "DIR" under [study].',
                )
            text = text.replace("{data}", str(self.data))
        path = Path(text).expanduser()
        return path if path.is_absolute() else self.path.parent / path

    def file_of(self, text: str) -> Path:
        """A file named in the study, relative to it."""
        path = Path(text).expanduser()
        return path if path.is_absolute() else self.path.parent / path


def shipped() -> dict[str, Path]:
    """The studies that come with the package, by name."""
    import elsewhere.studies

    folder = Path(elsewhere.studies.__file__).parent
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_study(
    source: str | Path,
    *,
    data: str | Path | None = None,
    changes: Sequence[str] = (),
    seeds: Sequence[int] = (),
    ids: str | None = None,
    only_models: Sequence[str] = (),
    only_inputs: Sequence[str] = (),
    only: Sequence[str] = (),
) -> StudyFile:
    """Read a study file, or a shipped study by its name, with the command line's changes.

    `changes` are 'models.cnn.epochs=2': a path of keys and a TOML value (a bare word is a string).
    """
    path = _find(source)
    content = _read(path)
    for change in changes:
        _apply(content, change, where=str(path))
    if seeds:
        _section(content, "scenarios")["seeds"] = list(seeds)
    if only:
        _section(content, "scenarios")["only"] = list(only)
    if ids is not None:
        _section(content, "study")["ids"] = ids
    for kind, names in (("models", only_models), ("inputs", only_inputs)):
        if names:
            _keep(content, kind, names, where=str(path))
    study = parse_study(content, where=str(path))
    base = data or os.environ.get(DATA_VARIABLE) or study.study.data or None
    folder = None if base is None else Path(base).expanduser()
    if folder is not None and not folder.is_absolute() and base == study.study.data:
        folder = path.parent / folder
    if folder is not None and not folder.is_dir():
        raise UserError("there is no such folder of data", where=str(folder), fix="Give --data DIR.")
    return StudyFile(study=study, path=path, data=folder)


def parse_study(content: Mapping[str, Any], *, where: str) -> Study:
    """A checked study from its TOML content; every mistake with its key, and near matches for a name."""
    try:
        return Study.model_validate(_tuples(content))
    except ValidationError as problem:
        raise _mistake(problem, content, where) from None


def _find(source: str | Path) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    known = shipped()
    name = str(source)
    if name in known:
        return known[name]
    if path.exists():
        raise UserError("this is no study file", where=str(path), fix="Give a .toml file.")
    near = near_matches(path.stem, known)
    hint = (
        f"Did you mean {' or '.join(near)}?" if near else f"Studies that ship: {', '.join(known) or 'none'}."
    )
    raise UserError("there is no such study file", where=str(path), fix=hint)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"the study file is no TOML ({error})", where=str(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the study file cannot be read ({error})", where=str(path)) from error


def _section(content: dict[str, Any], name: str) -> dict[str, Any]:
    held = content.setdefault(name, {})
    return held if isinstance(held, dict) else {}


def _apply(content: dict[str, Any], change: str, *, where: str) -> None:
    key, sign, text = change.partition("=")
    steps = [step.strip() for step in key.split(".")]
    if not sign or not all(steps):
        raise UserError(
            f"'{change}' is no KEY=VALUE", where="--set", fix="Write e.g. --set models.cnn.epochs=2."
        )
    held: Any = content
    for at, step in enumerate(steps):
        if isinstance(held, list):
            if not step.isdecimal() or int(step) >= len(held):
                raise UserError(
                    f"'{'.'.join(steps[:at])}' has {len(held)} entries, counted from 0, and no '{step}'",
                    where=f"--set {change}",
                )
            if at == len(steps) - 1:
                held[int(step)] = _value(text)
            else:
                held = held[int(step)]
        elif isinstance(held, dict):
            if at == len(steps) - 1:
                held[step] = _value(text)
            else:
                if step not in held and at > 0 and step not in _keys_at(steps[:at]):
                    near = near_matches(step, held) or list(held)
                    raise UserError(
                        f"there is no '{'.'.join(steps[: at + 1])}' in {where}",
                        where=f"--set {change}",
                        fix=f"Did you mean {' or '.join(near)}?" if near else None,
                    )
                held = held.setdefault(step, {})
        else:
            raise UserError(f"'{'.'.join(steps[:at])}' is a value, not a section", where=f"--set {change}")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text.strip()}")["x"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _keep(content: dict[str, Any], kind: str, names: Sequence[str], *, where: str) -> None:
    held = content.get(kind)
    if not isinstance(held, dict):
        return
    for name in names:
        if name not in held:
            near = near_matches(name, held)
            raise UserError(
                f"there is no {kind.removesuffix('s')} '{name}' in the study",
                where=where,
                fix=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(held)}.",
            )
    content[kind] = {name: held[name] for name in held if name in names}
    if kind == "inputs":
        for model in content.get("models", {}).values():
            if isinstance(model, dict) and model.get("inputs"):
                model["inputs"] = [name for name in model["inputs"] if name in names]


def _tuples(value: Any) -> Any:
    """TOML's lists as tuples: the models are strict and frozen. Whole numbers pass for decimal ones."""
    if isinstance(value, Mapping):
        return {key: _tuples(part) for key, part in value.items()}
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def _mistake(problem: ValidationError, content: Mapping[str, Any], where: str) -> UserError:
    """The first mistake in full, and how many more there are."""
    errors = problem.errors(include_url=False)
    first = errors[0]
    path = [step for step in first["loc"] if not str(step).startswith(("function-", "constrained-"))]
    key = ".".join(map(str, path))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    if first["type"] == "extra_forbidden":
        known = _keys_at(path[:-1])
        near = near_matches(str(path[-1]), known)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Known here: {', '.join(known)}."
        return UserError(f"unknown key '{key}'{more}", where=where, fix=hint)
    if first["type"] == "missing":
        return UserError(f"the key '{key}' is missing{more}", where=where, fix=_help(path))
    message = str(first["msg"]).removeprefix("Value error, ").replace("Input should be", "it should be")
    shown = first.get("input")
    told = f": {shown!r}" if isinstance(shown, str | int | float | bool) else ""
    subject = f"'{key}'{told}: " if key else ""
    return UserError(f"{subject}{message}{more}", where=where, fix=_help(path))


def _model_at(path: Sequence[Any]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = Study
    inside: Any = None
    for step in path:
        if inside is not None:
            model, inside = inside, None
            continue
        if model is None or step not in model.model_fields:
            return None
        sections = {"cohort": CohortSection, "inputs": InputSection, "models": ModelSection}
        if model is Study and step in sections:
            inside, model = sections[str(step)], None
        else:
            kind = model.model_fields[step].annotation
            model = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    return model


def _keys_at(path: Sequence[Any]) -> list[str]:
    model = _model_at(path)
    return list(model.model_fields) if model is not None else []


def _help(path: Sequence[Any]) -> str | None:
    model = _model_at(path[:-1]) if path else None
    field = model.model_fields.get(str(path[-1])) if model is not None else None
    return field.description if field is not None and field.description else None
