"""`rank`: many models on one cohort, on the same resamples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere._version import __version__
from elsewhere.commands.advice import fit_error
from elsewhere.commands.analyse import Report
from elsewhere.commands.compare import aligned, options_of, same_cases
from elsewhere.commands.score import as_cohort, as_predictions, check_choices, choose_protocol
from elsewhere.commands.submissions import Failure, check_entry, entries_of, names_of
from elsewhere.errors import EXIT_INCOMPLETE, EXIT_OK, UserError, check_seed, unknown_name
from elsewhere.predictions import ReadOptions
from elsewhere.privacy import KEY_FILE, Redactor, write_sharing_note
from elsewhere.report.page.numbers import format_interval
from elsewhere.results import Result, ids_of, ids_of_result, load_result, write_key
from elsewhere.scoring.prepared import Prepared, prepare, primary_metric
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.leaderboard import fairness_weighting, top_against_bottom_by_size
from elsewhere.statistics.ranking import rank_models
from elsewhere.statistics.resampling import Resampling
from elsewhere.tables import TableOptions, check_out, staged_directory, write_json
from elsewhere.tables.identifiers import note_source, read_folders, remembers_ids
from elsewhere.tables.options import DEFAULT


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Rank, interval and tier of every model; those that could not be scored are listed with the reason.

    Attributes:
        summary: The content of summary.json; it names no case and no folder.
        path: The folder that was written, or None.
        failures: The entries that could not be scored, with reasons that may name cases and files.
    """

    summary: dict[str, Any]
    path: Path | None = None
    failures: tuple[Failure, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 where every entry is ranked, 5 where some could not be scored."""
        return EXIT_INCOMPLETE if self.failures else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        return self.summary

    def lines(self) -> Iterator[str]:
        part = self.summary["ranking"]
        yield f"ranked by {part['metric']} on {self.summary['counts']['cases']} cases of {self.summary['counts']['patients']} patients"
        for row in part["table"]:
            span = (
                str(row["rank_lo"])
                if row["rank_lo"] == row["rank_hi"]
                else f"{row['rank_lo']}-{row['rank_hi']}"
            )
            yield f"  {row['rank']:>3}  ({span:>7})  tier {row['tier'] or '-'}  {row['model']:30s} {format_interval(row)}"
        for row in part.get("against_baseline") or []:
            yield f"  {row['model']} - {part['baseline']}: {row['difference']:+.4f}, p {row['p_holm']:.3g} (Holm)"
        for failed in self.failures:
            yield f"  failed  {failed.model}: {failed.why}"
        if self.failures:
            yield _incomplete(self.summary["counts"])
        for warning in self.summary["warnings"]:
            if warning != _incomplete(self.summary["counts"]):
                yield f"warning: {warning}"
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


def _incomplete(counts: Mapping[str, Any]) -> str:
    return f"{counts['models']} of {counts['entries']} entries ranked; {counts['failed']} could not be scored"


@dataclass(frozen=True, kw_only=True)
class _Entry:
    name: str
    ready: Prepared
    digest: str | None


@remembers_ids
def rank(
    results: Sequence[str | Path | Result],
    *,
    cohort: str | Path | None = None,
    task: str | None = None,
    protocol: str | None = None,
    metric: str | None = None,
    baseline: str | None = None,
    resamples: int | None = None,
    seed: int = 42,
    out: str | Path | None = None,
    replace: bool = False,
    column_map: Mapping[str, str] | None = None,
    scale: str = "0-1",
    normalise_ids: Sequence[str] = (),
    on_invalid: str = "error",
    failed_status: Sequence[str] = (),
    table: TableOptions = DEFAULT,
    threads: int | None = None,
    progress: Report | None = None,
) -> Leaderboard:
    """Ranks with ties, rank intervals, tiers and stability (ST-09, MRI-10).

    `results` are result folders, or, with `cohort` and `task`, prediction files or one folder of them. An entry
    that cannot be scored does not stop the others; `exit_code` is then 5.
    """
    check_choices(on_invalid=on_invalid, matching=None)
    inputs = (*results, cohort)
    check_out(out, replace=replace, inputs=inputs)
    check_seed(seed)
    if (cohort is None) != (task is None):
        raise UserError(
            "--cohort and --task go together",
            fix="Give both for prediction files, neither for result folders.",
        )
    if cohort is not None and task is not None:
        read = ReadOptions(
            column_map=dict(column_map or {}),
            scale=scale,
            normalise_ids=tuple(normalise_ids),
            on_invalid="worst" if on_invalid == "worst" else "error",
            failed_status=tuple(failed_status),
            table=table,
        )
        entries, failures, key, counts, ids = _from_files(
            results,
            cohort,
            task,
            protocol,
            read,
            normalise_ids=tuple(normalise_ids),
            on_invalid=on_invalid,
            progress=progress,
        )
    else:
        entries, failures, key, counts, ids = _from_results(results)
    if not entries:
        reasons = "; ".join(f"{f.model}: {f.why}" for f in failures)
        raise UserError(
            "no model could be scored",
            fix=reasons or "Give result folders, or prediction files with --cohort and --task.",
        )
    first = entries[0].ready
    rules = first.scores.protocol
    chosen = metric or primary_metric(first.evaluator, rules)
    available = [spec.name for spec in first.evaluator.specs]
    if chosen not in available:
        raise unknown_name("metric", chosen, available)
    names = [entry.name for entry in entries]
    if baseline is not None and baseline not in names:
        raise unknown_name("model", baseline, names)
    count = rules.interval.resamples if resamples is None else resamples
    ranking = rank_models(
        [entry.ready.evaluator for entry in entries],
        first.partition,
        chosen,
        names=names,
        resampling=Resampling(key=key, seed=seed, resamples=count, threads=threads),
        by_site=rules.interval.by_site,
        baseline=baseline,
    )
    part = ranking.to_dict()
    rows = part.pop("models", None) or part.pop("table")
    estimates = {}
    for number, entry in enumerate(entries):
        found = estimate_all(
            entry.ready.evaluator,
            first.partition,
            rules=rules.interval,
            resampling=Resampling(key=key, seed=seed, resamples=count, threads=threads),
            metrics=_shown(entry.ready, chosen),
        )
        estimates[entry.name] = {name: estimate.to_dict() for name, estimate in found.items()}
        if progress:
            progress("intervals", number + 1, len(entries))
    shown = [
        {**row, **{k: estimates[row["model"]][chosen][k] for k in ("value", "lo", "hi", "method")}}
        for row in rows
    ]
    ranking_part = {
        **part,
        "metric": chosen,
        "table": [{k: v for k, v in row.items() if k != "frequencies"} for row in shown],
        "frequencies": {row["model"]: row["frequencies"] for row in shown if "frequencies" in row},
        "metrics": estimates,
        "failed": [],
        "baseline": baseline,
    }
    ranking_part |= fairness_weighting(
        [entry.ready.evaluator for entry in entries],
        names=names,
        baseline=baseline,
        weight=rules.fairness.fairness_weight,
    )
    ranking_part |= _by_size(entries, names, chosen, key=key, seed=seed, resamples=count)
    summary: dict[str, Any] = {
        "elsewhere": __version__,
        "task": first.scores.task,
        "protocol": rules.name,
        "protocol_version": rules.version,
        "provenance": {
            "cohort_hash": key,
            "seed": seed,
            "resamples": count,
            "code_version": __version__,
            "command": "rank",
            "protocol_digest": rules.digest(),
            "predictions_digest": {entry.name: entry.digest for entry in entries},
        },
        "counts": {
            **counts,
            "entries": len(entries) + len(failures),
            "models": len(entries),
            "failed": len(failures),
        },
        "metrics": {},
        "ranking": ranking_part,
        "warnings": _unknown_status_words(entries),
    }
    if failures:
        summary["warnings"].append(_incomplete(summary["counts"]))
    if first.scores.task == "detection":
        difficulty, missing = _difficulty(entries)
        summary |= difficulty
        summary["warnings"] += missing
    redactor = Redactor(ids, folders=read_folders())
    summary = redactor.summary(summary)
    summary["ranking"]["failed"] = [failure.shared(redactor) for failure in failures]
    if out is None:
        return Leaderboard(summary=summary, failures=tuple(failures))
    from elsewhere.report import write_report

    with staged_directory(out, replace=replace, inputs=inputs) as folder:
        write_json(summary, folder / "summary.json")
        write_report(summary, folder / "report.html", redact=redactor)
        write_key(folder / KEY_FILE, None, redactor.originals)
        write_sharing_note(folder)
    return Leaderboard(summary=summary, path=Path(out), failures=tuple(failures))


def _shown(ready: Prepared, metric: str) -> list[str]:
    wanted = [metric, "performance", "fairness", "combined", "dice", "norm_hd", "balanced_accuracy", "auroc"]
    have = {spec.name for spec in ready.evaluator.specs}
    return [name for name in dict.fromkeys(wanted) if name in have]


_Found = tuple[list[_Entry], list[Failure], str, dict[str, Any], tuple[str, ...]]


def _from_results(results: Sequence[str | Path | Result]) -> _Found:
    names = names_of([Path("." if isinstance(item, Result) else item) for item in results])
    loaded: list[tuple[str, Result]] = []
    failures: list[Failure] = []
    for i, item in enumerate(results):
        if isinstance(item, Result):
            loaded.append((item.path.name if item.path else f"model {i + 1}", item))
            continue
        note_source(item)
        try:
            loaded.append((names[i], load_result(item)))
        except UserError as problem:
            failures.append(Failure(model=names[i], why=str(problem)))
    if not loaded:
        return [], failures, "", {}, ()
    hashes = [result.summary["provenance"]["cohort_hash"] for _, result in loaded]
    usual = max(dict.fromkeys(hashes), key=hashes.count)
    reference = loaded[hashes.index(usual)][1]
    entries = []
    ids: dict[str, None] = {}
    for name, result in loaded:
        ids |= dict.fromkeys(ids_of_result(result))
        try:
            same_cases(reference, result)
            ready = prepare(aligned(reference, result).scores, options_of(result))
        except UserError as problem:
            failures.append(Failure(model=name, why=str(problem)))
            continue
        entries.append(
            _Entry(
                name=name,
                ready=ready,
                digest=result.summary["provenance"].get("predictions_digest"),
            )
        )
    counts = {k: reference.summary["counts"][k] for k in ("cases", "patients")}
    return entries, failures, reference.summary["provenance"]["cohort_hash"], counts, tuple(ids)


def _from_files(
    results: Sequence[str | Path | Result],
    cohort: str | Path,
    task: str,
    protocol: str | None,
    read: ReadOptions,
    *,
    normalise_ids: tuple[str, ...],
    on_invalid: str,
    progress: Report | None,
) -> _Found:
    chosen = tasks.get(task)
    who = as_cohort(cohort, read.table)
    rules = choose_protocol(chosen, protocol, who.reader)
    given = [Path(item) for item in results if not isinstance(item, Result)]
    paths = entries_of(given)
    entries, failures = [], []
    names = names_of(paths)
    options = ScoreOptions(on_invalid=on_invalid, normalise_ids=normalise_ids)
    for number, path in enumerate(paths):
        note_source(path)
        try:
            check_entry(path, given)
            said = as_predictions(task, path, read, who)
            ready = prepare(chosen.score(who, said, rules, options), options)
            entries.append(_Entry(name=names[number], ready=ready, digest=said.digest))
        except UserError as problem:
            why = str(fit_error(problem, "rank"))
            failures.append(Failure(model=path.name, why=why, path=path, options=read))
        if progress:
            progress("scoring", number + 1, len(paths))
    first = entries[0].ready if entries else None
    counts = {
        "cases": len(first.scores.cases) if first else 0,
        "patients": first.partition.n_clusters if first else 0,
    }
    return entries, failures, who.hash, counts, ids_of(first.scores) if first else ()


def _unknown_status_words(entries: Sequence[_Entry]) -> list[str]:
    """Words of a status column that nobody explained may decide a rank, so every model's are named."""
    found = []
    for entry in entries:
        words = entry.ready.scores.extras.get("status_words", ())
        unknown = [word for word in words if not word["understood"]]
        if unknown:
            shown = ", ".join(f"'{word['word']}' ({word['rows']} rows)" for word in unknown[:5])
            found.append(
                f"{entry.name}: status words that are not known: {shown}. Their scores were used; say "
                f"--failed-status '{unknown[0]['word']}' if it means that the case could not be analysed."
            )
    return found


def _by_size(
    entries: Sequence[_Entry], names: Sequence[str], metric: str, *, key: str, seed: int, resamples: int
) -> dict[str, Any]:
    """MRI-11: the best models against the worst, overall and by tumour size."""
    first = entries[0].ready
    cases = first.scores.cases
    if "volume_truth_ml" not in cases.columns:
        return {}
    found = top_against_bottom_by_size(
        [entry.ready.evaluator for entry in entries],
        first.partition,
        "dice" if "dice" in cases.columns else metric,
        cases["volume_truth_ml"].to_numpy(dtype=float),
        names=names,
        resampling=Resampling(key=key, seed=seed, resamples=resamples),
        by_site=first.scores.protocol.interval.by_site,
    )
    return {"top_against_bottom": found} if found else {}


def _difficulty(entries: Sequence[_Entry]) -> tuple[dict[str, Any], list[str]]:
    """DBT-08: how many of the algorithms find each lesion, and at what cost, whatever protocol ranks them."""
    from elsewhere.statistics.difficulty import events_by_nearest, lesion_difficulty, lesions_in

    scores = {entry.name: entry.ready.scores for entry in entries if entry.ready.scores.events is not None}
    events, without = {}, [entry.name for entry in entries if entry.name not in scores]
    for name, one in scores.items():
        if one.events is None:
            continue
        by_nearest = events_by_nearest(one.events, matching=one.protocol.detection.matching)
        if by_nearest is None:
            without.append(name)
        else:
            events[name] = by_nearest
    warnings = []
    if without:
        warnings.append(
            f"The difficulty of the lesions leaves out {', '.join(without)}: it needs the nearest lesion of every "
            "box (column nearest_lesion_id of events.parquet), which these results do not have. Score them again."
        )
    lesions = pd.concat([lesions_in(table) for table in events.values()]) if events else pd.DataFrame()
    if lesions.empty:
        return {}, warnings
    found = lesion_difficulty(
        events, volumes=len(entries[0].ready.scores.cases), lesions=lesions.drop_duplicates()
    )
    return {"difficulty": found.to_dict()}, warnings
