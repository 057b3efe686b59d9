"""A subgroup gap planted in the scores: is it covered, and are fair worlds not flagged? (ST-08, MRI-12)

A world is handled as the report handles a cohort: a scores table goes into the task's own evaluator and
groups, then into `fairness_report`. What is promised: the interval of a variable's gap covers the
population's gap in at least 95 % of worlds (it is a bound built from intervals that hold together, so it may
cover more often), and at most 5 % of fair worlds have any flagged variable (Holm over the variables of the
report).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.phantom.score_worlds import GROUPS, PlantedGap, response_world, segmentation_world, true_gaps
from elsewhere.protocols import protocols
from elsewhere.scoring.groups import fairness_codes
from elsewhere.scoring.prepared import fairness_disparity
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.simulation.fairness import ALPHA, RESAMPLES, Promise, judge_rate
from elsewhere.statistics.bootstrap_weights import generator_for
from elsewhere.statistics.fairness import fairness_report

PROTOCOL = "mamamia-paper"
SEGMENTATION_GAP = PlantedGap(dice=0.12, norm_hd=0.08)
RESPONSE_GAP = PlantedGap(tpr=0.25, fpr=0.20)
FAIR = PlantedGap()
_HEADLINES = {"segmentation": "dice", "response": "balanced_accuracy"}


def report_of(
    task: str, world: pd.DataFrame, *, seed: int, resamples: int = 1000, key: str = "planted gaps"
) -> dict[str, dict[str, Any]]:
    """Make the fairness part of the summary for the table of one world.

    Args:
        task: 'segmentation' or 'response'.
        world: A table as `score_worlds` draws it.
        seed: Seed of the resamples and permutations.
        resamples: Number of resamples of the intervals.
        key: Names the stream of random numbers.

    Returns:
        The entry of each variable by its name.
    """
    chosen, protocol, options = tasks.get(task), protocols.get(PROTOCOL), ScoreOptions()
    scored = [name for name in ("dice", "norm_hd", "probability") if name in world.columns]
    cohort = Cohort.from_frame(world.drop(columns=[*scored, "affected"]))
    scores = chosen.from_table(cohort, world[["case_id", *scored]], None, protocol, options)
    partition = chosen.partition(scores)
    evaluator = chosen.evaluator(scores, partition, options)
    codes, _ = fairness_codes(scores.cases, protocol.fairness)
    return fairness_report(
        fairness_disparity(scores, evaluator, headline=_HEADLINES[task]),
        partition,
        codes,
        key=key,
        seed=seed,
        resamples=resamples,
        by_site=protocol.interval.by_site,
    )


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the report states about one variable of one world, and the population's gap.

    Args:
        variable: Name of the variable.
        truth: The population's gap over the groups that the interval is of.
        gap: The observed gap; None where it is undefined.
        lo: Lower end of its interval; None without an interval.
        hi: Upper end of its interval; None without an interval.
        flagged: Whether the report flags the variable; None without a test.
        left_out: Groups that have no interval.
    """

    variable: str
    truth: float
    gap: float | None
    lo: float | None
    hi: float | None
    flagged: bool | None
    left_out: tuple[str, ...]

    @property
    def covered(self) -> bool | None:
        """Whether the interval contains the population's gap; None where there is no interval."""
        if self.lo is None or self.hi is None:
            return None
        return self.lo - 1e-9 <= self.truth <= self.hi + 1e-9


def look(
    task: str,
    gap: PlantedGap,
    run: int,
    *,
    patients: int = 516,
    density_known: int | None = None,
    resamples: int = 1000,
) -> list[Seen]:
    """Make one world and read its report. Every world has a generator of its own.

    Args:
        task: 'segmentation' or 'response'.
        gap: The planted gap.
        run: Number of the world, which seeds it.
        patients: Number of patients.
        density_known: Number of patients whose breast density is known; None: all.
        resamples: Number of resamples of the intervals.

    Returns:
        One entry per variable of the report.
    """
    rng = generator_for(f"planted gaps: {task} {gap} {patients} {density_known}", run)
    make = segmentation_world if task == "segmentation" else response_world
    world = make(gap, rng, patients=patients, density_known=density_known)
    out = []
    for variable, entry in report_of(task, world, seed=run, resamples=resamples).items():
        present = {name for name, n in entry["sizes"].items() if n}
        there = _present(entry, present)
        truth = true_gaps(gap, task=task, among={variable: there})[variable] if there else 0.0
        out.append(
            Seen(
                variable=variable,
                truth=truth,
                gap=entry["gap"],
                lo=entry["gap_lo"],
                hi=entry["gap_hi"],
                flagged=entry["flagged"],
                left_out=tuple(entry.get("gap_interval_without", ())),
            )
        )
    return out


