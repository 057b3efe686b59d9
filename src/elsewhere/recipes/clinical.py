"""Clinical columns alone: what is known of a patient before anybody looks at a picture (Build 4's baseline)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elsewhere.errors import UserError, near_matches
from elsewhere.recipes.base import (
    RESPONSE,
    Job,
    Prediction,
    Recipe,
    RecipeCase,
    RecipeSettings,
    Trained,
    Value,
    recipes,
)
from elsewhere.recipes.response_models import Candidate, ElasticNet, FloatArray, choose, training_cases

OFTEN = 0.1
"""From this part of empty cells on, and up to the rest, an empty cell has a column of its own."""
STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)


@dataclass(frozen=True, kw_only=True)
class ClinicalSettings(RecipeSettings):
    columns: tuple[str, ...] = ("age", "menopausal_status", "subtype")


@recipes.register("clinical")
class Clinical(Recipe):
    """Logistic regression on clinical columns."""

    title = "Clinical columns alone"
    tasks = frozenset({RESPONSE})
    version = 2
    follows = (
        "No team: the challenge withholds clinical columns in its test (MRI-02), so that this says what a picture "
        "has to beat. Logistic regression with a ridge penalty chosen by folds; words as indicators, numbers "
        "standardised; an empty cell is the training mean, with an indicator where it is common in training."
    )
    uses_clinical: ClassVar[bool] = True
    uses_volumes: ClassVar[bool] = False
    Settings = ClinicalSettings

    def run(self, job: Job) -> Trained:
        settings: ClinicalSettings = job.settings
        cases = training_cases(job)
        design = ClinicalDesign.of(cases, settings.columns)
        y = np.array([case.label for case in cases], dtype=np.int64)
        candidates = [_ridge(strength) for strength in STRENGTHS]
        fitted = choose(candidates, design.table(cases), y, [case.group for case in cases], seed=job.seed)
        for at, case in enumerate(job.predict):
            start = time.perf_counter()
            p = float(fitted.probability(design.table([case]))[0])
            job.emit(Prediction(case=case.case, probability=p, seconds=time.perf_counter() - start))
            job.progress("predict", at + 1, len(job.predict))
        return Trained(
            images=len(cases),
            notes=design.notes,
            details={
                "cases": len(cases),
                "responders": int(y.sum()),
                "columns": list(design.names),
                "chosen": fitted.name,
                "inner_auc": fitted.inner_auc,
                "shift": fitted.shift,
            },
        )


@dataclass(frozen=True, kw_only=True)
class ClinicalDesign:
    """Columns as numbers, by what the training cases hold."""

    numbers: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    """Column -> its words in training; another word in a test is none of them."""
    shares: Mapping[str, tuple[float, ...]]
    """How often each word stands in training: what an empty cell is taken as, as a number is its median."""
    gaps: tuple[str, ...]
    """Columns that are empty, and not empty, often enough in training to learn what that means: an
    indicator. One empty cell in training must not decide over a hospital that never fills the column."""
    notes: tuple[str, ...]

    @classmethod
    def of(cls, cases: Sequence[RecipeCase], columns: Sequence[str]) -> ClinicalDesign:
        present = {name for case in cases for name in case.clinical}
        numbers, words, shares, gaps, notes = [], {}, {}, [], []
        for name in columns:
            if name not in present:
                near = near_matches(name, sorted(present))
                raise UserError(
                    f"there is no clinical column '{name}'",
                    where="settings.columns",
                    fix=f"Did you mean {' or '.join(near)}?"
                    if near
                    else f"Known: {', '.join(sorted(present)) or 'none'}.",
                )
            values = [case.clinical.get(name) for case in cases]
            held = [v for v in values if not _empty(v)]
            if len(held) < len(values):
                if OFTEN <= 1 - len(held) / len(values) <= 1 - OFTEN:
                    gaps.append(name)
                notes.append(
                    f"{name} is empty for {len(values) - len(held)} of {len(values)} training cases."
                )
            if held and all(isinstance(v, int | float) for v in held):
                numbers.append(name)
            elif held:
                words[name] = tuple(sorted({str(v) for v in held}))
                shares[name] = tuple(sum(str(v) == w for v in held) / len(held) for w in words[name])
        return cls(numbers=tuple(numbers), words=words, shares=shares, gaps=tuple(gaps), notes=tuple(notes))

    @property
    def names(self) -> tuple[str, ...]:
        return (
            *self.numbers,
            *(f"{name} = {word}" for name, known in self.words.items() for word in known),
            *(f"{name} is empty" for name in self.gaps),
        )

    def table(self, cases: Sequence[RecipeCase]) -> FloatArray:
        rows = []
        for case in cases:
            row: list[float] = []
            for name in self.numbers:
                row.append(_number(case.clinical.get(name)))
            for name, known in self.words.items():
                value = case.clinical.get(name)
                row += self.shares[name] if _empty(value) else [float(str(value) == word) for word in known]
            row += [float(_empty(case.clinical.get(name))) for name in self.gaps]
            rows.append(row)
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.names))


def _ridge(strength: float) -> Candidate:
    return Candidate(
        name=f"ridge {strength:g}",
        make=lambda seed: ElasticNet(strength=strength, l1=0.0, ranks=False),
    )


def _empty(value: Value) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
