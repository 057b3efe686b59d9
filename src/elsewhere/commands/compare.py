"""`compare`: two models on the same cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere._version import __version__
from elsewhere.commands.submissions import names_of
from elsewhere.errors import UserError, check_seed, name_rows
from elsewhere.privacy import KEY_FILE, Redactor, write_sharing_note
from elsewhere.report.page.numbers import format_number
from elsewhere.results import TABLE_DIGESTS, Result, ids_of_result, load_result, write_key
from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions
from elsewhere.statistics.paired import compare_pair
from elsewhere.statistics.resampling import Resampling
from elsewhere.tables import check_out, staged_directory, write_json


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """a - b for every metric, on the same cases and the same resamples."""

    summary: dict[str, Any]
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        return self.summary

    def lines(self) -> Iterator[str]:
        part = self.summary["comparison"]
        yield f"{part['a']} - {part['b']} on {self.summary['counts']['cases']} cases of {self.summary['counts']['patients']} patients"
        for name, row in part["metrics"].items():
            if row["difference"] is None:
                yield f"  {name:32s} undefined ({row.get('undefined_reason') or 'undefined in one of them'})"
                continue
            interval = (
                f"[{format_number(row['lo'])}, {format_number(row['hi'])}]" if row["lo"] is not None else ""
            )
            p = f"p {row['p']:.3g} ({row['p_method']})" if row.get("p") is not None else ""
            yield f"  {name:32s} {row['difference']:+.4f} {interval} {p}"
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


def same_cases(a: Result, b: Result) -> None:
    """Refuse two results that are not of the same cases, task and rules."""
    if a.scores.task != b.scores.task:
        raise UserError(
            f"one result is {a.scores.task}, the other {b.scores.task}", fix="Compare results of one task."
        )
    if a.summary["protocol"] != b.summary["protocol"]:
        raise UserError(
            f"scored by different protocols: {a.summary['protocol']} and {b.summary['protocol']}",
            fix="Score both by one protocol: `elsewhere score ... --protocol NAME`.",
        )
    ours, theirs = set(a.scores.cases["case_id"]), set(b.scores.cases["case_id"])
    if ours != theirs:
        odd = sorted(ours ^ theirs)
        raise UserError(
            f"the results are not of the same cases: {len(ours - theirs)} only in the first, {len(theirs - ours)} only in the second ({name_rows(odd)})",
            fix="Score both models on the same cohort; a case without a prediction is scored as missing there.",
        )


def aligned(a: Result, b: Result) -> Result:
    """b's cases in the order of a's."""
    import dataclasses

    order = b.scores.cases.set_index("case_id").loc[a.scores.cases["case_id"]].reset_index()
    return dataclasses.replace(b, scores=dataclasses.replace(b.scores, cases=order))


def compare(
    result_a: str | Path | Result,
    result_b: str | Path | Result,
    *,
    metrics: Sequence[str] = (),
    resamples: int | None = None,
    seed: int = 42,
    out: str | Path | None = None,
    replace: bool = False,
    threads: int | None = None,
) -> Comparison:
    """Bootstrap interval of the difference, permutation, Wilcoxon, t; clustered DeLong for AUROC (ST-02).

    An earlier result in `out` is replaced only with `replace`, and files that Elsewhere did not write stay.
    """
    inputs = tuple(r.path if isinstance(r, Result) else r for r in (result_a, result_b))
    check_out(out, replace=replace, inputs=inputs)
    check_seed(seed)
    a = result_a if isinstance(result_a, Result) else load_result(result_a)
    b = result_b if isinstance(result_b, Result) else load_result(result_b)
    same_cases(a, b)
    b = aligned(a, b)
    options = options_of(a)
    first, second = prepare(a.scores, options), prepare(b.scores, options_of(b))
    rules = a.scores.protocol.interval
    count = rules.resamples if resamples is None else resamples
    rows = compare_pair(
        first.evaluator,
        second.evaluator,
        first.partition,
        rules=rules,
        resampling=Resampling(
            key=a.summary["provenance"]["cohort_hash"], seed=seed, resamples=count, threads=threads
        ),
        metrics=list(metrics) or None,
    )
    names = labels_of(a, b)
    summary = {
        "elsewhere": __version__,
        "task": a.scores.task,
        "protocol": a.summary["protocol"],
        "protocol_version": a.summary["protocol_version"],
        "provenance": {
            **{k: v for k, v in a.summary["provenance"].items() if k not in TABLE_DIGESTS},
            "seed": seed,
            "resamples": count,
            "command": "compare",
            "predictions_digest": [r.summary["provenance"].get("predictions_digest") for r in (a, b)],
        },
        "counts": a.summary["counts"],
        "metrics": {},
        "comparison": {
            "a": names[0],
            "b": names[1],
            "metrics": {name: row.to_dict() for name, row in rows.items()},
        },
        "warnings": [],
    }
    redactor = Redactor([*ids_of_result(a), *ids_of_result(b)])
    summary = redactor.summary(summary)
    if out is None:
        return Comparison(summary=summary)
    from elsewhere.report import write_report

    with staged_directory(out, replace=replace, inputs=inputs) as folder:
        write_json(summary, folder / "summary.json")
        write_report(summary, folder / "report.html", redact=redactor)
        write_key(folder / KEY_FILE, None, redactor.originals)
        write_sharing_note(folder)
    return Comparison(summary=summary, path=Path(out))


def labels_of(a: Result, b: Result) -> tuple[str, str]:
    """What the two models are called: their result folders, without the folders that lead there."""
    if a.path is None or b.path is None:
        return (a.path.name if a.path else "A"), (b.path.name if b.path else "B")
    first, second = names_of([a.path, b.path])
    return first, second


def options_of(result: Result) -> ScoreOptions:
    """What was set when the result was scored, from its own summary."""
    set_then = result.summary["provenance"].get("settings") or {}
    return ScoreOptions(
        threshold=set_then.get("threshold"),
        fairness_weight=set_then.get("fairness_weight"),
        matching=set_then.get("matching"),
        resample=set_then.get("resample") or "patients",
        group_by=tuple(set_then.get("group_by") or ()),
    )
