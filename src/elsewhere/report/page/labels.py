"""Labels for the keys of a summary, and the choice of the leading metric.

Unknown keys are made readable and not hidden. A task and a metric declare their own names (`Task.title`,
`MetricSpec.label`), whichever package they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elsewhere.report.page.numbers import as_float

if TYPE_CHECKING:
    from elsewhere.scoring.task import Task

_COLUMNS = {
    "generalise_dice": "Dice of tumour patches, internal and external",
    "generalise_fpr": "False-positive rate of normal patches, internal and external",
    "generalise_strata": "Models at two domains, by stratum",
    "generalise_kinds": "Means of models by share of partial-tumour patches and by clustering",
    "lesion_recall": "Lesions found by diameter",
    "four_class": "Stages of slides (four)",
    "two_class": "Positive slides (macro or micro)",
    "slope": "Calibration slope",
    "intercept": "Calibration intercept",
    "calibration_slope": "Calibration slope",
    "calibration_intercept": "Calibration intercept",
    "in_the_large": "Calibration in the large",
    "net_benefit": "Net benefit",
    "smd": "Standardised difference",
    "p": "p",
    "menopausal_status": "Menopausal status",
    "breast_density": "Breast density",
    "cohort_hash": "Cohort",
    "predictions_digest": "Predictions",
    "split_hash": "Split",
    "protocol_digest": "Protocol digest",
    "code_version": "Code version",
    "numpy": "numpy",
    "python": "Python",
    "seed": "Seed",
}
_PROPER = ("Dice", "Brier", "Hausdorff", "Wilson")
METHOD_WORDS = {
    "delong-logit-clustered": "DeLong, logit, by patient",
    "wilson-clustered": "Wilson, by patient",
    "t-clustered": "t, by patient",
    "bootstrap-t": "bootstrap-t",
    "bca": "BCa bootstrap",
    "percentile": "percentile bootstrap",
    "one-sided-bound": "one-sided bound",
    "none": "no interval",
}
CURVE_TITLES = {
    "roc": "ROC curve",
    "pr": "Precision and recall",
    "froc": "FROC curve",
    "froc_all": "FROC curve, all volumes",
    "reliability": "Reliability",
    "reliability_calibrated": "Reliability after calibration",
}


def _task(summary: Mapping[str, Any]) -> Task | None:
    """The task of a summary, where a package that is installed here brings it."""
    from elsewhere.scoring.task import tasks

    name = str(summary.get("task", ""))
    return tasks.get(name) if name in tasks else None


def task_title(summary: Mapping[str, Any], default: str | None = None) -> str:
    """Say what was done, as a heading.

    Args:
        summary: The summary of a result.
        default: What stands where no task of this name is installed; None: the name itself.

    Returns:
        The title that the task declares.

    Example:
        >>> task_title({"task": "segmentation"})
        'Tumour segmentation'
    """
    task = _task(summary)
    if task is not None:
        return task.title
    return str(summary.get("task") or "") if default is None else default


def task_units(summary: Mapping[str, Any]) -> str:
    """Say what one row of the scores is, in the plural.

    Args:
        summary: The summary of a result.

    Returns:
        The word that the task declares, or 'cases'.

    Example:
        >>> task_units({"task": "detection"})
        'volumes'
    """
    task = _task(summary)
    return "cases" if task is None else task.units


def has_two_classes(summary: Mapping[str, Any]) -> bool:
    """Say whether the task of a summary tells two classes apart.

    Args:
        summary: The summary of a result.

    Returns:
        Whether its scores have a column with the outcome as 0 and 1.

    Example:
        >>> has_two_classes({"task": "response"}), has_two_classes({"task": "detection"})
        (True, False)
    """
    task = _task(summary)
    return task is not None and task.truth_column is not None


def label(key: str, entry: Mapping[str, Any] | None = None) -> str:
    """Find the words for a key of a summary.

    Args:
        key: A metric, a column or another key.
        entry: What the summary says under that key.

    Returns:
        The entry's own label first, then a known label, then the label that the metric declares, then the
        key without its underscores.

    Example:
        >>> label("auroc"), label("breast_density"), label("some_key")
        ('AUROC', 'Breast density', 'Some key')
    """
    from elsewhere.scoring.metrics import metric_label

    if entry is not None and entry.get("label"):
        return str(entry["label"])
    if key in _COLUMNS:
        return _COLUMNS[key]
    declared = metric_label(key)
    if declared is not None:
        return declared
    if key.endswith("_calibrated"):
        return f"{label(key.removesuffix('_calibrated'))}, calibrated"
    words = key.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def in_sentence(text: str) -> str:
    """Set a label inside a sentence, with a small first letter unless it is an abbreviation or a name.

    Args:
        text: The label.

    Returns:
        The label as it stands inside a sentence.

    Example:
        >>> in_sentence("Balanced accuracy"), in_sentence("AUROC"), in_sentence("Dice")
        ('balanced accuracy', 'AUROC', 'Dice')
    """
    first = text.split(" ")[0].rstrip(",")
    keeps = first.isupper() or any(c.isupper() for c in first[1:]) or first in _PROPER
    return text if keeps else text[:1].lower() + text[1:]


def compared_with(claim: Mapping[str, Any]) -> str:
    """Name what a claim is compared with.

    Args:
        claim: A claim of the verdict.

    Returns:
        'claimed' where a number was promised, 'reference' where other patients are the standard.

    Example:
        >>> compared_with({"reference": "site Alder"})
        'reference'
    """
    source = str(claim.get("reference") or "claimed")
    return "claimed" if "claim" in source.lower() else "reference"


def method(name: Any) -> str:
    """Name the method of an interval in words.

    Args:
        name: The method's name in the summary, such as 'bca'.

    Returns:
        The words; the name itself where there are none.

    Example:
        >>> method("bca")
        'BCa bootstrap'
    """
    return METHOD_WORDS.get(str(name), str(name or ""))


def headline(summary: Mapping[str, Any]) -> str | None:
    """Find the metric that leads: the one that the summary names, else the primary, else the first defined.

    Args:
        summary: The content of summary.json.

    Returns:
        The metric's name; None where the summary has no metrics.

    Example:
        >>> headline({"metrics": {"brier": {"value": None}, "auroc": {"value": 0.9}}})
        'auroc'
    """
    metrics = summary.get("metrics")
    if not isinstance(metrics, Mapping) or not metrics:
        return None
    if isinstance(metrics.get(str(summary.get("headline"))), Mapping):
        return str(summary["headline"])
    for name, entry in metrics.items():
        if isinstance(entry, Mapping) and entry.get("primary"):
            return str(name)
    defined = [
        n for n, e in metrics.items() if isinstance(e, Mapping) and as_float(e.get("value")) is not None
    ]
    return str(defined[0] if defined else next(iter(metrics)))


def _has_value(entry: Any) -> bool:
    return isinstance(entry, Mapping) and as_float(entry.get("value")) is not None


def leading_metrics(rows: Mapping[str, Any], preferred: str | None, most: int = 3) -> list[str]:
    """Choose the metrics that a table of groups or sites shows: the headline first, then those with a value.

    Args:
        rows: The groups or sites by name, each with its `metrics`.
        preferred: The metric that comes first; None for no preference.
        most: The largest number of metrics.

    Returns:
        The names of the metrics.
    """
    seen: dict[str, None] = {}
    for row in rows.values():
        metrics = row.get("metrics") if isinstance(row, Mapping) else None
        if isinstance(metrics, Mapping):
            seen.update(dict.fromkeys(str(n) for n, e in metrics.items() if n == preferred or _has_value(e)))
    ordered = ([preferred] if preferred in seen else []) + [name for name in seen if name != preferred]
    return [name for name in ordered if name is not None][:most]
