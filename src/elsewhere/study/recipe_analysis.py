"""From the scores of a recipe study to its numbers: `analyse_recipes` (MRI-08 to MRI-12).

Nothing here opens a volume: it reads scores and the cohort alone. Every resample is of patients, keyed by the
cohort with the protocol's seed, so that all recipes of a board share them and the same scores give the same
numbers on any machine.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from elsewhere._version import __version__
from elsewhere.errors import UserError
from elsewhere.privacy import Redactor, new_salt, suppress_counts
from elsewhere.report.page.sanitise import sanitise
from elsewhere.scoring.response import CONSTANT
from elsewhere.scoring.segmentation import EMPTY_PREDICTION, EMPTY_TRUTH, empty_predictions, empty_truth
from elsewhere.study import recipe_analysis_cases as cases_part
from elsewhere.study import recipe_analysis_groups as groups_part
from elsewhere.study import recipe_analysis_home as home_part
from elsewhere.study import recipe_analysis_ranks as ranks_part
from elsewhere.study.recipe_analysis_boards import MAIN, SEED, Board, Entry, boards_of, margin_of
from elsewhere.study.recipe_analysis_cases import Chosen
from elsewhere.study.recipe_analysis_told import told_table
from elsewhere.study.recipe_privacy import ids_in, redacted_table

if TYPE_CHECKING:
    from elsewhere.study.recipe_results import RecipeResults

Progress = Callable[[str, int, int], None]
USUAL_RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class RecipeSummary:
    """The numbers of a recipe study: tables by name, and the headline. `chosen` are cases worth a picture by
    task; `ids` are the names that may not be printed, and `salt` made their hashes."""

    tables: dict[str, pd.DataFrame]
    headline: dict[str, Any]
    name: str = ""
    warnings: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, tuple[Chosen, ...]] = field(default_factory=dict)
    ids: frozenset[str] = field(default=frozenset(), repr=False)
    salt: str = field(default="", repr=False)
    originals: dict[str, str] = field(default_factory=dict, repr=False)
    """The ids that were taken out of tables and warnings, by the mark that stands there now."""

    def to_dict(self) -> dict[str, Any]:
        """For summary.json: the headline and every table but the long ones, which stand beside as csv."""
        return {
            "study": self.name,
            "headline": sanitise(self.headline),
            "tables": {
                n: t for n, t in self.tables.items() if n not in ("weights", "pairwise", "group_pairs")
            },
            "warnings": list(self.warnings),
            "provenance": sanitise(self.provenance),
        }

    def of(self, table: str, **where: Any) -> pd.DataFrame:
        """The rows of a table, empty where it is not there."""
        found = self.tables.get(table, pd.DataFrame())
        for name, value in where.items():
            if found.empty or name not in found.columns:
                return pd.DataFrame()
            found = found[found[name] == value]
        return found.reset_index(drop=True)


def analyse_recipes(
    results: RecipeResults, *, resamples: int | None = None, progress: Progress | None = None
) -> RecipeSummary:
    """Every table and the headline. `resamples` of patients a board, None: as the study file says (1,000);
    with 0 there are no intervals."""
    if resamples is None:
        resamples = int((results.settings.get("analyses") or {}).get("resamples", USUAL_RESAMPLES))
    if resamples < 0:
        raise UserError(f"{resamples} resamples cannot be drawn", fix="Use 0 for none, or 1,000 and more.")
    if not results.scores:
        raise UserError(
            "no run of the study has scores", where=results.name, fix="Run it first: `elsewhere run STUDY`."
        )
    boards = boards_of(results, resamples=resamples)
    if not boards:
        raise UserError(
            "no recipe of the study could be ranked", where=results.name, fix="Its runs table says why."
        )
    leading: dict[str, Board] = {}
    for board in boards:
        leading.setdefault(board.task, board)
    salt = new_salt()
    parts: dict[str, list[pd.DataFrame]] = {}
    chosen: dict[str, tuple[Chosen, ...]] = {}
    about: dict[str, dict[str, Any]] = {}

    def add(name: str, table: pd.DataFrame) -> None:
        if not table.empty:
            parts.setdefault(name, []).append(table)

    for at, board in enumerate(boards):
        if progress:
            progress(f"{board.task}: {board.words}", at, len(boards))
        add("leaderboard", ranks_part.leaderboard(board, results.costs))
        add("against_baseline", ranks_part.paired(board))
        add("chance", pd.DataFrame(ranks_part.chance_rows(board)))
        add("seeds", ranks_part.seeds(board))
        if board is leading[board.task]:
            about[board.task] = _detail(board, results, add, resamples=resamples)
            table, picks = cases_part.hardest(board, salt=salt)
            add("hardest", table)
            chosen[board.task] = tuple(picks)
    for task in leading:
        margin = margin_of(results.settings, task)
        home = home_part.home_and_elsewhere(results, task, margin=margin, resamples=resamples)
        add("home_and_elsewhere", home)
        coins = home_part.coins_of(results.settings)
        add("drop", home_part.drop_over_datasets(home, margin=margin, coins=coins))
    add("could_see", home_part.could_see(results, list(leading.values())))
    add("datasets", _datasets(results))
    add("runs", results.runs)
    add("recipes", told_table(results))
    tables = {name: pd.concat(found, ignore_index=True) for name, found in parts.items()}
    if progress:
        progress("done", len(boards), len(boards))
    ids = ids_in(results.cohort)
    redact = Redactor(ids)
    tables = {name: redacted_table(table, redact) for name, table in tables.items()}
    headline = _headline(results, boards, leading, tables, about)
    return RecipeSummary(
        tables=tables,
        headline=headline,
        name=results.name,
        warnings=tuple(redact.text(w) for w in _warnings(results, boards, tables)),
        provenance=_provenance(results, boards, resamples),
        chosen=chosen,
        ids=ids,
        salt=salt,
        originals=redact.originals,
    )


def _detail(board: Board, results: RecipeResults, add: Any, *, resamples: int) -> dict[str, Any]:
    """What only the leading board of a task has."""
    weights, gate, told = ranks_part.weights(board)
    add("weights", weights)
    add("gate", gate)
    add("pairwise", ranks_part.pairwise(board))
    add("known", groups_part.known_table(board))
    add("groups", groups_part.group_rows(board))
    fairness, pairs = groups_part.fairness_tables(board, resamples=min(resamples, 1000))
    add("fairness", fairness)
    add("group_pairs", pairs)
    add("top_and_bottom", groups_part.top_bottom(board))
    add("size_mix", groups_part.size_mix(board))
    margin, coins = margin_of(results.settings, board.task), home_part.coins_of(results.settings)
    add("centres", home_part.centres(board, margin=margin, coins=coins))
    add("recall", cases_part.recalls(board))
    add("reliability", cases_part.reliability(board))
    return told


def _datasets(results: RecipeResults) -> pd.DataFrame:
    """Who is in the cohort: patients, known outcomes, masks, sites; small cells withheld."""
    cases = results.cohort.cases
    rows = []
    for dataset, part in cases.groupby(cases["dataset"].astype("string").fillna(""), sort=True):
        row: dict[str, Any] = {"dataset": str(dataset), "patients": int(part["patient_id"].nunique())}
        row["sites"] = int(part["site"].nunique()) if "site" in part.columns else 0
        if "pcr" in part.columns:
            known = pd.to_numeric(part["pcr"], errors="coerce").dropna()
            split = suppress_counts({"pcr": int((known > 0).sum()), "no_pcr": int((known == 0).sum())})
            row |= {"outcome_known": len(known), **split}
        if "mask" in part.columns:
            row["masks"] = int(part["mask"].notna().sum())
        for name in ("age", "menopausal_status", "breast_density", "subtype"):
            row[f"{name}_known"] = int(part[name].notna().sum()) if name in part.columns else 0
        grade = results.cohort.id_grades.get(str(dataset))
        row |= {"id_grade": grade.grade if grade else "", "id_grade_why": grade.why if grade else ""}
        rows.append(row)
    return pd.DataFrame(rows)


def _headline(
    results: RecipeResults,
    boards: list[Board],
    leading: Mapping[str, Board],
    tables: Mapping[str, pd.DataFrame],
    about: Mapping[str, dict[str, Any]],
) -> dict[str, Any]:
    runs = results.runs
    return {
        "study": results.name,
        "datasets": int(results.cohort.cases["dataset"].nunique())
        if "dataset" in results.cohort.cases
        else 0,
        "patients": int(results.cohort.cases["patient_id"].nunique()),
        "recipes": int(runs["recipe"].nunique()),
        "runs": int((runs["status"] == "done").sum()),
        "planned": len(runs),
        "boards": [
            {
                "task": b.task,
                "board": b.name,
                "kind": b.kind,
                "words": b.words,
                "leading": b is leading[b.task],
                "cases": len(b.cases),
                "patients": b.partition.n_clusters,
                "recipes": len(b.entries),
                "scenarios": len(b.scenarios),
                "baseline": b.baseline,
                "ranked_by": b.ranked_by,
                "protocol": b.protocol.name,
                "protocol_version": b.protocol.version,
                "interval": b.protocol.interval.method or "each metric's own",
            }
            for b in boards
        ],
        "tasks": {task: _task(results, board, tables, about[task]) for task, board in leading.items()},
    }


def _task(
    results: RecipeResults, board: Board, tables: Mapping[str, pd.DataFrame], about: Mapping[str, Any]
) -> dict[str, Any]:
    """What the best recipe does at home and elsewhere, the word, and what the evidence could have seen."""
    lead = tables["leaderboard"]
    lead = lead[(lead["task"] == board.task) & (lead["board"] == board.name) & (lead["status"] == "ranked")]
    top = lead.iloc[0]
    best, metric = str(top["recipe"]), MAIN[board.task]
    margin = margin_of(results.settings, board.task)
    out: dict[str, Any] = {
        "board": board.name,
        "words": board.words,
        "best": best,
        "tied": int((lead["tier"] == 1).sum()),
        "ranked_by": board.ranked_by,
        "score": float(top[board.ranked_by]),
        "score_lo": _end(top, board.ranked_by, "lo"),
        "score_hi": _end(top, board.ranked_by, "hi"),
        "metric": metric,
        "value": float(top[metric]),
        "value_lo": float(top.get(f"{metric}_lo", np.nan)),
        "value_hi": float(top.get(f"{metric}_hi", np.nan)),
        "margin": margin,
        "too_few": _too_few(board),
        "weights": dict(about),
    }
    if board.task == "response":
        out["beats_chance"] = [str(r) for r in lead.loc[lead["p_chance_holm"] < 0.05, "recipe"]]
    home = tables.get("home_and_elsewhere", pd.DataFrame())
    if not home.empty:
        home = home[(home["task"] == board.task) & (home["recipe"] == best)]
    if home.empty or home.get("difference", pd.Series(dtype=float)).notna().sum() == 0:
        few = [str(w) for w in home.get("reason", []) if str(w).endswith("not compared")]
        why = (
            f"at home and elsewhere, {few[0]}"
            if few
            else "the study has no scenario at home to compare with"
            if len(home)
            else "nothing was tested elsewhere"
        )
        word = "" if margin is None else "NOT ASSESSED"
        return out | _centres(tables, board, best) | {"word": word, "reason": why}
    drop = tables["drop"]
    drop = drop[(drop["task"] == board.task) & (drop["recipe"] == best)]
    row = drop.sort_values("kind", key=lambda k: k != board.kind, kind="stable").iloc[0]
    kept = home[(home["kind"] == row["kind"]) & home["difference"].notna()]
    out |= {k: float(row[k]) for k in ("home", "elsewhere", "difference", "lo", "hi", "lo90", "hi90")}
    out |= {"kind": str(row["kind"]), "datasets": int(row["datasets"]), "comparisons": len(kept)}
    out |= _smallest(kept, "home", metric)
    out["words_of_each"] = {str(w): int(n) for w, n in kept["word"].value_counts().items() if w}
    worst = kept.sort_values("difference").iloc[0]
    out["worst"] = {
        "where": f"{worst['source']} → {worst['target']}",
        "difference": float(worst["difference"]),
    }
    if margin is None:
        return out | {"word": "", "reason": "no margin was declared"}
    return out | {"word": str(row["word"]), "reason": str(row["reason"])}


def _end(row: pd.Series, metric: str, end: str) -> float:
    """Of the interval that keeps its own point, where the metric holds a range (MRI-12)."""
    centred = row.get(f"{metric}_t_{end}", np.nan)
    return float(centred if np.isfinite(centred) else row.get(f"{metric}_{end}", np.nan))


def _centres(tables: Mapping[str, pd.DataFrame], board: Board, best: str) -> dict[str, Any]:
    """Without a home: how far the datasets of the board lie apart, and what that comparison could have seen."""
    found = tables.get("centres", pd.DataFrame())
    if found.empty:
        return {}
    part = found[(found["task"] == board.task) & (found["recipe"] == best)]
    part = part[part["by"] == ("dataset" if (part["by"] == "dataset").any() else "site")]
    part = part[part["value"].notna()] if "value" in part.columns else part.iloc[:0]
    if part.empty:
        return {}
    low, high = part.sort_values("value").iloc[0], part.sort_values("value").iloc[-1]
    return {
        "lowest": {"where": str(low["centre"]), "value": float(low["value"])},
        "highest": {"where": str(high["centre"]), "value": float(high["value"])},
        **_smallest(part, "others", MAIN[board.task]),
    }


def _smallest(rows: pd.DataFrame, level: str, metric: str) -> dict[str, Any]:
    """The drops that these comparisons could have seen, and at how many of them none: not even to the floor."""
    told = [
        float(r["smallest_drop"])
        for r in rows.to_dict(orient="records")
        if home_part.could_be_seen(r["smallest_drop"], r[level], metric)
    ]
    return {
        "smallest_drop": [min(told), max(told)] if told else [float("nan"), float("nan")],
        "floor": home_part.FLOOR[metric],
        "blind": len(rows) - len(told),
        "places": len(rows),
    }


def _too_few(board: Board) -> str:
    """Why the board's own number says nothing, '' where it does."""
    truth = board.truth
    split = None if truth is None else (int((truth > 0).sum()), int((truth == 0).sum()))
    return home_part.too_few(board.partition.n_clusters, split)


