"""Convert parts of a summary that have more than one shape to the shape that the page knows.

The statistics write what is natural to them (a decision curve, a table of resampled ranks); here each is
converted to the shape that the docstring of `elsewhere.report` lists. Nothing is computed, and the input
is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FOURFOLD = ("true_positives", "false_negatives", "false_positives", "true_negatives")
_OF_SLIDE_MASKS = ("lesion_recall_by_diameter", "slide_scores_by_stage", "boundary_um")
_HARDEST = 15


def normalise(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Convert known variants of a summary to one form.

    Args:
        summary: The content of summary.json.

    Returns:
        A shallow copy with the known variants renamed; keys that begin with `_` are not printed.
    """
    out = {str(key): value for key, value in summary.items() if not str(key).startswith("_")}
    _details(out)
    for key, change in (
        ("difficulty", _difficulty),
        ("ranking", _ranking),
        ("comparison", _comparison),
        ("clinical", _clinical),
        ("calibration", _calibration),
    ):
        if isinstance(out.get(key), Mapping):
            out[key] = change(dict(out[key]))
    return out


def _details(out: dict[str, Any]) -> None:
    """Add what a task brings: matrices join `confusion`; what the page shows elsewhere is not repeated."""
    raw = out.get("details")
    if not isinstance(raw, Mapping):
        return
    details = dict(raw)
    confusion = details.get("confusion")
    if isinstance(confusion, Mapping):
        matrices = {k: v for k, v in confusion.items() if isinstance(v, Mapping) and v.get("labels")}
        if matrices:
            out.setdefault("confusion", matrices)
            details.pop("confusion")
        elif set(_FOURFOLD) <= set(confusion):
            tp, fn, fp, tn = (confusion[name] for name in _FOURFOLD)
            matrix = {"labels": ["negative", "positive"], "matrix": [[tn, fp], [fn, tp]]}
            if not out.get("operating_point"):
                out.setdefault("confusion", {"decisions": matrix})
            details.pop("confusion")
    masks = {key: details.pop(key) for key in _OF_SLIDE_MASKS if key in details}
    if masks:
        out.setdefault("slide_masks", masks)
    for key in ("size_strata", "temperature", "fairness_weight", "invalid_reasons", "threshold"):
        if out.get(key) or not details.get(key) or key == "threshold":
            details.pop(key, None)
    out["details"] = details


def _difficulty(part: dict[str, Any]) -> dict[str, Any]:
    found = part.pop("lesions_by_detections", None)
    if found is not None and "detected_by" not in part:
        part["detected_by"] = {str(k): n for k, n in enumerate(found)}
    hardest = part.get("hardest")
    if isinstance(hardest, list) and len(hardest) > _HARDEST:
        part["hardest"] = hardest[:_HARDEST]
        part["note"] = f"The {_HARDEST} hardest of {len(hardest)} lesions; the rest are in summary.json."
    return part


def _ranking(part: dict[str, Any]) -> dict[str, Any]:
    models = part.pop("models", None)
    if models is not None and "table" not in part:
        part["table"] = models
    against = part.pop("against_baseline", None)
    if isinstance(against, list) and isinstance(part.get("table"), list):
        holm = {
            str(r.get("model")): r.get("p_holm", r.get("p_adjusted"))
            for r in against
            if isinstance(r, Mapping)
        }
        part["table"] = [
            {**row, "p_holm": holm[str(row.get("model"))]} if str(row.get("model")) in holm else row
            for row in part["table"]
        ]
    weights = part.get("fairness_weight")
    if isinstance(weights, Mapping) and isinstance(weights.get("weights"), list):
        rows = weights["weights"]
        if rows and all(isinstance(r, Mapping) for r in rows):
            names = list(rows[0].get("ranks") or {})
            part["fairness_weight"] = {
                "weights": [r.get("weight") for r in rows],
                "ranks": {n: [(r.get("ranks") or {}).get(n) for r in rows] for n in names},
            }
            part["places_change_at"] = weights.get("crossings")
            part["stable_between"] = weights.get("stable_between")
    left_out = part.pop("left_out_sites", None)
    if isinstance(left_out, Mapping) and left_out:
        part["rank_without_a_site"] = {
            f"without {site}": {**(e.get("ranks") or {}), "Kendall tau": e.get("tau")}
            if isinstance(e, Mapping)
            else e
            for site, e in left_out.items()
        }
    for key in ("higher_is_better", "critical", "pairwise", "metrics", "level", "resamples"):
        part.pop(key, None)
    return part


def _comparison(part: dict[str, Any]) -> dict[str, Any]:
    names = [str(part.get(side) or side.upper()) for side in ("a", "b")]
    short = [name.rstrip("/").rsplit("/", 1)[-1] for name in names]
    part["a"], part["b"] = short if short[0] != short[1] else names
    metrics = part.get("metrics")
    if isinstance(metrics, Mapping):
        changed = {}
        for name, entry in metrics.items():
            row = dict(entry) if isinstance(entry, Mapping) else entry
            tests = row.pop("tests", None) if isinstance(row, dict) else None
            if isinstance(tests, Mapping):
                row.pop("p", None)
                row.pop("p_method", None)
                row |= {f"p_{test}": t.get("p") for test, t in tests.items() if isinstance(t, Mapping)}
            changed[name] = row
        part["metrics"] = changed
    return part


def _clinical(part: dict[str, Any]) -> dict[str, Any]:
    curve = part.get("net_benefit")
    if isinstance(curve, Mapping) and "x" in curve:
        part["net_benefit"] = {
            **curve,
            "model": curve.get("model", curve.get("y")),
            "all": curve.get("all", curve.get("recall_all")),
        }
    return part


def _calibration(part: dict[str, Any]) -> dict[str, Any]:
    """Leave only estimates in `before` and `after`; method and number of cases become facts, once."""
    for side in ("before", "after"):
        fit = part.get(side)
        if not isinstance(fit, Mapping):
            continue
        reason = fit.get("undefined_reason")
        part[side] = {
            key: value if isinstance(value, Mapping) else {"value": None, "undefined_reason": reason}
            for key, value in fit.items()
            if isinstance(value, Mapping) or (value is None and reason)
        }
        if isinstance(fit.get("method"), str):
            part.setdefault("slope and intercept by", fit["method"])
    return part
