"""From the results of a study to its numbers: every registered analysis that applies, and the headline.

Nothing here opens an image or trains. Every draw goes back to one generator, keyed by the cohort, so that the
same scores give the same numbers on any machine.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

import elsewhere
from elsewhere.analysis.study.boards import SEED
from elsewhere.analysis.study.cases import Chosen, hardest
from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.design import Design
from elsewhere.analysis.study.headline import study_headline
from elsewhere.analysis.study.registry import in_order
from elsewhere.analysis.study.warnings import notes_on_published, study_warnings
from elsewhere.cohort.private_ids import ids_in
from elsewhere.errors import UserError
from elsewhere.privacy import Redactor, new_salt, redacted_table
from elsewhere.study.results import Results
from elsewhere.tables import to_jsonable

Progress = Callable[[str, int, int], None]
LONG_TABLES = ("runs", "run_metrics", "risk_coverage", "weights", "pairwise", "group_pairs")
"""Tables that are written as csv and left out of summary.json."""


@dataclass(frozen=True, kw_only=True)
class StudySummary:
    """The numbers of a study.

    Args:
        name: Name of the study.
        headline: Content of the report's first page.
        tables: Tables by name, every task in the column `task`. No table names a patient.
        designs: What varies in each task.
        audit: What was checked before anything was trained.
        warnings: What to know before believing the numbers.
        notes: Notes on published numbers.
        provenance: Versions, hashes, protocols, seeds.
        chosen: Cases worth a picture, by task.
        ids: The names that may not be printed.
        salt: Key of the hashes that replace case ids.
        originals: The ids that were taken out of tables and warnings, by the mark that replaces them.
    """

    name: str
    headline: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    designs: dict[str, Design]
    audit: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, tuple[Chosen, ...]] = field(default_factory=dict)
    ids: frozenset[str] = field(default=frozenset(), repr=False)
    salt: str = field(default="", repr=False)
    originals: dict[str, str] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of summary.json: the headline and every table but the long ones.

        Returns:
            The content.
        """
        return {
            "study": self.name,
            "headline": to_jsonable(self.headline),
            "tables": {name: table for name, table in self.tables.items() if name not in LONG_TABLES},
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "provenance": to_jsonable(self.provenance),
        }

    def of(self, table: str, **where: Any) -> pd.DataFrame:
        """Find rows of a table.

        Args:
            table: Its name.
            **where: Values of columns.

        Returns:
            The rows; empty where the table or a column is not there.
        """
        found = self.tables.get(table, pd.DataFrame())
        for name, value in where.items():
            if found.empty or name not in found.columns:
                return pd.DataFrame()
            found = found[found[name] == value]
        return found.reset_index(drop=True)


def analyse(
    results: Results, *, resamples: int | None = None, progress: Progress | None = None
) -> StudySummary:
    """Make every table and the headline of a study.

    Args:
        results: Results of the study.
        resamples: Number of resamples of patients, for every interval that resamples; 0 leaves those out.
            None for the number in the study file.
        progress: Called with what is done, how many steps are done, and how many there are; None for no
            report.

    Returns:
        The summary.

    Raises:
        UserError: If the number of resamples is negative, no run of the study is done, or no method could be
            ranked.
    """
    if resamples is None:
        resamples = results.study.analyses.resamples
    if resamples < 0:
        raise UserError(f"{resamples} resamples cannot be drawn", fix="Use 0 for none, or 1,000 and more.")
    if results.scored().empty:
        raise UserError(
            "no run of the study is done", where=results.name, fix="Run it first: `elsewhere run STUDY`."
        )
    salt = new_salt()
    contexts = {
        task: Context(results=results, task=task, resamples=resamples, salt=salt) for task in results.tasks
    }
    shared = _run_analyses(contexts, progress)
    if not any(context.boards for context in contexts.values()):
        raise UserError(
            "no method of the study could be ranked", where=results.name, fix="Its runs table says why."
        )
    redact = Redactor(ids_in(results.cohort))
    tables = {name: redacted_table(table, redact) for name, table in _joined(contexts, shared).items()}
    chosen = {
        task: tuple(hardest(context.leading, salt=salt)[1])
        for task, context in contexts.items()
        if context.leading is not None
    }
    clean = redact.tree(
        {
            "headline": study_headline(results, contexts),
            "warnings": list(study_warnings(results, contexts)),
        }
    )
    return StudySummary(
        name=results.name,
        headline=clean["headline"],
        tables=tables,
        designs={task: context.design for task, context in contexts.items()},
        audit=dict(results.audit),
        warnings=tuple(clean["warnings"]),
        notes=tuple(dict.fromkeys(note for c in contexts.values() for note in notes_on_published(c))),
        provenance=_provenance(results, contexts, resamples),
        chosen=chosen,
        ids=ids_in(results.cohort),
        salt=salt,
        originals=redact.originals,
    )


def _run_analyses(contexts: Mapping[str, Context], progress: Progress | None) -> dict[str, pd.DataFrame]:
    """Run every analysis for the tasks that it serves; tables of the whole study are returned."""
    shared: dict[str, pd.DataFrame] = {}
    steps = [(one, context) for one in in_order() for context in contexts.values()]
    for number, (one, context) in enumerate(steps):
        if progress:
            progress("analysing", number, len(steps))
        if context.planned.empty or not one.serves(context):
            continue
        if one.whole_study:
            shared |= dict(one.function(context))
        elif not context.runs.empty or context.boards:
            context.made.update({name: t for name, t in one.function(context).items() if not t.empty})
    if progress:
        progress("analysing", len(steps), len(steps))
    return shared


def _joined(contexts: Mapping[str, Context], shared: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables of all tasks below each other, with the column `task` first."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for task, context in contexts.items():
        for name, table in context.made.items():
            rest = [c for c in table.columns if c != "task"]
            parts.setdefault(name, []).append(table.assign(task=task)[["task", *rest]])
    tables = {name: pd.concat(found, ignore_index=True) for name, found in parts.items()}
    return tables | {name: table for name, table in shared.items() if not table.empty}


def _provenance(results: Results, contexts: Mapping[str, Context], resamples: int) -> dict[str, Any]:
    trainings, about = results.trainings, results.audit.get("cohorts")
    boards = [board for context in contexts.values() for board in context.boards]
    out: dict[str, Any] = {
        "elsewhere": elsewhere.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pandas": pd.__version__,
        "cohort_hash": results.cohort.hash,
        "cohorts": {
            str(name): str(entry.get("hash", ""))
            for name, entry in (about.items() if isinstance(about, Mapping) else ())
            if isinstance(entry, Mapping)
        },
        "seed": SEED,
        "seeds": sorted(int(seed) for seed in results.runs["seed"].dropna().unique()),
        "resamples": resamples,
        "protocols": {b.protocol.name: f"{b.protocol.version} ({b.protocol.digest()})" for b in boards},
        "trainings": len(set(results.runs["training"].astype("str")) - {""}),
    }
    for column, name in (("seconds", "training_seconds"), ("images", "images_seen")):
        if column in trainings.columns:
            out[name] = float(pd.to_numeric(trainings[column], errors="coerce").sum())
    if "device" in trainings.columns:
        devices = trainings["device"].dropna().astype("str")
        out["devices"] = {str(k): int(v) for k, v in devices[devices != ""].value_counts().items()}
    return out
