"""Words for the keys of a summary, and which metric leads. Unknown keys are made readable, not hidden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.page.numbers import as_float

TASK_TITLES = {
    "classification": "Classification",
    "detection": "Lesion detection",
    "segmentation": "Tumour segmentation",
    "response": "Response to treatment",
    "slides": "Metastases in slides",
}
TASK_UNITS = {
    "classification": "cases",
    "detection": "volumes",
    "segmentation": "tumours",
    "response": "patients' scans",
    "slides": "slides",
}
HEADLINES = {
    "classification": ("auroc", "balanced_accuracy"),
    "detection": ("mean_sensitivity_1_to_4", "sensitivity_at_2_all"),
    "segmentation": ("combined", "performance", "dice"),
    "response": ("combined", "balanced_accuracy", "auroc"),
    "slides": ("pn_kappa", "froc_score", "stage_accuracy"),
}
_LABELS = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "sensitivity": "Sensitivity",
    "specificity": "Specificity",
    "balanced_accuracy": "Balanced accuracy",
    "f1": "F1",
    "f1_macro": "F1, macro average",
    "ece_confidence": "ECE of confidence",
    "ece_malignant": "ECE of malignant probability",
    "nll": "Negative log-likelihood",
    "brier": "Brier score",
    "slope": "Calibration slope",
    "intercept": "Calibration intercept",
    "calibration_slope": "Calibration slope",
    "calibration_intercept": "Calibration intercept",
    "mean_sensitivity_1_to_4": "Mean sensitivity at 1 to 4 false positives",
    "sensitivity_at_2_all": "Sensitivity at 2 false positives, all volumes",
    "dice": "Dice",
    "hausdorff_mm": "Hausdorff distance (mm)",
    "hausdorff95_mm": "Hausdorff 95 % (mm)",
    "norm_hd": "Normalised Hausdorff",
    "performance": "Performance",
    "fairness": "Fairness",
    "combined": "Combined score",
    "stage_accuracy": "Stage accuracy",
    "positive_sensitivity": "Sensitivity, macro or micro",
    "positive_specificity": "Specificity, macro or micro",
    "froc_score": "FROC score",
    "pn_kappa": "pN kappa, quadratic",
    "in_the_large": "Calibration in the large",
    "ppv": "PPV",
    "npv": "NPV",
    "recall_rate": "Recall rate",
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


def label(key: str, entry: Mapping[str, Any] | None = None) -> str:
    """Look up the label of a metric or a field.

    Args:
        key: The name of the field.
        entry: The entry that may bring a label.

    Returns:
        The entry's own label first, then the known word, then the key without its underscores.
    """
    if entry is not None and entry.get("label"):
        return str(entry["label"])
    if key in _LABELS:
        return _LABELS[key]
    if key.endswith("_calibrated"):
        return f"{label(key.removesuffix('_calibrated'))}, calibrated"
    words = key.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def in_sentence(text: str) -> str:
    """Set a label inside a sentence.

    Args:
        text: The text.

    Returns:
        A label inside a sentence: small first letter unless it is an abbreviation.
    """
    first = text.split(" ")[0].rstrip(",")
    keeps = first.isupper() or any(c.isupper() for c in first[1:]) or first in _PROPER
    return text if keeps else text[:1].lower() + text[1:]


def compared_with(claim: Mapping[str, Any]) -> str:
    """Name what a claim is compared with.

    Args:
        claim: The claimed number, with its own uncertainty where it brings any.

    Returns:
        `claimed` where a number was promised, `reference` where other patients are the measure.
    """
    source = str(claim.get("reference") or "claimed")
    return "claimed" if "claim" in source.lower() else "reference"


def method(name: Any) -> str:
    """Name the method of an interval in words.

    Args:
        name: The name.

    Returns:
        The words.
    """
    return METHOD_WORDS.get(str(name), str(name or ""))


def headline(summary: Mapping[str, Any]) -> str | None:
    """Find the metric that leads.

    Args:
        summary: The summary.

    Returns:
        The metric that leads: one marked primary, else the task's, else the first that is defined.
    """
    metrics = summary.get("metrics")
    if not isinstance(metrics, Mapping) or not metrics:
        return None
    if isinstance(metrics.get(str(summary.get("headline"))), Mapping):
        return str(summary["headline"])
    for name, entry in metrics.items():
        if isinstance(entry, Mapping) and entry.get("primary"):
            return str(name)
    for name in HEADLINES.get(str(summary.get("task", "")), ()):
        if isinstance(metrics.get(name), Mapping) and as_float(metrics[name].get("value")) is not None:
            return name
    defined = [
        n for n, e in metrics.items() if isinstance(e, Mapping) and as_float(e.get("value")) is not None
    ]
    return str(defined[0] if defined else next(iter(metrics)))


def _has_value(entry: Any) -> bool:
    return isinstance(entry, Mapping) and as_float(entry.get("value")) is not None


def leading_metrics(rows: Mapping[str, Any], preferred: str | None, most: int = 3) -> list[str]:
    """Choose the metrics that a table of groups or sites shows.

    Args:
        rows: The rows.
        preferred: The metric that comes first.
        most: The most to keep.

    Returns:
        The metrics that a table of groups or sites shows: the headline first, then those they have.
    """
    seen: dict[str, None] = {}
    for row in rows.values():
        metrics = row.get("metrics") if isinstance(row, Mapping) else None
        if isinstance(metrics, Mapping):
            seen.update(dict.fromkeys(str(n) for n, e in metrics.items() if n == preferred or _has_value(e)))
    ordered = ([preferred] if preferred in seen else []) + [name for name in seen if name != preferred]
    return [name for name in ordered if name is not None][:most]
