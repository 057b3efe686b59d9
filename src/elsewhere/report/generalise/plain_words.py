"""What the verdicts on many models say to somebody who buys one, or who publishes them: sentences, numbers in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from elsewhere.report.page.blocks import Section, Text
from elsewhere.report.page.figures import Specs
from elsewhere.report.page.numbers import as_float, count, number, signed
from elsewhere.report.result.prepare import Prepared

Row = Mapping[str, Any]
_NAMED = 5
_METRICS = {
    "dice": ("Dice on tumour patches", 3),
    "fpr": ("the false-positive rate on normal patches", 4),
}


def plain_words(data: Prepared, specs: Specs) -> Section | None:
    """Make the section that says what the verdicts mean.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where the summary is of no such comparison.
    """
    part = data.part("generalise")
    models = [row for row in part.get("models") or [] if isinstance(row, dict)]
    rows = [row for row in part.get("rows") or [] if isinstance(row, dict) and not row.get("stratum_of")]
    if not models or not rows:
        return None
    by_metric = {name: [row for row in rows if row.get("metric") == name] for name in _METRICS}
    paragraphs = [
        [_verdicts(models)],
        [*(_change(name, found) for name, found in by_metric.items()), *_mixes(by_metric, part)],
        [*(_could_not(name, found) for name, found in by_metric.items())],
        [_folds(part), _fewer(by_metric["fpr"])],
        [_advice(models)],
    ]
    said = [" ".join(one for one in sentences if one) for sentences in paragraphs]
    return Section(
        id="generalise-plain",
        title="In plain words",
        short="In plain words",
        lead="Written from the numbers below.",
        blocks=[Text(paragraphs=[one for one in said if one])],
    )


def _models(n: int) -> str:
    return f"{count(n)} model{'' if n == 1 else 's'}"


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _names(rows: Sequence[Row]) -> str:
    names = [str(row.get("model")) for row in rows]
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _verdicts(models: Sequence[Row]) -> str:
    fine = [row for row in models if row.get("non_inferior")]
    worse = [row for row in models if row.get("verdict") == "BELOW"]
    open_ = [row for row in models if not row.get("non_inferior") and row.get("verdict") == "INCONCLUSIVE"]
    unknown = [row for row in models if row.get("verdict") == "NOT ASSESSED"]
    total = len(models)
    said = [
        f"{count(len(fine))} of {_models(total)} {_are(len(fine))} shown to work no worse at the other hospital than the margins "
        f"allow ({_names(fine)})."
        if fine
        else "The model is not shown to work as well at the other hospital."
        if total == 1
        else f"None of the {_models(total)} is shown to work as well at the other hospital."
    ]
    if worse:
        said.append(f"{count(len(worse))} {_are(len(worse))} shown to work worse ({_names(worse)}).")
    if open_:
        whom = "it" if total == 1 else "all" if len(open_) == total else count(len(open_))
        said.append(f"For {whom}, these slides do not settle the question.")
    if unknown:
        said.append(f"For {count(len(unknown))}, it could not be put to these slides.")
    return " ".join(said)


def _typical(rows: Sequence[Row], key: str) -> float | None:
    values = [value for row in rows if (value := as_float(row.get(key))) is not None]
    return median(values) if values else None


def _change(name: str, rows: Sequence[Row]) -> str:
    words, digits = _METRICS[name]
    inside, outside = _typical(rows, "internal"), _typical(rows, "external")
    if inside is None or outside is None:
        return ""
    one = "Of the median model" if len(rows) > 1 else "Of the model"
    return f"{one}, {words} is {number(inside, digits)} at the internal hospital and {number(outside, digits)} at the external one."


def _mixes(by_metric: Mapping[str, Sequence[Row]], part: Row) -> list[str]:
    by = ", ".join(str(one) for one in part.get("standardised_by") or [])
    said = []
    for name, rows in by_metric.items():
        words, digits = _METRICS[name]
        crude, equal = _typical(rows, "difference"), _typical(rows, "standardised_difference")
        if crude is not None and equal is not None:
            said.append(
                f"The difference of {words} is {signed(crude, digits)}, and {signed(equal, digits)} at an equal mix of {by}: "
                f"{_share(crude, equal)}."
            )
    return said


def _share(crude: float, equal: float) -> str:
    if crude == 0 or abs(crude - equal) < 0.1 * abs(crude):
        return "another mix of cases explains little of it"
    if crude * equal <= 0:
        return "another mix of cases explains all of it"
    if abs(equal) > abs(crude):
        return "the mix of cases hides a part of it"
    return f"another mix of cases explains about {100 * (1 - equal / crude):.0f} % of it"


def _could_not(name: str, rows: Sequence[Row]) -> str:
    """Say where a pass was out of reach whatever the model did."""
    words, digits = _METRICS[name]
    margin = _typical(rows, "margin")
    open_ = [row for row in rows if row.get("verdict") == "INCONCLUSIVE" and not row.get("non_inferior")]
    provable = _typical(open_, "smallest_provable_margin")
    if margin is None or provable is None or provable <= margin:
        return ""
    return (
        f"For {words} the margin is {number(margin, digits)}, and the smallest one that these slides could have proved is about "
        f"{number(provable, digits)}: more patients are needed, not more patches of the same ones."
    )


def _fewer(rows: Sequence[Row]) -> str:
    """Models that a two-sided test fails because they have fewer false positives elsewhere."""
    better = [
        row
        for row in rows
        if row.get("non_inferior")
        and row.get("fold_equivalent") is False
        and (as_float(row.get("difference")) or 0.0) < 0
    ]
    if not better:
        return ""
    return (
        f"{_models(len(better))} {'has' if len(better) == 1 else 'have'} fewer false positives at the other hospital, and that "
        "two-sided test counts this as not equivalent; here it is no failure."
    )


def _folds(part: Row) -> str:
    tests = [
        row
        for row in part.get("by_fold") or []
        if isinstance(row, dict) and row.get("tested") and not row.get("stratum_of")
    ]
    if not tests:
        return ""
    words = " and ".join(
        f"{count(len(row.get('equivalent') or []))} of {count(row.get('tested'))} on "
        f"{'tumour' if row.get('metric') == 'dice' else 'normal'} patches"
        for row in tests
    )
    return (
        f"By fold, as the lymph-node study tested, {words} are equivalent. That test asks whether retraining gives the same mean "
        "on these slides, and not what other patients would give."
    )


def _advice(models: Sequence[Row]) -> str:
    words = {str(row.get("verdict")) for row in models if not row.get("non_inferior")}
    said = "To buy or to publish:"
    if any(row.get("non_inferior") for row in models):
        said += " a model that was chosen here because it passed is best confirmed on other patients."
    if "INCONCLUSIVE" in words:
        said += (
            " INCONCLUSIVE is neither a pass nor a failure, and not a reason to prefer one model to another."
        )
    if "BELOW" in words:
        said += " a model that is BELOW needs another threshold, other training data or another model before it is used there."
    if "NOT ASSESSED" in words:
        said += " NOT ASSESSED means that the slides cannot answer, whatever the numbers look like."
    return said + " The verdicts are about patches: stages and slides are scored by elsewhere score slides."
