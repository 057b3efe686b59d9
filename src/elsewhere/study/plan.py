"""The plan: scenarios, partitions, runs, and the trainings they need.

A run is one trained model tested on one target; a unit is one training. A source's training does not
depend on the target, so that one unit serves many runs (US-10). Units are named by the hash of what they
depend on: a plan made twice names the same units, and a changed study names only what changed anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.engine.plan import joined_trainings
from elsewhere.engine.training import Training, Work
from elsewhere.errors import UserError
from elsewhere.recipes.pictures.settings import NEEDS_BOXES, classifier_spec, finder_training
from elsewhere.scenarios import (
    Scenario,
    Skipped,
    Split,
    check_split,
    make_split,
    nested_scenarios,
    scenarios_of,
)
from elsewhere.scenarios.groups import StudyGroups
from elsewhere.study.file import InputSection, Study, StudyFile
from elsewhere.study.names import check_names
from elsewhere.study.pictures import Report
from elsewhere.study.table import StudyTable
from elsewhere.training.pictures.settings import ClassifierSettings

RUN_COLUMNS = (
    "run",
    "scenario",
    "kind",
    "source",
    "target",
    "model",
    "input",
    "seed",
    "method",
    "margin",
    "unit",
    "boxes_unit",
    "split",
    "train",
    "validation",
    "test",
    "normal",
    "roi_fallbacks",
    "status",
    "reason",
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a study will do. `runs` has a row a run; `units` are the trainings by key."""

    file: StudyFile
    table: StudyTable
    scenarios: tuple[Scenario, ...]
    partitions: dict[tuple[str, int], Split]
    skipped: tuple[Skipped, ...]
    runs: pd.DataFrame
    units: dict[str, Training]
    weights: dict[str, Path]

    @property
    def study(self) -> Study:
        return self.file.study

    @cached_property
    def work(self) -> Work:
        """What the units refer to."""
        return Work(
            cases=self.table.cases, sources=self.table.sources, weights=self.weights, about=self.about
        )

    @property
    def about(self) -> dict[str, Any]:
        """What kept weights tell of their training: study, cohorts, and who is who."""
        frame = self.table.frame
        return {
            "study": self.file.name,
            "cohorts": {name: about["hash"] for name, about in self.table.audit["cohorts"].items()},
            "patients": {
                case: [name, ""] for case, name in zip(frame["case"], frame["patient"], strict=True)
            },
        }

    def partition(self, run: str) -> Split:
        row = self.runs.loc[self.runs["run"] == run].iloc[0]
        return self.partitions[str(row["scenario"]), int(row["seed"])]

    def planned(self) -> pd.DataFrame:
        """The runs that are not skipped."""
        return self.runs[self.runs["status"] != "skipped"]

    def skipped_table(self) -> pd.DataFrame:
        """scenario, seed (missing: all of them), reason."""
        rows = [
            {"scenario": s.scenario.name, "kind": s.scenario.kind, "seed": s.seed, "reason": s.reason}
            for s in self.skipped
        ]
        frame = pd.DataFrame(rows, columns=["scenario", "kind", "seed", "reason"])
        frame["seed"] = frame["seed"].astype("Int64")
        return frame

    def kept(self) -> set[str]:
        """The scenarios whose trained weights are kept."""
        return scenarios_with_weights(self.study, _of_all_kinds(self.study, self.table.datasets))

    def audit(self) -> dict[str, Any]:
        """The table's audit with what the scenarios add: fall-backs and warnings a scenario (US-03)."""
        fallbacks: dict[str, dict[str, int]] = {}
        warnings: dict[str, list[str]] = {}
        for (name, _), made in self.partitions.items():
            counts = fallbacks.setdefault(name, {"train": 0, "validation": 0, "test": 0})
            for part in counts:
                counts[part] = max(counts[part], self.table.fallbacks(getattr(made, part)))
            told = warnings.setdefault(name, [])
            told += [word for word in made.warnings if word not in told]
        return self.table.audit | {
            "roi_fallbacks": fallbacks,
            "scenario_warnings": {name: told for name, told in warnings.items() if told},
            "splits": {f"{name} seed {seed}": made.hash for (name, seed), made in self.partitions.items()},
        }


