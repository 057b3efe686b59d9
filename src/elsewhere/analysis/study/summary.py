"""From the outputs of a study's runs to its numbers: `analyse` (US-15 to US-22, US-24, US-25, US-32).

Nothing here opens an image or trains: it reads the runs' outputs once and keeps what the tables need. Every
draw goes back to one generator, keyed by the study table and the scenario, so that the same outputs give the
same numbers whatever the machine.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import elsewhere
from elsewhere.errors import UserError
from elsewhere.statistics.calibration import reliability_curve
from elsewhere.study.analysis_abstention import abstention_tables
from elsewhere.study.analysis_beside import beside_paper
from elsewhere.study.analysis_design import KIND_WORDS, Design, configuration, read_design, tidy_runs
from elsewhere.study.analysis_drop import drop_table, transfer_verdicts, verdict
from elsewhere.study.analysis_runs import IntArray, Judged, Part, judge_run
from elsewhere.study.analysis_scenarios import (
    KEYS,
    margin_table,
    new_hospital_table,
    paired_table,
    patient_intervals,
    scenario_table,
    summaries,
    without_table,
)
from elsewhere.study.analysis_tables import (
    complete_kinds,
    datasets_table,
    eligibility_table,
    found_boxes_table,
    margin_beside,
    multi_source_table,
    overall_table,
    paired_beside,
    transfers_table,
    without_beside,
)
from elsewhere.study.reference import other_networks, reference
from elsewhere.study.selection import choose_on_sources, outline_inputs

if TYPE_CHECKING:
    from elsewhere.study.picture_results import StudyResults

NESTED = "nested"
"""Runs that only serve to choose a method on the sources; they stand in no average."""
Progress = Callable[[str, int, int], None]
_RUN_KEYS = (
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
)


@dataclass(frozen=True, kw_only=True)
class StudySummary:
    """The numbers of a study: tables by name, the headline, curves for the figures, and where it all comes
    from. `ids` are the names that may not be printed."""

    name: str
    headline: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    curves: dict[str, Any]
    design: Design
    audit: dict[str, Any]
    settings: dict[str, Any]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    provenance: dict[str, Any]
    ids: frozenset[str] = field(default=frozenset(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """For summary.json: the headline and every table but the rows a run."""
        return {
            "study": self.name,
            "headline": self.headline,
            "tables": {n: t for n, t in self.tables.items() if n not in ("runs", "risk_coverage")},
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "provenance": self.provenance,
        }


def analyse(
    results: StudyResults, *, resamples: int = 1000, progress: Progress | None = None
) -> StudySummary:
    """Every table and the headline of a study. `resamples` of patients a scenario; 0 leaves those out."""
    if resamples < 0:
        raise UserError(f"{resamples} resamples cannot be drawn", fix="Use 0 for none, or 1,000 and more.")
    settings: Mapping[str, Any] = results.settings or {}
    analyses = settings.get("analyses") if isinstance(settings.get("analyses"), Mapping) else {}
    wanted = (analyses or {}).get("margin_reference")
    planned = tidy_runs(results.runs, margin_reference=wanted if isinstance(wanted, float) else None)
    if "ensemble" in planned.columns:
        planned = planned[~planned["ensemble"].astype(bool)].reset_index(drop=True)
    done = planned[planned["status"] == "done"].reset_index(drop=True)
    if done.empty:
        raise UserError(
            "no run of the study is done", where=results.name, fix="Run it first: `elsewhere run STUDY`."
        )
    chosen = choose_on_sources(results)
    nested = done["kind"] == NESTED
    if not nested.all():
        done = done[~nested].reset_index(drop=True)
    design = read_design(results.name, settings, results.table, done)
    names = (results.audit or {}).get("cohorts")
    if isinstance(names, Mapping) and set(names) >= set(design.datasets):
        held_names = tuple(n for n in map(str, names) if n in design.datasets)
        design = Design(**{**design.__dict__, "datasets": held_names})
    judged = _judge_all(results, done, progress)
    runs = pd.DataFrame([judged[run].row for run in done["run"]])
    key = _table_key(results.table)
    scenarios = scenario_table(runs)
    intervals = patient_intervals(judged, runs, key=key, resamples=resamples, progress=progress)
    scenarios = _joined(scenarios, intervals)
    more = {"selection": chosen.chosen, "selection_attempts": chosen.attempts}
    if drawn := outline_inputs(settings):
        more["selection_without_outline"] = choose_on_sources(results, without_inputs=drawn).chosen
    return _summary(
        results, design, planned, runs, scenarios, judged, key=key, resamples=resamples, more=more
    )


def _judge_all(results: StudyResults, done: pd.DataFrame, progress: Progress | None) -> dict[str, Judged]:
    group = (
        dict(zip(results.table["case"], results.table["group"], strict=True))
        if "group" in results.table.columns
        else {}
    )
    codes: dict[str, int] = {}

    def cluster_of(part: Part) -> IntArray:
        names = [str(group.get(c, p)) for c, p in zip(part.case, part.patient, strict=True)]
        return np.array([codes.setdefault(name, len(codes)) for name in names], dtype=np.int32)

    judged: dict[str, Judged] = {}
    for at, row in enumerate(done.to_dict(orient="records")):
        if progress:
            progress("runs", at, len(done))
        keys = {name: row[name] for name in _RUN_KEYS if name in row}
        judged[str(row["run"])] = judge_run(keys, results.outputs(str(row["run"])), cluster_of=cluster_of)
    return judged


def _table_key(table: pd.DataFrame) -> str:
    digest = hashlib.sha256()
    for case, label in sorted(zip(table["case"], table["label"], strict=True)):
        digest.update(f"{case}\t{label}\n".encode())
    return digest.hexdigest()


def _joined(scenarios: pd.DataFrame, intervals: pd.DataFrame) -> pd.DataFrame:
    keys = ["kind", "scenario", "model", "input"]
    folds = intervals["kind"] == "folds"
    return scenarios.merge(intervals[~folds], on=keys, how="left", validate="one_to_one")


def _summary(
    results: StudyResults,
    design: Design,
    planned: pd.DataFrame,
    runs: pd.DataFrame,
    scenarios: pd.DataFrame,
    judged: Mapping[str, Judged],
    *,
    key: str,
    resamples: int,
    more: Mapping[str, pd.DataFrame],
) -> StudySummary:
    paper = reference(design.reference) if design.reference else None
    complete = complete_kinds(scenarios, paper)
    summary = summaries(scenarios, design)
    analyses = results.settings.get("analyses") if results.settings else None
    ensemble = bool(analyses.get("ensemble", True)) if isinstance(analyses, Mapping) else True
    scores, curves, ensembles = abstention_tables(judged, runs, design, ensemble=ensemble)
    drop = drop_table(scenarios, design)
    transfers = transfer_verdicts(transfers_table(scenarios, paper), scenarios, design)
    tables = {
        "datasets": datasets_table(results.table, results.audit or {}, design, paper),
        "overall": overall_table(summary, design, paper, complete),
        "drop": drop,
        "transfers": transfers,
        "paired": paired_beside(paired_table(scenarios, design), paper, complete),
        "found_boxes": found_boxes_table(results.audit or {}, scenarios),
        "without_dataset": without_beside(without_table(scenarios, design), paper, complete),
        "margins": margin_beside(margin_table(runs, design), runs, paper),
        "multi_source": multi_source_table(scenarios, design),
        "calibration_eligibility": eligibility_table(runs, design, paper),
        "lesion_against_normal": _normal_table(runs, scenarios, design),
        "abstention": scores,
        "risk_coverage": curves,
        "ensembles": ensembles,
        "new_hospital": new_hospital_table(judged, runs, design),
        "summary": summary,
        "scenarios": scenarios[[*KEYS, *[c for c in scenarios.columns if c not in KEYS]]],
        "runs": runs,
        "skipped": _skipped(results, planned),
        **more,
    }
    tables["beside_paper"] = beside_paper(tables) if paper else pd.DataFrame()
    return StudySummary(
        name=results.name,
        headline=_headline(design, drop, planned, runs, results.table)
        | _chosen(more["selection"], more.get("selection_without_outline")),
        tables={name: table for name, table in tables.items() if not table.empty},
        curves=_reliability(judged, runs, design),
        design=design,
        audit=dict(results.audit or {}),
        settings=dict(results.settings or {}),
        warnings=tuple(_warnings(results, planned, runs)),
        notes=tuple(_notes(design, paper.source if paper else "", complete)),
        provenance=_provenance(results, design, key, resamples),
        ids=_ids(results.table),
    )


def _headline(
    design: Design, drop: pd.DataFrame, planned: pd.DataFrame, runs: pd.DataFrame, table: pd.DataFrame
) -> dict[str, Any]:
    status = planned["status"].value_counts()
    return verdict(drop, design) | {
        "runs": int(status.get("done", 0)),
        "planned": len(planned),
        "failed": int(status.get("failed", 0)),
        "skipped": int(status.get("skipped", 0)),
        "scenarios": int(runs["scenario"].nunique()),
        "choosing_scenarios": int(planned.loc[planned["kind"] == NESTED, "scenario"].nunique()),
        "datasets": len(design.datasets),
        "images": len(table),
        "patients": int(table["patient"].nunique()),
        "seeds": list(design.seeds),
        "leaked_runs": int((runs["leaked_groups"] > 0).sum()),
    }


def _chosen(selection: pd.DataFrame, plain: pd.DataFrame | None) -> dict[str, Any]:
    """What may be claimed of hospitals left out: the method was chosen on the sources alone (ST-12). `plain`: the same
    choice without the annotated outline, where some configuration sees it."""
    if selection.empty:
        return {}
    mean = selection.iloc[-1]
    return {
        "chosen_auroc": float(mean["ensemble_auroc"]),
        "chosen_lo": float(mean["lo"]),
        "chosen_hi": float(mean["hi"]),
        "chosen_targets": len(selection) - 1,
        "chosen_without_outline": None
        if plain is None or plain.empty
        else float(plain.iloc[-1]["ensemble_auroc"]),
    }


def _normal_table(runs: pd.DataFrame, scenarios: pd.DataFrame, design: Design) -> pd.DataFrame:
    """US-18 a kind, target and configuration: values, or why there is none, and the shared patients."""
    rows = []
    for (kind, target, model, input_), part in runs.groupby(["kind", "target", "model", "input"], sort=False):
        held = scenarios[
            (scenarios["kind"] == kind)
            & (scenarios["target"] == target)
            & (scenarios["model"] == model)
            & (scenarios["input"] == input_)
        ]
        reasons = [r for r in part["normal_reason"].unique() if r]
        rows.append(
            {
                "kind": kind, "target": target, "model": model, "input": input_,
                "auroc": held["normal_auroc"].mean(), "auprc": held["normal_auprc"].mean(),
                "scenarios": int(held["normal_auroc"].notna().sum()),
                "normal_images": int(part["normal_images"].max()),
                "share_normal": float((part["normal_images"] / (part["normal_images"] + part["cases"])).mean()),
                "shared_patients": int(part["normal_shared_patients"].max()),
                "unavailable": reasons[0] if reasons and held["normal_auroc"].isna().all() else "",
            }
        )  # fmt: skip
    return design.order(pd.DataFrame(rows)) if rows else pd.DataFrame()


def _reliability(judged: Mapping[str, Judged], runs: pd.DataFrame, design: Design) -> dict[str, Any]:
    """Reliability of the malignant probability, all main runs of a kind pooled, before and after."""
    out: dict[str, Any] = {}
    main = set(design.main)
    for kind, part in runs.groupby("kind", sort=False):
        held = [
            judged[r]
            for r, m, i in zip(part["run"], part["model"], part["input"], strict=True)
            if (m, i) in main and np.isfinite(judged[r].probability).all()
        ]
        if not held:
            continue
        label = np.concatenate([j.test.label for j in held])
        cluster = np.unique(np.concatenate([j.cluster for j in held]), return_inverse=True)[1]
        for name, values in (
            ("reliability", [j.probability for j in held]),
            ("reliability_calibrated", [j.calibrated for j in held]),
        ):
            made = reliability_curve(label, np.concatenate(values), cluster)
            out.setdefault(str(kind), {})[name] = made.to_dict() | {"n": list(made.cases)}
    return {"reliability": out}


def _skipped(results: StudyResults, planned: pd.DataFrame) -> pd.DataFrame:
    parts = [results.skipped] if results.skipped is not None and len(results.skipped) else []
    lost = planned[planned["status"] == "failed"]
    if len(lost):
        parts.append(
            lost[["scenario", "seed", "model", "input", "reason"]].assign(
                reason="failed: " + lost["reason"].astype(str)
            )
        )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _warnings(results: StudyResults, planned: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    out = [str(w) for w in (results.audit or {}).get("warnings") or []]
    lost = int((planned["status"] != "done").sum())
    if lost:
        out.insert(0, f"{lost} of {len(planned)} runs are not done: the averages lack them")
    done = planned[planned["status"] == "done"]
    seeds = done.groupby(["kind", "scenario", "model", "input"])["seed"].nunique()
    for kind, uneven in seeds.groupby("kind"):
        if uneven.min() != uneven.max():
            fewest = uneven.groupby(["model", "input"]).min()
            fewer = [configuration(str(m), str(i)) for m, i in fewest[fewest < uneven.max()].index]
            out.insert(
                0,
                f"scenarios ({KIND_WORDS.get(str(kind), kind)}) rest on {uneven.min()} to {uneven.max()} seeds: their "
                f"means differ in weight (fewer: {'; '.join(fewer)})",
            )
    broken = int((runs["no_answer"] > 0).sum())
    if broken:
        out.insert(0, f"{broken} runs gave answers that are no numbers; these count as wrong (ST-14)")
    pairs = ((results.audit or {}).get("duplicates") or {}).get("pairs") or []
    torn = sum("labels" in str(relation) for _, _, _, relation, *_ in pairs)
    if torn:
        out.append(f"{torn} pairs of near-duplicate pictures carry different labels; both stay (US-30)")
    shared = runs[(runs["normal_shared_patients"] > 0) & runs["normal_auroc"].notna()]
    for target, part in shared.groupby("target"):
        most = int(part["normal_shared_patients"].max())
        out.append(
            f"lesion against normal at {target}: up to {most} patients have both lesion and normal images, "
            "so that the two sides are not independent (US-18)"
        )
    return list(dict.fromkeys(out))


def _notes(design: Design, source: str, complete: frozenset[str]) -> list[str]:
    out = []
    if source:
        out.append(f"The paper's numbers: {source}.")
        for kind in ("internal", "external"):
            if kind in design.kinds and kind not in complete:
                out.append(
                    f"The {kind} scenarios are not the paper's, so its averages over them are not shown beside ours."
                )
        out += other_networks(design.network, design.weights)
    if design.ids == "image":
        out.append(
            "Every picture counts as a patient (ids = image): a reading that leaks patients, for comparison."
        )
    return out


def _provenance(results: StudyResults, design: Design, key: str, resamples: int) -> dict[str, Any]:
    cohorts = (results.audit or {}).get("cohorts") or {}
    units = results.units if results.units is not None else pd.DataFrame()
    out: dict[str, Any] = {
        "elsewhere": elsewhere.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pandas": pd.__version__,
        "study_table": key,
        "cohorts": {str(n): str(c.get("hash", "")) for n, c in cohorts.items() if isinstance(c, Mapping)},
        "seeds": list(design.seeds),
        "resamples": resamples,
        "trainings": len(units),
    }
    for column, name in (("seconds", "training_seconds"), ("images", "images_seen")):
        if column in units.columns:
            out[name] = float(pd.to_numeric(units[column], errors="coerce").sum())
    if "device" in units.columns:
        out["devices"] = {str(k): int(v) for k, v in units["device"].value_counts().items()}
    return out


def _ids(table: pd.DataFrame) -> frozenset[str]:
    """Names of cases, patients and groups. A bare number of up to four digits stays: in a sentence it is
    nearly always a count, and with its dataset in front it is removed anyway."""
    names: set[str] = set()
    for column in ("case", "case_id", "patient", "group"):
        if column in table.columns:
            names |= set(table[column].astype(str))
    names |= {n.split("/", 1)[1] for n in list(names) if "/" in n}
    return frozenset(n for n in names if not (n.isdigit() and len(n) <= 4))
