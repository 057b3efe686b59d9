"""Clinical columns alone: what is known of a patient before anybody looks at a picture (Build 4's baseline)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from elsewhere.errors import UserError, near_matches
from elsewhere.inputs.source import CLINICAL
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
from elsewhere.recipes.mri.response_models import (
    PLAIN_MODELS,
    Applied,
    Candidate,
    ElasticNet,
    FloatArray,
    choose,
    training_cases,
)

OFTEN = 0.1
"""A column with at least this share of empty cells, and of filled ones, has an indicator of empty cells."""
STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)


@dataclass(frozen=True, kw_only=True)
class ClinicalSettings(RecipeSettings):
    """Settings of the recipe 'clinical'.

    Args:
        columns: The clinical columns that the regression reads.
    """

    columns: tuple[str, ...] = ("age", "menopausal_status", "subtype")


@recipes.register("clinical")
class Clinical(Recipe):
    """Predict the response by logistic regression on clinical columns, which MRI-02 withholds at test time."""

    title = "Clinical columns alone"
    answers: ClassVar[Mapping[str, str]] = {RESPONSE: "probability"}
    version = 2
    follows = (
        "No team of the challenge, which withholds clinical columns in its test: a reference that a method on images "
        "has to beat. Logistic regression with a ridge penalty chosen by folds; words as indicators, numbers "
        "standardised; an empty cell is the training mean, with an indicator where it is common in training."
    )
    sees: ClassVar[frozenset[str]] = frozenset({CLINICAL})
    reads: ClassVar[str] = ""
    keeps: ClassVar[bool] = True
    Settings = ClinicalSettings

    @classmethod
    def can_give(cls, kind: str) -> bool:
        return kind == "probability"

    def run(self, job: Job) -> Trained:
        settings: ClinicalSettings = job.settings
        cases = training_cases(job)
        design = ClinicalDesign.of(cases, settings.columns)
        y = np.array([case.label for case in cases], dtype=np.int64)
        candidates = [_ridge(strength) for strength in STRENGTHS]
        fitted = choose(candidates, design.table(cases), y, [case.group for case in cases], seed=job.seed)
        _predict_all(job, design, fitted.probability)
        return Trained(
            weights={"design": design.kept(), **fitted.kept()} if job.keep else None,
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

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        design = ClinicalDesign.from_kept(weights["design"])
        _predict_all(job, design, Applied.of(weights, PLAIN_MODELS).probability)
        return Trained(notes=design.empty_notes(job.predict))


def _predict_all(job: Job, design: ClinicalDesign, probability: Callable[[FloatArray], FloatArray]) -> None:
    for at, case in enumerate(job.predict):
        start = time.perf_counter()
        p = float(probability(design.table([case]))[0])
        job.emit(
            Prediction(
                case=case.case, answers=dict.fromkeys(job.tasks, p), seconds=time.perf_counter() - start
            )
        )
        job.progress("predict", at + 1, len(job.predict))


@dataclass(frozen=True, kw_only=True)
class ClinicalDesign:
    """A table of clinical columns as numbers, as the training cases define it.

    Args:
        numbers: Columns of numbers; an empty cell takes the training median.
        words: Column -> its words in training, each an indicator; another word in a test is none of them.
        shares: Column -> how often each of its words occurs in training: what an empty cell counts as.
        gaps: Columns with an indicator of empty cells: they are empty, and not empty, often enough in
            training to learn what that means.
        notes: What a reader must know of the training's columns.
    """

    numbers: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    shares: Mapping[str, tuple[float, ...]]
    gaps: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, cases: Sequence[RecipeCase], columns: Sequence[str]) -> ClinicalDesign:
        """Define the table by training cases.

        Args:
            cases: The training cases.
            columns: The clinical columns that are asked for.

        Returns:
            The definition.

        Raises:
            UserError: No training case has one of the columns; the message lists near matches.

        Example:
            >>> cases = [RecipeCase(case=c, dataset="D", group=c, label=0, clinical={"age": a, "subtype": s})
            ...          for c, a, s in (("a", 50.0, "luminal"), ("b", 60.0, "her2"))]
            >>> design = ClinicalDesign.of(cases, ["age", "subtype"])
            >>> design.names
            ('age', 'subtype = her2', 'subtype = luminal')
            >>> design.table(cases).tolist()
            [[50.0, 0.0, 1.0], [60.0, 1.0, 0.0]]
        """
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
        """The names of the table's columns."""
        return (
            *self.numbers,
            *(f"{name} = {word}" for name, known in self.words.items() for word in known),
            *(f"{name} is empty" for name in self.gaps),
        )

    def kept(self) -> dict[str, Any]:
        """Return the definition for saved weights.

        Returns:
            Plain JSON for `from_kept`; the notes are not in it.
        """
        return {
            "numbers": list(self.numbers),
            "words": {name: list(known) for name, known in self.words.items()},
            "shares": {name: list(told) for name, told in self.shares.items()},
            "gaps": list(self.gaps),
        }

    @classmethod
    def from_kept(cls, kept: Mapping[str, Any]) -> ClinicalDesign:
        """Make the definition from saved weights.

        Args:
            kept: What `kept` returned.

        Returns:
            The definition, without notes.
        """
        return cls(
            numbers=tuple(kept["numbers"]),
            words={name: tuple(known) for name, known in kept["words"].items()},
            shares={name: tuple(told) for name, told in kept["shares"].items()},
            gaps=tuple(kept["gaps"]),
            notes=(),
        )

    def empty_notes(self, cases: Sequence[RecipeCase]) -> tuple[str, ...]:
        """List what another hospital does not report, or reports in other words.

        Such a cell is filled in from training, and the note says so.

        Args:
            cases: The predicted cases.

        Returns:
            One sentence per column and kind of gap.
        """
        notes = []
        for name in (*self.numbers, *self.words):
            told = [v for v in (case.clinical.get(name) for case in cases) if not _empty(v)]
            strange = [v for v in told if name in self.words and str(v) not in self.words[name]]
            odd = [v for v in told if name not in self.words and not isinstance(v, int | float)]
            for lacking, how in (
                (len(cases) - len(told), "is empty for {}: filled in from training."),
                (
                    len(strange),
                    "has a value that the training data lacked for {}: treated as no known category.",
                ),
                (len(odd), "is no number for {}: filled in from training."),
            ):
                if lacking:
                    notes.append(f"{name} {how.format(f'{lacking} of {len(cases)} predicted cases')}")
        return tuple(notes)

    def table(self, cases: Sequence[RecipeCase]) -> FloatArray:
        """Return cases as rows of numbers.

        Args:
            cases: Any cases.

        Returns:
            (cases, `names`); NaN for a missing number, which the model fills in.
        """
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