def make_plan(file: StudyFile, table: StudyTable, *, progress: Report | None = None) -> Plan:
    """Work out every run and every training of a study; nothing is trained, nothing is written."""
    study = file.study
    check_names(study, table.datasets, where=str(file.path))
    scenarios = scenarios_in(study, table.datasets)
    partitions, skipped = partitions_of(table, scenarios, study.scenarios.seeds, progress)
    weights, recipes = _recipes(file)
    keep = scenarios_with_weights(study, _of_all_kinds(study, table.datasets))
    rows: list[dict[str, Any]] = []
    pool = _Units(table)
    gone = {(s.scenario.name, s.seed): s.reason for s in skipped}
    for scenario in scenarios:
        for seed in study.scenarios.seeds:
            made = partitions.get((scenario.name, seed))
            for model, section, name, seen in study.pairs():
                if section.kinds and scenario.kind not in section.kinds:
                    continue
                row = _row(scenario, seed, model, recipes[model], name, seen)
                if made is None:
                    rows.append(row | {"status": "skipped", "reason": gone[scenario.name, seed]})
                    continue
                unit = Training(
                    name=_unit_name(scenario, seed, model, name),
                    train=made.train,
                    validation=made.validation,
                    predict=_predicted(made, table),
                    recipe=classifier_spec(recipes[model], seen.spec(section.size_px)),
                    seed=seed,
                    keep_weights=scenario.name in keep,
                )
                if seen.boxes == "found":
                    finder = _finder(unit, scenario, study)
                    unit = replace(unit, needs={NEEDS_BOXES: pool.add(finder)})
                    row |= {"boxes_unit": unit.needs[NEEDS_BOXES]}
                rows.append(row | _counts(made, seen, table) | {"unit": pool.add(unit)})
    runs = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    runs["seed"] = runs["seed"].astype("int64")
    if runs.empty:
        raise UserError(
            "the study has no runs", where=str(file.path), fix="Look at models.*.kinds and inputs."
        )
    return Plan(
        file=file,
        table=table,
        scenarios=tuple(scenarios),
        partitions=partitions,
        skipped=tuple(skipped),
        runs=runs,
        units=pool.units,
        weights=weights,
    )


class _Units:
    """Units by key: the same training asked for twice is one training that predicts for both."""

    def __init__(self, table: StudyTable) -> None:
        self.table = table
        self.units: dict[str, Training] = {}
        self._keys: dict[tuple[Any, ...], str] = {}

    def add(self, unit: Training) -> str:
        needs = tuple(sorted(unit.needs.items()))
        known = (unit.recipe.text, unit.train, unit.validation, unit.seed, needs)
        key = self._keys.get(known)
        if key is None:
            unit = unit.with_key(self.table.cases)
            key = self._keys[known] = unit.key
        held = self.units.get(key)
        if held is None:
            self.units[key] = replace(unit, key=key)
            return key
        order = self.table.cases.row
        both = joined_trainings(held, unit)
        self.units[key] = replace(both, predict=tuple(sorted(both.predict, key=order.__getitem__)))
        return key


def scenarios_in(study: Study, datasets: tuple[str, ...]) -> list[Scenario]:
    """In the order of kinds and datasets; `only` picks by name among all of them."""
    rules = study.scenarios
    plain = [kind for kind in rules.kinds if kind != "nested"]
    only = list(rules.only) or None
    if "nested" not in rules.kinds:
        return scenarios_of(datasets, plain, folds=rules.folds, only=only)
    found = scenarios_of(datasets, plain, folds=rules.folds) if plain else []
    found += nested_scenarios(datasets)
    return found if only is None else pick_scenarios(found, only)


def pick_scenarios(found: Sequence[Scenario], only: Sequence[str]) -> list[Scenario]:
    from fnmatch import fnmatchcase

    from elsewhere.errors import unknown_name

    names = [scenario.name for scenario in found]
    for wanted in only:
        if wanted not in names and not any(fnmatchcase(name, wanted) for name in names):
            raise unknown_name("scenario", wanted, names)
    return [s for s in found if s.name in only or any(fnmatchcase(s.name, wanted) for wanted in only)]


def partitions_of(
    table: StudyTable, scenarios: Sequence[Scenario], seeds: Sequence[int], progress: Report | None
) -> tuple[dict[tuple[str, int], Split], list[Skipped]]:
    """Checked when made, and checked here again before anything rests on it (US-11)."""
    made: dict[tuple[str, int], Split] = {}
    skipped: list[Skipped] = []
    rows = StudyGroups(table.frame)
    for number, scenario in enumerate(scenarios, start=1):
        for seed in seeds:
            found = make_split(rows, scenario, seed)
            if isinstance(found, Skipped):
                skipped.append(found)
                continue
            check_split(rows, found)
            made[scenario.name, seed] = found
        if progress:
            progress("splitting", number, len(scenarios))
    return made, skipped


