"""The scenarios of a study: which datasets are used for training, and which for the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from elsewhere.errors import UserError, unknown_name

KINDS = ("internal", "external", "leave-one-dataset-out", "folds")
"""The kinds that a study asks for. A fifth, 'nested', comes from `nested_scenarios` alone."""
NESTED = "nested"
_RESERVED = (">", "+")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One pair of training and test data: train on `sources`, test on `target`.

    Args:
        name: 'BUSI'; 'BUSI>BUS-BRA'; 'rest>BUSI'; 'BUSI fold 2 of 5'; 'nested BUSI+BrEaST>BUS-BRA'.
        kind: One of `KINDS`, or 'nested'.
        sources: The datasets to train on. For internal scenarios and folds, the target alone.
        target: The dataset to test on.
        fold: The fold to test on, counted from 1; None unless the kind is 'folds'.
        folds: How many folds there are; None unless the kind is 'folds'.

    Raises:
        UserError: The kind is unknown, the sources do not fit the kind or repeat, or the fold is out of
            range.

    Example:
        >>> Scenario(name="BUSI>BUS-BRA", kind="external", sources=("BUSI",), target="BUS-BRA").within
        False
    """

    name: str
    kind: str
    sources: tuple[str, ...]
    target: str
    fold: int | None = None
    folds: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in (*KINDS, NESTED):
            raise unknown_name("kind of scenario", self.kind, KINDS)
        within = self.kind in ("internal", "folds")
        if within and self.sources != (self.target,):
            raise UserError(f"scenario '{self.name}' is {self.kind}: it trains and tests on one dataset")
        if not within and (not self.sources or self.target in self.sources):
            raise UserError(f"scenario '{self.name}' is {self.kind}: its target may not be a source")
        if len(set(self.sources)) != len(self.sources):
            raise UserError(f"scenario '{self.name}' names a source twice")
        if self.kind == "folds" and not (self.folds and self.fold and 1 <= self.fold <= self.folds):
            raise UserError(f"scenario '{self.name}': fold {self.fold} of {self.folds}")

    @property
    def source(self) -> str:
        """The sources as one name: 'BUSI', or 'BUSI+BrEaST'."""
        return "+".join(self.sources)

    @property
    def within(self) -> bool:
        """Whether it trains and tests on parts of one dataset."""
        return self.kind in ("internal", "folds")

    def to_dict(self) -> dict[str, Any]:
        """Return the scenario as a mapping that json can hold.

        Returns:
            Every field by its name; `sources` as a list.
        """
        return {
            "name": self.name,
            "kind": self.kind,
            "sources": list(self.sources),
            "target": self.target,
            "fold": self.fold,
            "folds": self.folds,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Scenario:
        """Make a scenario from what `to_dict` returned.

        Args:
            content: The fields by name; `fold` and `folds` may be absent.

        Returns:
            The scenario.

        Raises:
            UserError: The fields do not describe a scenario.
        """
        return cls(
            name=str(content["name"]),
            kind=str(content["kind"]),
            sources=tuple(map(str, content["sources"])),
            target=str(content["target"]),
            fold=content.get("fold"),
            folds=content.get("folds"),
        )


def scenarios_of(
    datasets: Sequence[str],
    kinds: Sequence[str] = ("internal", "external"),
    *,
    folds: int = 5,
    only: Sequence[str] | None = None,
) -> list[Scenario]:
    """List all scenarios of some kinds, in the order of kinds and datasets.

    Four datasets give 4 internal and 12 external scenarios (US-06, US-07).

    Args:
        datasets: The names of the datasets.
        kinds: Some of `KINDS`.
        folds: How many folds each dataset has, 2 or more; only read for the kind 'folds'.
        only: Names of scenarios to keep, or patterns such as 'BUSI>*'; None keeps all.

    Returns:
        The scenarios.

    Raises:
        UserError: A kind is unknown, there are too few datasets or folds, a dataset's name is empty, repeated
            or contains > or +, or an entry of `only` names no scenario.

    Example:
        >>> [one.name for one in scenarios_of(["A", "B"])]
        ['A', 'B', 'A>B', 'B>A']
    """
    names = _checked(datasets)
    found: list[Scenario] = []
    for kind in dict.fromkeys(kinds):
        if kind == "internal":
            found += [Scenario(name=d, kind=kind, sources=(d,), target=d) for d in names]
        elif kind == "external":
            _need(names, 2, kind)
            found += [
                Scenario(name=f"{s}>{t}", kind=kind, sources=(s,), target=t)
                for s in names
                for t in names
                if s != t
            ]
        elif kind == "leave-one-dataset-out":
            _need(names, 3, kind)
            found += [
                Scenario(name=f"rest>{t}", kind=kind, sources=tuple(s for s in names if s != t), target=t)
                for t in names
            ]
        elif kind == "folds":
            if folds < 2:
                raise UserError(f"{folds} folds", fix="Give 2 or more.")
            found += [
                Scenario(
                    name=f"{d} fold {fold} of {folds}",
                    kind=kind,
                    sources=(d,),
                    target=d,
                    fold=fold,
                    folds=folds,
                )
                for d in names
                for fold in range(1, folds + 1)
            ]
        else:
            raise unknown_name("kind of scenario", str(kind), KINDS)
    return found if only is None else _only(found, only)


def nested_scenarios(datasets: Sequence[str], target: str | None = None) -> list[Scenario]:
    """List the scenarios that leave one source out: train on the target's other sources, test on that one.

    Methods are chosen by these, on sources alone, so that the target does not influence the choice
    (US-14, US-31). Each pair of sources and left-out source is listed once.

    Args:
        datasets: The names of the datasets, three or more.
        target: The target, which is neither trained nor tested on; None lists the scenarios of every target.

    Returns:
        The scenarios, of kind 'nested'.

    Raises:
        UserError: There are fewer than three datasets, or the target is not one of them.

    Example:
        >>> [one.name for one in nested_scenarios(["A", "B", "C"], target="C")]
        ['nested B>A', 'nested A>B']
    """
    names = _checked(datasets)
    _need(names, 3, NESTED)
    if target is not None and target not in names:
        raise unknown_name("dataset", target, names)
    found: dict[tuple[tuple[str, ...], str], Scenario] = {}
    for left_out in names if target is None else (target,):
        for held in names:
            if held == left_out:
                continue
            sources = tuple(s for s in names if s not in (left_out, held))
            found.setdefault(
                (sources, held),
                Scenario(
                    name=f"nested {'+'.join(sources)}>{held}", kind=NESTED, sources=sources, target=held
                ),
            )
    return list(found.values())


def _checked(datasets: Sequence[str]) -> tuple[str, ...]:
    if isinstance(datasets, str):
        raise UserError(f"'{datasets}' is one name", fix="Give a list of datasets.")
    names = tuple(map(str, datasets))
    if not names:
        raise UserError("no datasets, so no scenarios")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"dataset {', '.join(twice)} is listed twice")
    odd = [name for name in names if not name.strip() or any(mark in name for mark in _RESERVED)]
    if odd:
        raise UserError(
            f"dataset '{odd[0]}' has an empty name, or a > or + in it",
            fix="These marks are the scenarios' own: rename the dataset.",
        )
    return names


def _need(names: tuple[str, ...], count: int, kind: str) -> None:
    if len(names) < count:
        raise UserError(
            f"{kind} scenarios need {count} datasets, and there {'is' if len(names) == 1 else 'are'} {len(names)}",
            fix="Add cohorts to the study, or take this kind out of its [scenarios].",
        )


def _only(found: list[Scenario], only: Sequence[str]) -> list[Scenario]:
    if isinstance(only, str):
        only = [only]
    names = [scenario.name for scenario in found]
    kept: set[str] = set()
    for wanted in only:
        hits = [name for name in names if name == wanted] or [n for n in names if fnmatchcase(n, wanted)]
        if not hits:
            raise unknown_name("scenario", wanted, names)
        kept.update(hits)
    return [scenario for scenario in found if scenario.name in kept]