def _warnings(
    results: RecipeResults, boards: list[Board], tables: Mapping[str, pd.DataFrame]
) -> tuple[str, ...]:
    out: list[str] = []
    known = tables.get("known", pd.DataFrame())
    said: dict[tuple[str, str], list[str]] = {}
    for row in known.to_dict(orient="records"):
        if row["scored"] and row["reason"]:
            said.setdefault((str(row["variable"]), str(row["reason"])), []).append(str(row["task"]))
    for (variable, reason), of in said.items():
        out.append(f"Fairness by {variable.replace('_', ' ')} ({' and '.join(of)}): {reason}.")
    lost = results.runs[~results.runs["status"].isin(["done", "invalid"])]
    if len(lost):
        out.append(f"{len(lost)} of {len(results.runs)} runs are not done.")
    for row in results.runs[results.runs["status"] == "invalid"].to_dict(orient="records"):
        out.append(f"{row['recipe']}, {row['scenario']} ({row['task']}): invalid, {row['reason']}.")
    told_already = {
        (str(r["task"]), str(r["recipe"]), str(r["scenario"]))
        for r in results.runs[results.runs["status"] == "invalid"].to_dict(orient="records")
    }
    for board in boards:
        for failed in board.failed:
            if all((board.task, failed["recipe"], s) in told_already for s in board.scenarios):
                continue
            out.append(f"{failed['recipe']} is not ranked ({board.task}, {board.words}): {failed['reason']}.")
    for board in boards:
        told = board.protocol.fairness.variables
        out += [f"{e.recipe} ({board.words}): {w}" for e in board.entries for w in _of_the_whole(e, board)]
        out += [
            w
            for e in board.entries
            for w in e.scores.warnings
            if not any(v in w for v in (*told, EMPTY_TRUTH, EMPTY_PREDICTION, CONSTANT))
        ]
    audit = [str(w) for w in (results.audit or {}).get("warnings", ())]
    if not any(EMPTY_TRUTH in w for w in audit):
        out += _empty_truths(boards)
    out += audit
    return tuple(dict.fromkeys(out))


