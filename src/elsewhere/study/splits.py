"""The scenarios of a study and their splits: by part of the study table, since no scenario crosses two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from elsewhere.cohort.label_scheme import LabelScheme
from elsewhere.errors import UserError, unknown_name
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
from elsewhere.study.file import Study
from elsewhere.study.pictures import Report
from elsewhere.study.table import StudyTable


def scenarios_in(study: Study, datasets: tuple[str, ...]) -> list[Scenario]:
    """The scenarios of some datasets, in the order of kinds and datasets.

    Args:
        study: The study, checked.
        datasets: Those of one part of the study table.

    Returns:
        All of them, or those that `only` picks by name.
    """
    rules = study.scenarios
    plain = [kind for kind in rules.kinds if kind != "nested"]
    found = scenarios_of(datasets, plain, folds=rules.folds) if plain else []
    if "nested" in rules.kinds:
        found += nested_scenarios(datasets)
    return [s for s in found if not rules.only or _picked(s, rules.only)]


def scenarios_by_part(study: Study, table: StudyTable) -> dict[str, list[Scenario]]:
    """The scenarios of each part of a study table.

    Args:
        study: The study, checked.
        table: Its table.

    Returns:
        By the name of the part's source. A kind that one part has too few datasets for is asked of the others.

    Raises:
        UserError: No part has datasets enough for a kind.
    """
    found: dict[str, list[Scenario]] = {part.source: [] for part in table.each}
    for kind in study.scenarios.kinds:
        rules = study.scenarios.model_copy(update={"kinds": (kind,)})
        alone = study.model_copy(update={"scenarios": rules})
        refused = []
        for part in table.each:
            try:
                found[part.source] += scenarios_in(alone, part.datasets)
            except UserError as error:
                refused.append(error)
        if len(refused) == len(found):
            raise refused[0]
    return found


def _picked(scenario: Scenario, wanted: Sequence[str]) -> bool:
    return any(scenario.name == name or fnmatchcase(scenario.name, name) for name in wanted)


def check_only(study: Study, table: StudyTable) -> None:
    """See that every name of `only` picks a scenario of some part.

    Args:
        study: The study, checked.
        table: Its table.

    Raises:
        UserError: A name picks none.
    """
    if not study.scenarios.only:
        return
    pick_scenarios(of_all_kinds(study, table), study.scenarios.only)


def pick_scenarios(found: Sequence[Scenario], only: Sequence[str]) -> list[Scenario]:
    """The scenarios that names or patterns pick.

    Args:
        found: Those that there are.
        only: Names, or patterns such as `BUSI>*`.

    Returns:
        The picked ones, in the order of `found`.

    Raises:
        UserError: A name picks none.
    """
    names = [scenario.name for scenario in found]
    for wanted in only:
        if wanted not in names and not any(fnmatchcase(name, wanted) for name in names):
            raise unknown_name("scenario", wanted, names)
    return [s for s in found if _picked(s, only)]


def groups_of(part: StudyTable) -> StudyGroups:
    """Check and code one part of a study table for splitting.

    Args:
        part: The part, with its label scheme.

    Returns:
        The groups that no split may part.
    """
    return StudyGroups(part.frame, scheme=scheme_of(part))


def scheme_of(part: StudyTable) -> LabelScheme:
    """Return what the labels of one part of a study table are called.

    Args:
        part: The part.

    Returns:
        Its label scheme.

    Raises:
        ValueError: The table has several parts, each with a scheme of its own.
    """
    if part.label_scheme is None:
        raise ValueError("a study table with several parts has no label scheme of its own")
    return part.label_scheme


def partitions_of(
    part: StudyTable, scenarios: Sequence[Scenario], seeds: Sequence[int], progress: Report | None
) -> tuple[dict[tuple[str, int], Split], list[Skipped]]:
    """Split every scenario; checked when made, and checked here again before anything rests on it (US-11).

    Args:
        part: The part of the study table.
        scenarios: Of the part.
        seeds: Of the study.
        progress: Called with what is done, how much, and how much there is.

    Returns:
        The splits by scenario and seed, and the scenarios that cannot be split.
    """
    made: dict[tuple[str, int], Split] = {}
    skipped: list[Skipped] = []
    rows = groups_of(part)
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


def scenarios_with_weights(study: Study, scenarios: Iterable[Scenario]) -> set[str]:
    """Name the scenarios of which [study] keep_weights asks that trained weights are kept.

    Args:
        study: The study, checked.
        scenarios: Those that it may name.

    Returns:
        Their names.

    Raises:
        UserError: It names one that there is not.
    """
    wanted = study.study.keep_weights
    found = list(scenarios)
    if not wanted:
        return set()
    return {s.name for s in (found if "all" in wanted else pick_scenarios(found, wanted))}


def of_all_kinds(study: Study, table: StudyTable) -> list[Scenario]:
    """List all scenarios of a study, those too that `only` leaves for another time: `keep_weights` may name them.

    Args:
        study: The study, checked.
        table: Its table.

    Returns:
        The scenarios of every part.
    """
    rules = study.scenarios.model_copy(update={"only": ()})
    whole = study.model_copy(update={"scenarios": rules})
    return [scenario for found in scenarios_by_part(whole, table).values() for scenario in found]