def _recipes(file: StudyFile) -> tuple[dict[str, Path], dict[str, ClassifierSettings]]:
    """A file of weights counts by its content: a recipe names its digest, the work says where it is."""
    weights: dict[str, Path] = {}
    recipes: dict[str, ClassifierSettings] = {}
    for name, section in file.study.models.items():
        if section.weights in ("imagenet", "none"):
            recipes[name] = section.recipe()
            continue
        path = file.file_of(section.weights)
        if not path.is_file():
            raise UserError(
                "there is no such file of weights",
                where=f"{path} (models.{name}.weights)",
                fix="weights is 'imagenet', 'none', or a file.",
            )
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        label = f"file-{digest[:16]}"
        weights[f"{section.network}/{label}"] = path.resolve()
        recipes[name] = section.recipe(weights=label, digest=digest)
    return weights, recipes


def scenarios_with_weights(study: Study, scenarios: Iterable[Scenario]) -> set[str]:
    """The scenarios of which [study] keep_weights asks that trained weights are kept."""
    wanted = study.study.keep_weights
    found = list(scenarios)
    if not wanted:
        return set()
    return {s.name for s in (found if "all" in wanted else pick_scenarios(found, wanted))}


def _of_all_kinds(study: Study, datasets: tuple[str, ...]) -> list[Scenario]:
    """Those that `only` leaves for another time too: `keep_weights` may name them."""
    rules = study.scenarios.model_copy(update={"only": ()})
    return scenarios_in(study.model_copy(update={"scenarios": rules}), datasets)


def _predicted(made: Split, table: StudyTable) -> tuple[str, ...]:
    """Validation, test and normals. An external training predicts all the other datasets, whichever of
    them the study tests today: a scenario added later then costs nothing.
    """
    wanted = {*made.validation, *made.test, *made.normal}
    if made.scenario.kind == "external":
        sources = set(made.scenario.sources)
        held = zip(table.cases.case, table.cases.dataset, strict=True)
        wanted |= {case for case, dataset in held if dataset not in sources}
    return tuple(case for case in table.cases.case if case in wanted)


def _row(
    scenario: Scenario, seed: int, model: str, recipe: ClassifierSettings, name: str, seen: InputSection
) -> dict[str, Any]:
    return {
        "run": f"{scenario.name}|{model}|{name}|{seed}",
        "scenario": scenario.name,
        "kind": scenario.kind,
        "source": "+".join(scenario.sources),
        "target": scenario.target,
        "model": model,
        "input": name,
        "seed": seed,
        "method": recipe.method,
        "margin": seen.margin if seen.kind == "roi" else float("nan"),
        **dict.fromkeys(("unit", "boxes_unit", "split"), ""),
        **dict.fromkeys(("train", "validation", "test", "normal", "roi_fallbacks"), 0),
        "status": "planned",
        "reason": "",
    }


def _finder(unit: Training, scenario: Scenario, study: Study) -> Training:
    """One a source's split and seed, whatever the model: it learns from the parts that the unit learns from,
    so that no box in a test picture comes from a network that has seen it (US-33).
    """
    rules = study.finder
    made = finder_training(unit, rules.network, size_px=rules.size_px, **rules.changes())
    name = _unit_name(scenario, unit.seed, "finder", "boxes")
    return replace(made, name=name, keep_weights=unit.keep_weights)


def _counts(made: Split, seen: InputSection, table: StudyTable) -> dict[str, Any]:
    counts: dict[str, Any] = {
        part: len(getattr(made, part)) for part in ("train", "validation", "test", "normal")
    }
    cropped = seen.kind == "roi" and seen.boxes == "annotated"
    counts["roi_fallbacks"] = (
        sum(table.fallbacks(part) for part in (made.train, made.validation, made.test)) if cropped else 0
    )
    return counts | {"split": made.hash}


def _unit_name(scenario: Scenario, seed: int, model: str, name: str) -> str:
    return f"{unit_base_name(scenario)} | {model} | {name} | seed {seed}"


def unit_base_name(scenario: Scenario) -> str:
    """Units that serve several targets are called by their sources alone."""
    several = scenario.kind in ("external", "nested")
    return "+".join(scenario.sources) + ">*" if several else scenario.name
