"""The methods paragraph of a run: only what the summary holds, no standard phrases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.page.labels import compared_with, in_sentence, label, method, task_title
from elsewhere.report.page.numbers import as_float, count, number
from elsewhere.report.result.prepare import Prepared, prepare


def methods_paragraph(summary: Mapping[str, Any] | Prepared) -> str:
    """Write the methods paragraph of a run.

    Args:
        summary: The content of summary.json, or the same as `prepare` returned it.

    Returns:
        Which protocol, intervals, resamples, seed and margin were used, in whole sentences.

    Example:
        >>> methods_paragraph({"task": "response", "protocol": "plain"})
        'Scoring followed protocol plain.'
    """
    data = prepare(summary)
    own = data.data.get("methods")
    if isinstance(own, str) and own.strip():
        return own.strip()
    sentences = [
        _who(data),
        _protocol(data),
        _merge(data),
        _intervals(data),
        _missing(data),
        _fairness(data),
        _margin(data),
        _software(data),
    ]
    return " ".join(s for s in sentences if s)


def _who(data: Prepared) -> str:
    counts = data.part("counts")
    task = task_title(data.data) or "The task"
    cases, patients = counts.get("cases"), counts.get("patients")
    if cases is None:
        return ""
    people = f" of {count(patients)} patients" if patients is not None else ""
    sites = data.part("sites")
    where = f" from {len(sites)} sites" if len(sites) > 1 else ""
    tested = f"{task} was evaluated on {count(cases)} cases{people}{where}"
    return f"{tested}; predictions were joined to cases by id alone."


def _protocol(data: Prepared) -> str:
    name, version = data.data.get("protocol"), data.data.get("protocol_version")
    if not name:
        return ""
    other = data.data.get("protocol_counterpart")
    more = f"; the same challenge's other rules are protocol {other}" if other else ""
    return f"Scoring followed protocol {name}{f' {version}' if version else ''}{more}."


def _merge(data: Prepared) -> str:
    """What was merged, how the setting was chosen, and what the merge was compared with."""
    part = data.part("merging")
    setting = part.get("setting")
    if not isinstance(setting, dict):
        return ""
    vote = setting.get("vote")
    how = f"by {vote} vote" if vote else "by weighted boxes fusion"
    parts = [
        f"score normalisation {setting.get('normalisation')}",
        f"IoU above {number(setting.get('iou'), 2)}",
    ]
    parts.append(f"centres within {count(setting.get('distance'))} slices")
    if not vote:
        parts += [f"{setting.get('score')} score", f"at least {count(setting.get('votes'))} boxes"]
    search = part.get("search")
    chosen = "given beforehand"
    if isinstance(search, dict):
        metric = in_sentence(str(part.get("label") or part.get("metric")))
        chosen = f"the best of {count(search.get('settings'))} on the validation volumes by {metric}"
    teams = len(part.get("teams") or [])
    out = f"The boxes of {teams} detectors were merged {how} ({', '.join(parts)}); the setting was {chosen}."
    if "test" in (part.get("gain") or {}) and isinstance(search, dict):
        out += (
            " Score scales and setting were carried over to the test volumes unchanged, and the merge was compared there with "
            "the detector that was best on the validation volumes."
        )
    return out


def _intervals(data: Prepared) -> str:
    provenance = data.part("provenance")
    by_method: dict[str, list[str]] = {}
    for name, entry in data.part("metrics").items():
        if isinstance(entry, dict) and entry.get("lo") is not None and entry.get("method"):
            by_method.setdefault(method(entry["method"]), []).append(in_sentence(label(name, entry)))
    parts = [f"{words} ({', '.join(names)})" for words, names in by_method.items()]
    out = ""
    if parts:
        out = f"Intervals are 95 % and take the patient as the unit: {'; '.join(parts)}."
    resamples, seed = as_float(provenance.get("resamples")), provenance.get("seed")
    if resamples:
        out += f" Patients were resampled with all their cases, {count(resamples)} times, seed {seed}."
    elif resamples == 0:
        out += " No resampling was done, so resampled intervals are left out."
    return out.strip()


def _missing(data: Prepared) -> str:
    counts = data.part("counts")
    parts = []
    missing = as_float(counts.get("missing"))
    if missing:
        parts.append(
            f"{count(missing)} cases without a prediction were scored as the worst value of each metric; "
            "the values of the answered cases alone are shown too"
        )
    elif missing == 0:
        parts.append("every case had a prediction")
    for key, words in (
        ("invalid", "invalid predictions, scored as the worst"),
        ("not_analysable", "cases the model could not analyse, an outcome of its own"),
        ("undefined", "cases without a defined value, counted and left out of that metric alone"),
        ("without_boxes", "volumes without any box"),
        ("extra", "predictions for ids that the cohort does not have, ignored"),
    ):
        if as_float(counts.get(key)):
            parts.append(f"{count(counts[key])} {words}")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "." if text else ""


def _fairness(data: Prepared) -> str:
    variables = [in_sentence(label(v)) for v in data.part("fairness")]
    if not variables:
        return ""
    return (
        f"Gaps between subgroups of {', '.join(variables)} are read against the upper 95 % of the gaps "
        "that arise when the attribute is permuted over patients."
    )


def _margin(data: Prepared) -> str:
    claims = [c for c in data.part("verdict").get("claims") or [] if isinstance(c, dict)]
    if not claims:
        return "No claim was tested." if data.part("metrics") else ""
    alike: dict[str, list[str]] = {}
    for c in claims:
        if as_float(c.get("margin")) is None:
            continue
        source = f" ({c['margin_source']})" if c.get("margin_source") else ""
        level = as_float(c.get("alpha"))
        width = f"the {100 * (1 - 2 * level):.4g} % interval" if level is not None else "the interval"
        how = f"{width} of (here − {compared_with(c)}) against a margin of {number(c['margin'])}{source}"
        group = f" in {c['group']}" if c.get("group") else ""
        alike.setdefault(how, []).append(in_sentence(label(str(c.get("metric", "")), c)) + group)
    if not alike:
        return ""
    parts = "; ".join(f"for {', '.join(names)} by {how}" for how, names in alike.items())
    return f"Equivalence was judged {parts}; every primary claim must pass, without correction."


def _software(data: Prepared) -> str:
    provenance = data.part("provenance")
    version = data.data.get("elsewhere") or provenance.get("code_version")
    with_what = [
        f"{n} {provenance[k]}" for n, k in (("Python", "python"), ("numpy", "numpy")) if provenance.get(k)
    ]
    return (
        f"Computed with elsewhere {version}{' on ' + ', '.join(with_what) if with_what else ''}."
        if version
        else ""
    )
