"""Sentences on what missing scores do to a verdict; console, page and tables share them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elsewhere.report.page.labels import compared_with, in_sentence, label
from elsewhere.report.page.numbers import as_float, count, interval, number, percent, signed

WITHOUT_SCORE = ("missing", "invalid", "not_analysable")
"""The counts of a summary that are cases without a usable score."""


def without_score(counts: Mapping[str, Any]) -> int:
    """Count the cases without a usable score.

    Args:
        counts: The counts of a summary.

    Returns:
        How many cases are missing, invalid or could not be analysed.

    Example:
        >>> without_score({"cases": 420, "missing": 20, "invalid": 4})
        24
    """
    return sum(int(as_float(counts.get(name)) or 0) for name in WITHOUT_SCORE)


def lost_sentence(counts: Mapping[str, Any]) -> str:
    """Say how many cases have no usable score.

    Args:
        counts: The counts of a summary.

    Returns:
        The sentence; empty where every case has a score.

    Example:
        >>> lost_sentence({"cases": 400, "missing": 20}).startswith("20 of 400 cases (5.0")
        True
    """
    lost, cases = without_score(counts), as_float(counts.get("cases"))
    if not lost or not cases:
        return ""
    return f"{_of(lost, cases, 'case')} {_have(lost)} no usable score; each counts as the worst value."


def claim_sentence(claim: Mapping[str, Any]) -> str:
    """Say how many cases of a claim have no usable score, and its verdict on the answered cases alone.

    Args:
        claim: A claim of the verdict.

    Returns:
        The sentences; empty where every case has a score.
    """
    again = claim.get("answered_only")
    if not isinstance(again, Mapping):
        return ""
    return f"{_lost(again)}; each counts as the worst value. {answered_result(claim)}"


def answered_result(claim: Mapping[str, Any]) -> str:
    """Say what the verdict of a claim is on the answered cases alone.

    Args:
        claim: A claim of the verdict, with `answered_only`.

    Returns:
        'On the answered cases alone AUROC is 0.978 against 0.970 (claimed), difference +0.008
        [-0.010, +0.020]: EQUIVALENT.', or why there is no such verdict.
    """
    again = claim["answered_only"]
    name = in_sentence(label(str(claim.get("metric", "")), claim))
    if as_float(again.get("difference")) is None:
        return f"On the answered cases alone {name} is {again.get('word')}: {again.get('reason') or 'undefined'}."
    than = compared_with(claim)
    against = f" against {number(again.get('claimed'))} ({than})"
    return (
        f"On the answered cases alone {name} is {number(again.get('here'))}{against}, difference "
        f"{signed(again.get('difference'))} {interval(again, sign=True)}: {again.get('word')}."
    )


def verdict_sentence(verdict: Mapping[str, Any]) -> str:
    """Say whether the missing scores decide the verdict.

    Args:
        verdict: The verdict of a summary.

    Returns:
        The sentence; empty where every case has a score.

    Example:
        >>> verdict_sentence({"word": "BELOW", "answered_only": {"word": "BELOW", "differs": False}})
        'The verdict is the same without them.'
    """
    again = verdict.get("answered_only")
    if not isinstance(again, Mapping):
        return ""
    if not again.get("differs"):
        return "The verdict is the same without them."
    if again.get("word") == verdict.get("word"):
        return "Without them the verdict has the same name and another exit code: see the claims."
    return (
        f"The missing scores decide this verdict: it is {verdict.get('word')} with them and {again.get('word')} "
        "without them. Find out why they are missing before you judge the model."
    )


def leading_lost_claim(verdict: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Find the claim whose missing scores are reported first.

    Args:
        verdict: The verdict of a summary.

    Returns:
        A claim that gave the verdict, preferably one that changes without the missing scores; else the
        first claim with missing scores; None where there is none.
    """
    claims = [c for c in verdict.get("claims") or [] if isinstance(c, Mapping) and c.get("answered_only")]
    order = [
        lambda c: c.get("word") == verdict.get("word") and c["answered_only"].get("word") != c.get("word"),
        lambda c: c.get("word") == verdict.get("word"),
        lambda c: True,
    ]
    return next((c for rule in order for c in claims if rule(c)), None)