def _of_the_whole(entry: Entry, board: Board) -> list[str]:
    """What scoring says of one scenario's predictions, said of the board's: a constant part of several makes no
    constant board, and empty masks add up. Of the first seed."""
    cases, out = entry.scores.cases, []
    if "decision" in cases.columns and len(set(cases["decision"])) == 1:
        out += [w for w in entry.scores.warnings if CONSTANT in w][:1]
    if "n_prediction_voxels" in cases.columns:
        blank = (
            (cases["status"] == "scored")
            & (cases["n_truth_voxels"] > 0)
            & (cases["n_prediction_voxels"] == 0)
        )
        if blank.any():
            out.append(f"{empty_predictions(int(blank.sum()), len(cases), board.protocol)}.")
    return out


def _empty_truths(boards: list[Board]) -> list[str]:
    """Once for all models and scenarios: of the largest board, for the same masks stand in all."""
    held = [b for b in boards if "n_truth_voxels" in b.cases.columns]
    for board in sorted(held, key=lambda b: -len(b.cases))[:1]:
        bare = int((board.cases["n_truth_voxels"] == 0).sum())
        if bare:
            return [f"{empty_truth(bare, len(board.cases), board.protocol)}."]
    return []


def _provenance(results: RecipeResults, boards: list[Board], resamples: int) -> dict[str, Any]:
    return {
        "elsewhere": __version__,
        "cohort_hash": results.cohort.hash,
        "seed": SEED,
        "resamples": resamples,
        "protocols": {b.protocol.name: f"{b.protocol.version} ({b.protocol.digest()})" for b in boards},
        "python": platform.python_version(),
        "numpy": np.__version__,
        "trainings": len(set(results.runs["unit"]) - {""}) if "unit" in results.runs.columns else 0,
    }