def _present(entry: Mapping[str, Any], present: set[str]) -> tuple[str, ...]:
    """List the groups that the interval is of: those with cases, without those that have no interval."""
    inside = present - set(entry.get("gap_interval_without", ()))
    return tuple(name for name in entry["sizes"] if name in inside)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Worlds of one kind.

    Args:
        task: 'segmentation' or 'response'.
        gap: The planted gap; all zeros is a fair world.
        patients: Number of patients.
        density_known: Number of patients whose breast density is known; None: all.

    Example:
        >>> str(Setting(task="response", gap=FAIR, patients=60))
        'response, 60 patients'
    """

    task: str
    gap: PlantedGap
    patients: int = 516
    density_known: int | None = None

    @property
    def fair(self) -> bool:
        """Whether no gap is planted."""
        return not any((self.gap.dice, self.gap.norm_hd, self.gap.tpr, self.gap.fpr))

    def __str__(self) -> str:
        where = f"{self.task}, {self.patients} patients"
        if self.density_known is not None:
            where += f", density known for {self.density_known}"
        return where if self.fair else f"{where}, gap in {self.gap.variable} {self.gap.group}"


def settings() -> Sequence[Setting]:
    """List fair and unfair worlds: the study's size, smaller ones, small groups, and a density that few have.

    Returns:
        The settings, in the order of the table.
    """
    out = []
    for task, gap in (("segmentation", SEGMENTATION_GAP), ("response", RESPONSE_GAP)):
        small, young = replace(gap, group="A"), replace(gap, variable="age", group="<=40")
        pre = replace(gap, variable="menopausal_status", group="pre")
        for planted in (FAIR, gap, small, young, pre):
            out.append(Setting(task=task, gap=planted))
        out += [Setting(task=task, gap=planted, patients=n) for n in (60, 150) for planted in (FAIR, gap)]
        out += [Setting(task=task, gap=planted, patients=1506, density_known=60) for planted in (FAIR, gap)]
    return out


def planted_promises(
    *,
    replicates: int = 200,
    resamples: int = RESAMPLES,
    only: Callable[[Setting], bool] | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Promise]:
    """Simulate worlds of every setting: is the gap inside its interval, and is it flagged?

    A fair setting has one row per variable for the coverage of its gap, and one for flags, which are a level.
    An unfair one has a row for the coverage of the planted variable's gap, and one for how often it is
    flagged, which is shown as power. Worlds without an interval are left out of the coverage.

    Args:
        replicates: Number of worlds per setting.
        resamples: Number of resamples of the intervals.
        only: Chooses settings; None simulates all of them.
        progress: Called with each setting that is done; None for silence.

    Returns:
        The rows, setting by setting.
    """
    rows = []
    for setting in settings():
        if only is not None and not only(setting):
            continue
        seen = [
            look(
                setting.task,
                setting.gap,
                run,
                patients=setting.patients,
                density_known=setting.density_known,
                resamples=resamples,
            )
            for run in range(replicates)
        ]
        for variable in GROUPS if setting.fair else (setting.gap.variable,):
            known = [s.covered for world in seen for s in world if s.variable == variable]
            said = [covered for covered in known if covered is not None]
            if said:
                rows.append(
                    judge_rate(
                        f"gap of {variable} covered",
                        str(setting),
                        kind="coverage",
                        nominal=1.0 - ALPHA,
                        hits=sum(said),
                        runs=len(said),
                    )
                )
        if setting.fair:
            flags = sum(any(s.flagged for s in world) for world in seen)
            rows.append(
                judge_rate(
                    "fair world flagged",
                    str(setting),
                    kind="level",
                    nominal=ALPHA,
                    hits=flags,
                    runs=replicates,
                )
            )
        else:
            found = sum(any(s.flagged for s in w if s.variable == setting.gap.variable) for w in seen)
            rows.append(
                judge_rate(
                    "planted gap flagged",
                    str(setting),
                    kind="power",
                    nominal=None,
                    hits=found,
                    runs=replicates,
                )
            )
        if progress:
            progress(str(setting))
    return rows