def claim_lines(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield each claim with its numbers, for the terminal.

    Args:
        verdict: The verdict of a summary.

    Yields:
        One line per claim, and one more where cases have no usable score.
    """
    for claim in verdict.get("claims") or []:
        group = f" ({claim['group']})" if claim.get("group") else ""
        if as_float(claim.get("difference")) is None:
            yield f"  {claim['metric']}{group}: {claim['word']} ({claim.get('reason') or 'undefined'})"
        else:
            yield f"  {claim['metric']}{group}: {_numbers(claim, compared_with(claim))}: {claim['word']}"
        again = claim.get("answered_only")
        if not again:
            continue
        described = (
            f"{again['word']} ({again.get('reason') or 'undefined'})"
            if as_float(again.get("difference")) is None
            else f"{_numbers(again, compared_with(claim))}: {again['word']}"
        )
        yield f"    {_lost(again)}; without them: {described}"


def verdict_lines(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield the verdict and its reason, for the terminal, and whether the missing scores decide it.

    Args:
        verdict: The verdict of a summary.

    Yields:
        The lines.
    """
    yield f"verdict: {verdict['word']}" + (f" ({verdict['reason']})" if verdict.get("reason") else "")
    if verdict_sentence(verdict):
        yield verdict_sentence(verdict)


def answered_text(entry: Mapping[str, Any]) -> str:
    """Print the value of the answered cases alone next to a value, for the terminal.

    Args:
        entry: An estimate with `answered_only` and `answered_only_interval`.

    Returns:
        The text, to be put behind the value; empty where the entry has no such value.

    Example:
        >>> answered_text({"answered_only": 0.978, "answered_only_interval": [0.961, 0.988]})
        '; answered only 0.978 [0.961, 0.988]'
    """
    if "answered_only" not in entry:
        return ""
    value = entry["answered_only"]
    ends = entry.get("answered_only_interval")
    described = "undefined" if value is None else f"{value:.3f}"
    if ends and None not in ends:
        described += f" [{ends[0]:.3f}, {ends[1]:.3f}]"
    return f"; answered only {described}"


def answered_estimate(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Make an estimate of the value of the answered cases alone, for a cell of a table.

    Args:
        entry: An estimate with `answered_only` and `answered_only_interval`.

    Returns:
        An estimate with `value`, `lo`, `hi` and `method`.
    """
    lo, hi = entry.get("answered_only_interval") or (None, None)
    return {"value": entry.get("answered_only"), "lo": lo, "hi": hi, "method": entry.get("method")}


def _numbers(part: Mapping[str, Any], than: str) -> str:
    return (
        f"here {part['here']:.4f}, {than} {part['claimed']:.4f}, difference {part['difference']:+.4f} "
        f"[{part['lo']:+.4f}, {part['hi']:+.4f}]"
    )


def _lost(again: Mapping[str, Any]) -> str:
    """'24 of 420 cases (5.7 %) here and 3 of 300 at the reference have no usable score'."""
    here, there = int(again.get("without_score") or 0), int(again.get("reference_without_score") or 0)
    parts = []
    if here:
        where = " here" if again.get("reference_cases") else ""
        parts.append(f"{_of(here, again['cases'], 'case')}{where}")
    if there:
        parts.append(f"{_of(there, again['reference_cases'], 'case')} at the reference")
    return f"{' and '.join(parts)} {_have(here + there)} no usable score"


def _of(lost: int, cases: float, unit: str) -> str:
    plural = "" if cases == 1 else "s"
    return f"{count(lost)} of {count(cases)} {unit}{plural} ({percent(lost / cases)})"


def _have(lost: int) -> str:
    return "has" if lost == 1 else "have"
