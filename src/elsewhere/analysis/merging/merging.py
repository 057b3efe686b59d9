"""Merge the boxes of several teams: the setting is chosen on some volumes, and judged on others (DBT-09).

The best of 432 settings looks better on the volumes that chose it than it is. So the value there and the value on the
test volumes stand side by side, with their difference, and the merge is compared on the test volumes alone with the
single team that was best on the volumes of the choice. Score scales, thresholds and the setting all come from the
validation volumes; nothing is fitted to the test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere._version import __version__
from elsewhere.analysis.merging.contributions import team_contributions
from elsewhere.analysis.merging.search import Search, search_settings
from elsewhere.analysis.merging.settings import MergeSetting, all_settings, published
from elsewhere.analysis.merging.sides import (
    Side,
    counted,
    other_range,
    scale_notes,
    shared_patients,
    side_of,
)
from elsewhere.analysis.merging.team_boxes import MergeOptions, fit_scales, gather, merge_boxes, scaled
from elsewhere.analysis.merging.teams import (
    TEST,
    VALIDATION,
    ReadTeams,
    find_parts,
    find_team_files,
    read_teams,
)
from elsewhere.analysis.ranking.submissions import Failure
from elsewhere.analysis.result.assessment import ids_of
from elsewhere.analysis.result.inputs import Progress, choose_protocol
from elsewhere.analysis.result.part import Part
from elsewhere.cohort import Cohort
from elsewhere.errors import UserError, unknown_name
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.boxes import BoxPredictions
from elsewhere.privacy import Redactor
from elsewhere.protocols import Protocol
from elsewhere.scoring.prepared import Prepared
from elsewhere.scoring.task import tasks
from elsewhere.statistics.differences import difference_independent
from elsewhere.statistics.resampling import Resampling
from elsewhere.tables.identifiers import read_folders, read_ids

_BEST_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class MergeInputs:
    """What is merged, and what it is judged by.

    Args:
        files: Prediction files, or one folder of them; see `find_team_files`.
        test_files: Prediction files of the test volumes, where they are others.
        cohort: The cohort that the setting is chosen on; None to merge without any truth.
        report_on: The test cohort, or COLUMN=VALUE in `cohort`.
        where: Only cases of `cohort` whose columns have these values.
        protocol: The protocol; None for the one that belongs to the cohort's reader.
        read: How a file is read.
        explain: Puts the reason of a failure into words.
    """

    files: Sequence[Path]
    test_files: Sequence[Path] = ()
    cohort: str | Path | Cohort | None = None
    report_on: str | Path | Cohort | None = None
    where: Mapping[str, str] | None = None
    protocol: str | None = None
    read: ReadOptions = field(default_factory=ReadOptions)
    explain: Callable[[UserError], str] = str


@dataclass(frozen=True, kw_only=True)
class MergeChoice:
    """How a setting is chosen and judged.

    Args:
        setting: The setting; None to search for it.
        vote: 'affirmative', 'consensus' or 'unanimous' for an ensemble by vote; None: weighted boxes fusion.
        weights: The weights of teams, by name; others weigh 1.
        floor: Boxes with a lower score on the common scale are left out.
        resamples: How many resamples; None for the protocol's number.
        seed: The seed of every draw.
        threads: How many threads; None for all processors.
        progress: Called to report how far the work is.
    """

    setting: MergeSetting | None = None
    vote: str | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    floor: float = 0.0
    resamples: int | None = None
    seed: int = 42
    threads: int | None = None
    progress: Progress | None = None


@dataclass(frozen=True, kw_only=True)
class Merged:
    """A merge, ready to be written and printed.

    Args:
        summary: The content of summary.json; it names no case and no folder.
        grid: Every setting with its value; None where none was searched.
        boxes: The merged boxes by role, 'validation' and 'test'.
        cohorts: The cohort of each role; None where there is none.
        failures: The teams that could not be read, with reasons that may name cases and files.
        redactor: The redactor that took the ids out of the summary.
    """

    summary: dict[str, Any]
    grid: pd.DataFrame | None
    boxes: Mapping[str, BoxPredictions]
    cohorts: Mapping[str, Cohort | None]
    failures: tuple[Failure, ...]
    redactor: Redactor


def merge_teams(inputs: MergeInputs, choice: MergeChoice) -> Merged:
    """Merge the boxes of several teams, and judge the merge on volumes that had no part in the choice.

    Args:
        inputs: The files and cohorts.
        choice: The setting, or how it is searched.

    Returns:
        The merged boxes, every setting with its value, and the summary.

    Raises:
        UserError: There is nothing to choose by, fewer than two teams could be read, or an option does not fit.
    """
    if inputs.cohort is None and choice.setting is None:
        raise UserError(
            "no setting can be chosen without a cohort with lesions",
            fix="Add --cohort COHORT to search for a setting, or --setting published to merge by the published one.",
        )
    first, second = find_parts(inputs.cohort, inputs.report_on, inputs.where, inputs.read)
    parts: dict[str, Part | None] = {VALIDATION: first, TEST: second} if second else {VALIDATION: first}
    if second is None and choice.setting is not None:
        parts = {TEST: first}
    files, warnings = find_team_files(inputs.files, inputs.test_files, both=second is not None)
    teams = read_teams(files, parts, inputs.read, explain=inputs.explain, progress=choice.progress)
    names = tuple(next(iter(teams.boxes.values())))
    options = MergeOptions(
        floor=choice.floor, weights=_weights(names, choice.weights), threads=choice.threads
    )
    warnings += teams.warnings
    if first is None:
        return _without_truth(teams, choice, options, warnings)
    protocol = choose_protocol(tasks.get("detection"), inputs.protocol, first.cohort.reader)
    sides = {
        role: side_of(
            role,
            part,
            teams,
            protocol,
            resampling=_resampling(part, protocol, choice),
            progress=choice.progress,
        )
        for role, part in parts.items()
        if part is not None
    }
    warnings += shared_patients(sides)
    warnings += [text for role, side in sides.items() for text in counted(role, side.boxes)]
    fitted = sides.get(VALIDATION) or sides[TEST]
    searched = None
    if choice.setting is None:
        searched = search_settings(
            fitted.boxes, settings=all_settings(choice.vote), options=options, progress=choice.progress
        )
    setting = searched.chosen if searched else choice.setting or published(choice.vote)
    scales = (searched.scales if searched else {}).get(setting.normalisation) or fit_scales(
        fitted.boxes, setting.normalisation
    )
    warnings += scale_notes(names, scales)
    if len(sides) == 2:
        warnings += other_range(sides)
    boxes = {
        role: merge_boxes(side.boxes, setting, scales=scales, options=options) for role, side in sides.items()
    }
    merged = {role: side.judge(boxes[role]) for role, side in sides.items()}
    part = _judged(sides, boxes, merged, setting, choice)
    part["chosen_by"] = "search" if searched else "given"
    part["without_one_team"] = team_contributions(
        sides, merged, setting, scales=scales, options=options, progress=choice.progress
    )
    of_study = published(setting.vote)
    if setting != of_study:
        part["published"] = _published(sides, of_study, fitted, searched, options)
    if choice.floor:
        part["boxes_below_floor"] = {
            role: int((scaled(side.boxes, scales) < choice.floor).sum()) for role, side in sides.items()
        }
    part["normalisation_notes"] = [
        f"{name} {scale.note}" for name, scale in zip(names, scales, strict=True) if scale.note
    ]
    if searched is not None:
        part["search"] = _of_search(searched)
        if TEST not in sides:
            warnings.append(
                "The value of the merge is that of the volumes that chose its setting, which is too good: report on other "
                "volumes with --report-on."
            )
    summary = _summary(sides, part, teams, choice, list(dict.fromkeys(warnings)))
    last = sides.get(TEST) or sides[VALIDATION]
    ids = [*ids_of(next(iter(last.singles.values())).scores), *read_ids()]
    redactor = Redactor(dict.fromkeys(ids), folders=read_folders())
    return _finished(summary, searched.table if searched else None, boxes, parts, teams, redactor)


def _finished(
    summary: dict[str, Any],
    grid: pd.DataFrame | None,
    boxes: Mapping[str, BoxPredictions],
    parts: Mapping[str, Part | None],
    teams: ReadTeams,
    redactor: Redactor,
) -> Merged:
    summary = redactor.summary(summary)
    summary["merging"]["failed"] = [failure.shared(redactor) for failure in teams.failures]
    return Merged(
        summary=summary,
        grid=grid,
        boxes=boxes,
        cohorts={role: None if part is None else part.cohort for role, part in parts.items()},
        failures=teams.failures,
        redactor=redactor,
    )


def _weights(names: Sequence[str], given: Mapping[str, float]) -> tuple[float, ...] | None:
    for name, weight in given.items():
        if name not in names:
            raise unknown_name("team", name, list(names))
        if not 0.0 < weight < float("inf"):
            raise UserError(f"the weight {weight:g} of {name}", where="--weight", fix="A number above 0.")
    return tuple(float(given.get(name, 1.0)) for name in names) if given else None


def _resampling(part: Part, protocol: Protocol, choice: MergeChoice) -> Resampling:
    return Resampling(
        key=part.cohort.hash,
        seed=choice.seed,
        resamples=protocol.interval.resamples if choice.resamples is None else choice.resamples,
        threads=choice.threads,
    )


def _judged(
    sides: Mapping[str, Side],
    boxes: Mapping[str, BoxPredictions],
    ready: Mapping[str, Prepared],
    setting: MergeSetting,
    choice: MergeChoice,
) -> dict[str, Any]:
    """The `merging` of the summary: teams, the merge, the best single team, optimism and gain."""
    leading = sides.get(VALIDATION) or sides[TEST]
    values = {
        role: {name: side.value(one) for name, one in side.singles.items()} for role, side in sides.items()
    }
    first = values[VALIDATION] if VALIDATION in sides else values[TEST]
    best = max(first, key=lambda name: -np.inf if np.isnan(first[name]) else first[name])
    metric = leading.metrics[0]
    made: dict[str, Any] = {
        "metric": metric,
        "label": leading.singles[best].evaluator.spec(metric).label,
        "method": f"vote: {setting.vote}" if setting.vote else "weighted boxes fusion",
        "setting": setting.to_dict(),
        "weights": dict(choice.weights),
        "floor": choice.floor,
        "teams": [],
        "merged": {},
        "best_single": {"team": best, "chosen_on": VALIDATION if VALIDATION in sides else TEST},
    }
    for number, name in enumerate(leading.boxes.names):
        row: dict[str, Any] = {"team": name, "weight": float(choice.weights.get(name, 1.0))}
        for role, side in sides.items():
            mine = side.boxes.boxes.model == number
            shown = side.estimates(side.singles[name])[metric]
            row[role] = {
                **shown,
                "boxes": int(mine.sum()),
                "volumes_with_boxes": int(np.unique(side.boxes.boxes.volume[mine]).size),
            }
        made["teams"].append(row)
    for role, side in sides.items():
        made["merged"][role] = {
            "metrics": side.estimates(ready[role], all_metrics=True),
            "boxes": len(boxes[role].table),
            "volumes": len(side.part.cohort.cases),
            "lesions": side.boxes.n_lesions,
            "patients": ready[role].partition.n_clusters,
        }
        made["best_single"][role] = side.estimates(side.singles[best], all_metrics=True)
    made["gain"] = {role: side.paired(ready[role], side.singles[best]) for role, side in sides.items()}
    if len(sides) == 2:
        made["optimism"] = {
            "merged": _optimism(sides, ready),
            "best_single": _optimism(sides, {role: side.singles[best] for role, side in sides.items()}),
        }
    return made


def _optimism(sides: Mapping[str, Side], ready: Mapping[str, Prepared]) -> dict[str, Any]:
    """Validation minus test, with the 95 % interval of two independent sets of patients."""
    side = sides[VALIDATION]
    found = difference_independent(
        ready[VALIDATION].evaluator,
        ready[VALIDATION].partition,
        ready[TEST].evaluator,
        ready[TEST].partition,
        side.metrics[0],
        alpha=0.025,
        resampling=side.resampling,
    ).to_dict()
    return {
        "validation": found["here"],
        "test": found["claimed"],
        **{name: found[name] for name in ("difference", "lo", "hi", "method", "warnings")},
        **({"undefined_reason": found["undefined_reason"]} if "undefined_reason" in found else {}),
    }


def _published(
    sides: Mapping[str, Side],
    setting: MergeSetting,
    fitted: Side,
    searched: Search | None,
    options: MergeOptions,
) -> dict[str, Any]:
    """Judge the published setting, which needs no search, next to the chosen one."""
    scales = (searched.scales if searched else {}).get(setting.normalisation) or fit_scales(
        fitted.boxes, setting.normalisation
    )
    made: dict[str, Any] = {"setting": setting.to_dict()}
    for role, side in sides.items():
        ready = side.judge(merge_boxes(side.boxes, setting, scales=scales, options=options))
        made[role] = side.estimates(ready)[side.metrics[0]]
    return made


def _of_search(searched: Search) -> dict[str, Any]:
    """Counts, the best settings, all values, and the best and the median value by each part of a setting."""
    table = searched.table
    parts = [name for name in ("normalisation", "iou", "score", "distance", "votes") if name in table.columns]
    levels = []
    for part in parts:
        for level, rows in table.groupby(part, sort=False):
            value = rows["value"].to_numpy(dtype=float)
            levels.append(
                {
                    "part": part,
                    "level": f"{level:g}" if isinstance(level, float | int) else str(level),
                    "settings": len(rows),
                    "best": float(value.max()),
                    "median": float(np.median(value)),
                }
            )
    best = table.sort_values("rank", kind="stable").head(_BEST_SHOWN)
    return {
        "settings": len(table),
        "fusions": searched.fusions,
        "equal_to_best": searched.equal,
        "values": table["value"].tolist(),
        "published_rank": int(table.loc[table["published"], "rank"].iloc[0])
        if table["published"].any()
        else None,
        "published_value": float(table.loc[table["published"], "value"].iloc[0])
        if table["published"].any()
        else None,
        "chosen_value": float(table.loc[table["chosen"], "value"].iloc[0]),
        "best": best.drop(columns=["chosen", "published"]).to_dict("records"),
        "levels": levels,
    }


def _summary(
    sides: Mapping[str, Side],
    part: dict[str, Any],
    teams: ReadTeams,
    choice: MergeChoice,
    warnings: list[str],
) -> dict[str, Any]:
    last = sides.get(TEST) or sides[VALIDATION]
    rules = last.protocol
    cohort = last.part.cohort
    return {
        "elsewhere": __version__,
        "task": "detection",
        "question": "Do the detectors find more together than the best of them alone?",
        "protocol": rules.name,
        "protocol_version": rules.version,
        **({"protocol_counterpart": rules.counterpart} if rules.counterpart else {}),
        "provenance": {
            "cohort_hash": cohort.hash,
            "cohort_hashes": {role: side.part.cohort.hash for role, side in sides.items()},
            "seed": choice.seed,
            "resamples": last.resampling.resamples,
            "code_version": __version__,
            "command": "merge",
            "protocol_digest": rules.digest(),
            "predictions_digest": dict(teams.digests),
            "id_grades": {
                name: {"grade": grade.grade, "why": grade.why} for name, grade in cohort.id_grades.items()
            },
            "settings": {role: dict(side.part.where) for role, side in sides.items() if side.part.where},
        },
        "counts": {
            "cases": len(cohort.cases),
            "patients": next(iter(last.singles.values())).partition.n_clusters,
            "teams": len(last.boxes.names),
            "failed": len(teams.failures),
        },
        "metrics": {},
        "merging": part,
        "warnings": warnings,
    }


def _without_truth(
    teams: ReadTeams, choice: MergeChoice, options: MergeOptions, warnings: list[str]
) -> Merged:
    """Merge by a given setting, without a cohort: there is nothing to judge by."""
    setting = choice.setting or published(choice.vote)
    from elsewhere.protocols.builtin import DBTEX_CODE

    boxes = gather(teams.boxes[TEST], DBTEX_CODE.detection)
    scales = fit_scales(boxes, setting.normalisation)
    made = merge_boxes(boxes, setting, scales=scales, options=options)
    warnings += [*counted("all volumes", boxes), *scale_notes(boxes.names, scales)]
    summary: dict[str, Any] = {
        "elsewhere": __version__,
        "task": "detection",
        "question": "What do the detectors find together?",
        "provenance": {
            "code_version": __version__,
            "command": "merge",
            "predictions_digest": dict(teams.digests),
        },
        "counts": {"teams": len(boxes.names), "failed": len(teams.failures)},
        "metrics": {},
        "merging": {
            "method": f"vote: {setting.vote}" if setting.vote else "weighted boxes fusion",
            "setting": setting.to_dict(),
            "chosen_by": "given",
            "weights": dict(choice.weights),
            "floor": choice.floor,
            "teams": [
                {
                    "team": name,
                    "weight": float(choice.weights.get(name, 1.0)),
                    "all": {
                        "boxes": int((boxes.boxes.model == number).sum()),
                        "volumes_with_boxes": int(
                            np.unique(boxes.boxes.volume[boxes.boxes.model == number]).size
                        ),
                    },
                }
                for number, name in enumerate(boxes.names)
            ],
            "merged": {"all": {"boxes": len(made.table), "volumes": len(boxes.volume_ids)}},
        },
        "warnings": list(dict.fromkeys(warnings)),
    }
    redactor = Redactor(read_ids(), folders=read_folders())
    return _finished(summary, None, {TEST: made}, {TEST: None}, teams, redactor)
