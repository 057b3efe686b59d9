"""Answers to the items of reporting guidelines, from the run alone.

The wordings are our own short ones; item numbers are given only where they are certain (TRIPOD+AI 2024).
CLAIM and FUTURE-AI are named by their topic or principle. Where a run cannot give an answer, the row states
that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elsewhere.report.page.labels import headline, label, method, task_title
from elsewhere.report.page.numbers import as_float, count, number, value_with_interval
from elsewhere.report.result.prepare import Prepared, prepare

NOT_ANSWERABLE = "not answerable from this run"
_Answer = Callable[[Prepared], str | None]


def checklist_rows(summary: Mapping[str, Any] | Prepared) -> list[dict[str, str]]:
    """Answer the reporting guidelines from a run.

    Args:
        summary: The content of summary.json, or the same as `prepare` returned it.

    Returns:
        One row per item with `guideline`, `item`, `question` and `answer`; the answer is from the run, or
        states that the run cannot give one.
    """
    data = prepare(summary)
    return [
        {"guideline": guideline, "item": item, "question": question, "answer": answer(data) or NOT_ANSWERABLE}
        for guideline, item, question, answer in _ITEMS
    ]


def _nothing(_: Prepared) -> None:
    return None


def _title(d: Prepared) -> str | None:
    task = task_title(d.data, "")
    return f"Evaluation of an existing model: {task.lower()}; no model was developed" if task else None


def _source(d: Prepared) -> str | None:
    grades = d.part("provenance").get("id_grades")
    sites = d.part("sites")
    parts = []
    if isinstance(grades, dict) and grades:
        parts.append("datasets: " + ", ".join(grades))
    if sites:
        parts.append("sites: " + ", ".join(sites))
    return "; ".join(parts) or None


def _participants(d: Prepared) -> str | None:
    c = d.part("counts")
    if c.get("cases") is None:
        return None
    positives = f", {count(c['positives'])} positive" if as_float(c.get("positives")) is not None else ""
    return f"{count(c['cases'])} cases of {count(c.get('patients'))} patients{positives}"


def _flow(d: Prepared) -> str | None:
    lost = sum(as_float(s.get("lost")) or 0 for s in d.rows("flow") if isinstance(s, dict))
    return (
        f"{len(d.rows('flow'))} steps, {count(lost)} rows or cases lost, each with its reason"
        if d.rows("flow")
        else None
    )


def _outcome(d: Prepared) -> str | None:
    verification = d.part("clinical").get("verification")
    return str(verification) if verification else None


def _size(d: Prepared) -> str | None:
    claims = [c for c in d.part("verdict").get("claims") or [] if isinstance(c, dict)]
    for c in claims:
        if as_float(c.get("smallest_detectable_drop")) is not None:
            drop, margin = number(c["smallest_detectable_drop"]), number(c.get("smallest_provable_margin"))
            return f"smallest detectable drop {drop}; smallest provable margin {margin} (80 % power)"
    return None


def _missing(d: Prepared) -> str | None:
    c = d.part("counts")
    if c.get("missing") is None:
        return None
    return f"{count(c['missing'])} missing predictions, scored as the worst value; the values of the answered cases alone are shown too"


def _methods(d: Prepared) -> str | None:
    used = {
        method(e.get("method"))
        for e in d.part("metrics").values()
        if isinstance(e, dict) and e.get("lo") is not None
    }
    return "; ".join(sorted(used)) or None


def _performance(d: Prepared) -> str | None:
    head = headline(d.data)
    entry = d.part("metrics").get(head) if head else None
    return f"{label(str(head), entry)} {value_with_interval(entry)}" if isinstance(entry, dict) else None


def _threshold(d: Prepared) -> str | None:
    part = d.part("operating_point")
    if as_float(part.get("threshold")) is None:
        return None
    source = part.get("threshold_source") or part.get("source")
    return f"threshold {number(part['threshold'])}{f', {source}' if source else ''}"


def _calibration(d: Prepared) -> str | None:
    metrics = d.part("metrics")
    found = [
        n for n in ("ece_confidence", "ece_malignant", "nll", "brier") if isinstance(metrics.get(n), dict)
    ]
    before = d.part("calibration").get("before")
    if not found and isinstance(before, dict):
        found, metrics = [n for n, e in before.items() if isinstance(e, dict)], before
    return "; ".join(f"{label(n, metrics[n])} {value_with_interval(metrics[n])}" for n in found) or None


def _groups(d: Prepared) -> str | None:
    names = [
        f"{label(v)} ({len(rows)} groups)" for v, rows in d.part("groups").items() if isinstance(rows, dict)
    ]
    return ", ".join(names) or None


def _fairness(d: Prepared) -> str | None:
    parts = [
        f"{label(v)}: gap {number(e.get('gap'))}, null band up to {number(e.get('null_band_upper'))}"
        if as_float(e.get("gap")) is not None
        else f"{label(v)}: no gap ({e.get('undefined_reason') or 'undefined'})"
        for v, e in d.part("fairness").items()
        if isinstance(e, dict)
    ]
    return "; ".join(parts) or None


def _sites(d: Prepared) -> str | None:
    return f"{len(d.part('sites'))} sites side by side" if d.part("sites") else None


def _shift(d: Prepared) -> str | None:
    return ", ".join(label(v) for v in d.part("case_mix")) or None


def _errors(d: Prepared) -> str | None:
    return f"{len(d.rows('worst_cases'))} worst cases by salted hash" if d.rows("worst_cases") else None


def _version(d: Prepared) -> str | None:
    p = d.part("provenance")
    if not p:
        return None
    digest = str(p.get("predictions_digest") or "")[:12]
    return f"predictions {digest or 'without a digest'}; the model itself was not seen"


def _trace(d: Prepared) -> str | None:
    p = d.part("provenance")
    if not p.get("cohort_hash"):
        return None
    run = f"seed {p.get('seed')}, {count(p.get('resamples'))} resamples, code {p.get('code_version')}"
    return f"cohort {str(p['cohort_hash'])[:12]}, {run}"


def _protocol(d: Prepared) -> str | None:
    name = d.data.get("protocol")
    return f"{name} {d.data.get('protocol_version') or ''}".strip() if name else None


def _code(d: Prepared) -> str | None:
    version = d.part("provenance").get("code_version") or d.data.get("elsewhere")
    return f"elsewhere {version}, open source; command in the provenance" if version else None


def _unit(d: Prepared) -> str | None:
    sites = len(d.part("sites"))
    where = f"; {sites} sites shown side by side" if sites else ""
    return f"the patient is the unit of every interval{where}" if d.part("metrics") else None


def _audit(d: Prepared) -> str | None:
    rows = [r for r in d.rows("audit") if isinstance(r, dict)]
    return (
        f"{len(rows)} findings: " + ", ".join(dict.fromkeys(str(r.get("kind")) for r in rows))
        if rows
        else None
    )


def _grades(d: Prepared) -> str | None:
    grades = d.part("provenance").get("id_grades")
    if not isinstance(grades, dict) or not grades:
        return None
    return ", ".join(f"{k}: {v.get('grade') if isinstance(v, dict) else v}" for k, v in grades.items())


def _benefit(d: Prepared) -> str | None:
    c = d.part("clinical")
    found = [
        f"{label(k)} {value_with_interval(c[k])}"
        for k in ("ppv", "npv", "recall_rate")
        if isinstance(c.get(k), dict)
    ]
    return "; ".join(found) or None


def _verdict(d: Prepared) -> str | None:
    word = d.part("verdict").get("word")
    return f"{word}" if word else None


_ITEMS: tuple[tuple[str, str, str, _Answer], ...] = (
    ("TRIPOD+AI", "1", "Title: development or evaluation, population, outcome", _title),
    ("TRIPOD+AI", "3a", "Healthcare context and intended use", _nothing),
    ("TRIPOD+AI", "5a", "Sources of data for the evaluation", _source),
    ("TRIPOD+AI", "6a", "Setting: centres and their number", _sites),
    ("TRIPOD+AI", "6b", "Eligibility of participants", _nothing),
    ("TRIPOD+AI", "8a", "Outcome, and how it was established", _outcome),
    ("TRIPOD+AI", "10", "Sample size, with its reasoning", _size),
    ("TRIPOD+AI", "11", "Missing data, and how it was handled", _missing),
    ("TRIPOD+AI", "12d", "Clusters and their heterogeneity in the analysis", _unit),
    ("TRIPOD+AI", "12e", "Measures of performance, and their scoring rules", _protocol),
    ("TRIPOD+AI", "12e", "Uncertainty of each measure", _methods),
    ("TRIPOD+AI", "14", "Fairness: what was done to look for it", _fairness),
    ("TRIPOD+AI", "15", "Output of the model, and the threshold", _threshold),
    ("TRIPOD+AI", "17", "Ethical approval", _nothing),
    ("TRIPOD+AI", "18a", "Funding", _nothing),
    ("TRIPOD+AI", "18c", "Study protocol, and where to find it", _nothing),
    ("TRIPOD+AI", "18f", "Code of the analysis", _code),
    ("TRIPOD+AI", "20a", "Flow of participants", _flow),
    ("TRIPOD+AI", "20b", "Characteristics of participants", _participants),
    ("TRIPOD+AI", "20c", "Comparison with the development data", _shift),
    ("TRIPOD+AI", "23a", "Performance with intervals, also in key subgroups", _performance),
    ("TRIPOD+AI", "23b", "Heterogeneity over clusters", _sites),
    ("TRIPOD+AI", "26", "Limitations", _nothing),
    ("CLAIM", "data", "De-identification: how patients are identified in the table", _grades),
    ("CLAIM", "ground truth", "Reference standard and its verification", _outcome),
    ("CLAIM", "model", "Description and version of the model", _version),
    ("CLAIM", "training", "Training data, tuning and initialisation", _nothing),
    ("CLAIM", "evaluation", "Measures of performance and calibration", _calibration),
    ("CLAIM", "evaluation", "External test", _source),
    ("CLAIM", "results", "Failure analysis: which cases went wrong", _errors),
    ("CLAIM", "results", "Performance in subgroups", _groups),
    ("FUTURE-AI", "Fairness", "Bias measured over attributes, with group sizes", _fairness),
    ("FUTURE-AI", "Universality", "Evaluated away from the place of training", _sites),
    ("FUTURE-AI", "Traceability", "Every number carries its origin", _trace),
    ("FUTURE-AI", "Traceability", "Quality control of the data", _audit),
    ("FUTURE-AI", "Usability", "Clinical usefulness at the hospital's prevalence", _benefit),
    ("FUTURE-AI", "Robustness", "Holds against a margin declared beforehand", _verdict),
    ("FUTURE-AI", "Explainability", "Explanations evaluated with users", _nothing),
)  # fmt: skip
