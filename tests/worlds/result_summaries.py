"""Summaries as the program writes them, for all five tasks, with every optional part: for tests and looks.

Nothing here is measured; the numbers hang together well enough that a wrong table is seen by eye.
Run as a script, it writes the five pages into a folder.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

TASKS = ("classification", "detection", "segmentation", "response", "slides")
WORDS = ("EQUIVALENT", "BELOW", "ABOVE", "INCONCLUSIVE", "NOT ASSESSED")
SITES = ("Northgate", "St Agnes", "Harbour")


def _hash(text: str) -> str:
    return "h-" + hashlib.sha256(text.encode()).hexdigest()[:10]


def entry(
    value: float | None, half: float = 0.03, *, label: str = "", method: str = "wilson-clustered", **more: Any
):
    """One metric of the summary."""
    low, high = more.pop("bounds", (0.0, 1.0))
    out: dict[str, Any] = {
        "value": value,
        "lo": None if value is None else max(low, value - half * 1.04),
        "hi": None if value is None else min(high, value + half * 0.96),
        "method": method,
        "defined": 0 if value is None else 412,
        "undefined": 412 if value is None else 0,
        "label": label,
        "higher_is_better": True,
        "bounds": [low, high],
        "warnings": [],
    }
    out.update(more)
    if value is None:
        out.setdefault("undefined_reason", "only one class among the cases")
    return out


def roc(points: int = 300, auroc: float = 0.87) -> dict[str, Any]:
    x = np.linspace(0, 1, points) ** 2
    power = 1 / auroc - 1
    y = x**power
    band = 0.06 * np.sqrt(np.clip(y * (1 - y), 0, None)) + 0.004
    return {
        "x": x.tolist(),
        "y": y.tolist(),
        "lo": np.clip(y - band, 0, 1).tolist(),
        "hi": np.clip(y + band, 0, 1).tolist(),
        "x_label": "1 − specificity",
        "y_label": "Sensitivity",
        "operating_point": {"x": 0.19, "y": 0.19**power, "label": "threshold 0.5"},
    }


def pr(points: int = 300, prevalence: float = 0.28) -> dict[str, Any]:
    x = np.linspace(0.01, 1, points)
    y = prevalence + (1 - prevalence) * (1 - x**2.6) * 0.93
    band = 0.05 * np.ones(points)
    return {
        "x": x.tolist(),
        "y": y.tolist(),
        "lo": np.clip(y - band, 0, 1).tolist(),
        "hi": np.clip(y + band, 0, 1).tolist(),
        "x_label": "Recall",
        "y_label": "Precision",
        "prevalence": prevalence,
    }


def froc(points: int = 200, most: float = 8.0, unit: str = "volume") -> dict[str, Any]:
    x = np.linspace(0, most, points)
    y = 0.86 * (1 - np.exp(-1.1 * x)) * (0.97 + 0.03 * x / most)
    band = np.full(points, 0.055)
    return {
        "x": x.tolist(),
        "y": y.tolist(),
        "lo": np.clip(y - band, 0, 1).tolist(),
        "hi": np.clip(y + band, 0, 1).tolist(),
        "x_label": f"False positives a {unit}",
        "y_label": "Sensitivity",
    }


def reliability(shift: float = 0.1) -> dict[str, Any]:
    x = np.linspace(0.05, 0.95, 10)
    y = np.clip(x - shift * np.sin(np.pi * x) * 1.4, 0.01, 0.99)
    n = np.array([96, 61, 44, 31, 27, 24, 26, 33, 41, 3])
    half = 1.0 / np.sqrt(n + 4.0)
    return {
        "x": x.tolist(),
        "y": y.tolist(),
        "lo": np.clip(y - half, 0, 1).tolist(),
        "hi": np.clip(y + half, 0, 1).tolist(),
        "n": n.tolist(),
        "x_label": "Predicted probability",
        "y_label": "Observed fraction",
    }


_METRICS: dict[str, dict[str, Any]] = {
    "classification": {
        "auroc": entry(0.8421, 0.041, label="AUROC", method="delong-logit-clustered", answered_only=0.8533),
        "auprc": entry(0.7012, 0.067, label="AUPRC", method="bca"),
        "sensitivity": entry(0.7913, 0.075, label="Sensitivity", answered_only=0.8198),
        "specificity": entry(0.8081, 0.046, label="Specificity"),
        "balanced_accuracy": entry(0.7997, 0.044, label="Balanced accuracy", method="bca"),
        "f1": entry(0.6843, 0.06, label="F1", method="bca"),
        "ece_confidence": entry(
            0.0712, 0.02, label="ECE of confidence", method="percentile", higher_is_better=False
        ),
        "ece_malignant": entry(0.1043, 0.022, label="ECE of malignant probability", method="percentile"),
        "nll": entry(0.5123, 0.06, label="Negative log-likelihood", method="bca", bounds=(0.0, 20.0)),
        "brier": entry(0.1541, 0.018, label="Brier score", method="bca", higher_is_better=False),
        "nll_calibrated": entry(0.4411, 0.05, label="NLL, calibrated", method="bca", bounds=(0.0, 20.0)),
        "auroc_lesion_normal": entry(
            None, label="AUROC, lesion against normal", undefined_reason="12 normal images; 20 needed"
        ),
    },
    "detection": {
        "mean_sensitivity_1_to_4": entry(
            0.7821, 0.071, label="Mean sensitivity at 1 to 4 FP", method="percentile"
        ),
        "sensitivity_at_2_all": entry(
            0.7412, 0.068, label="Sensitivity at 2 FP, all volumes", method="percentile"
        ),
    },
    "segmentation": {
        "dice": entry(0.7214, 0.024, label="Dice", method="t-clustered"),
        "hausdorff_mm": entry(
            21.43,
            4.1,
            label="Hausdorff distance (mm)",
            method="bootstrap-t",
            bounds=(0.0, 150.0),
            higher_is_better=False,
        ),
        "hausdorff95_mm": entry(
            13.07, 3.2, label="Hausdorff 95 % (mm)", method="bootstrap-t", bounds=(0.0, 150.0)
        ),
        "norm_hd": entry(
            0.1429, 0.026, label="Normalised Hausdorff", method="percentile", higher_is_better=False
        ),
        "performance": entry(0.7893, 0.021, label="Performance", method="percentile"),
        "fairness": entry(
            0.9231,
            0.024,
            label="Fairness",
            method="percentile",
            warnings=["a percentile bootstrap of a range has no valid coverage"],
        ),
        "combined": entry(0.8562, 0.018, label="Combined score", method="percentile"),
    },
    "response": {
        "balanced_accuracy": entry(0.6217, 0.058, label="Balanced accuracy", method="percentile"),
        "auroc": entry(0.6719, 0.06, label="AUROC", method="delong-logit-clustered"),
        "fairness": entry(0.7934, 0.08, label="Fairness", method="percentile"),
        "combined": entry(0.7076, 0.05, label="Combined score", method="percentile"),
        "recall_pcr": entry(0.5517, 0.09, label="Recall, pCR"),
        "recall_no_pcr": entry(0.6918, 0.06, label="Recall, no pCR"),
    },
    "slides": {
        "pn_kappa": entry(0.8891, 0.05, label="pN kappa, quadratic", method="percentile"),
        "stage_accuracy": entry(0.8412, 0.06, label="Stage accuracy"),
        "positive_sensitivity": entry(
            0.99964, 0.0003, label="Sensitivity, macro or micro", method="one-sided-bound", hi=None, lo=0.951
        ),
        "positive_specificity": entry(0.9312, 0.05, label="Specificity, macro or micro"),
        "f1_macro": entry(0.8123, 0.06, label="F1, macro average", method="percentile"),
        "froc_score": entry(0.7731, 0.07, label="FROC score", method="percentile"),
    },
}


def _groups(metric: str, base: float) -> dict[str, Any]:
    def row(cases: int, shift: float, half: float, note: str = "") -> dict[str, Any]:
        value = None if note else base + shift
        more = {"undefined_reason": note} if note else {}
        out: dict[str, Any] = {
            "cases": cases,
            "patients": max(cases - 4, 1),
            "positives": max(int(cases * 0.28), 1),
            "metrics": {
                metric: entry(value, half, label=_METRICS_LABEL.get(metric, metric), method="bca", **more)
            },
        }
        if note:
            out["note"] = note
        return out

    return {
        "age": {
            "≤40": row(41, -0.083, 0.11),
            "41–50": row(97, -0.021, 0.07),
            "51–60": row(121, 0.012, 0.06),
            "61–70": row(99, 0.031, 0.06),
            "≥71": row(52, 0.022, 0.08),
            "missing": row(6, 0.0, 0.0, "only one class in this group"),
        },
        "menopausal_status": {
            "pre": row(163, -0.034, 0.06),
            "post": row(231, 0.024, 0.045),
            "unknown": row(18, 0.01, 0.16),
        },
        "breast_density": {
            "A": row(31, 0.05, 0.09),
            "B": row(148, 0.031, 0.05),
            "C": row(172, -0.012, 0.05),
            "D": row(58, -0.094, 0.1),
            "not recorded": row(3, 0.1, 0.2),
        },
    }


_METRICS_LABEL = {name: e["label"] for metrics in _METRICS.values() for name, e in metrics.items()}
_HEAD = {
    "classification": "auroc",
    "detection": "mean_sensitivity_1_to_4",
    "segmentation": "dice",
    "response": "balanced_accuracy",
    "slides": "stage_accuracy",
}


def _fairness(metric: str, groups: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for i, (variable, rows) in enumerate(groups.items()):
        values = {
            g: r["metrics"][metric]["value"]
            for g, r in rows.items()
            if r["metrics"][metric]["value"] is not None
        }
        values = {g: v for g, v in values.items() if g not in ("missing", "unknown", "not recorded")}
        best, worst = max(values, key=values.__getitem__), min(values, key=values.__getitem__)
        gap = values[best] - values[worst]
        band = (0.171, 0.049, 0.098)[i]
        out[variable] = {
            "metric": metric,
            "gap": gap,
            "null_mean": band * 0.6,
            "null_band_upper": band,
            "gap_above_null": gap - band,
            "p": (0.31, 0.021, 0.004)[i],
            "worst_group": worst,
            "best_group": best,
            "variance": float(np.var(list(values.values()))),
            "sizes": {g: r["cases"] for g, r in rows.items()},
            "smallest_group": min(r["cases"] for r in rows.values()),
            "pairwise": [{"a": worst, "b": best, "difference": -gap, "lo": -gap - 0.07, "hi": -gap + 0.07}],
            "missing": 6 - i,
            "note": "",
        }
    return out


def claim(word: str, metric: str = "auroc", label: str = "AUROC") -> dict[str, Any]:
    middle = {
        "EQUIVALENT": -0.004,
        "BELOW": -0.0679,
        "ABOVE": 0.071,
        "INCONCLUSIVE": -0.031,
        "NOT ASSESSED": None,
    }[word]
    half = {"EQUIVALENT": 0.018, "BELOW": 0.0301, "ABOVE": 0.03, "INCONCLUSIVE": 0.037, "NOT ASSESSED": 0.0}[
        word
    ]
    margin = 0.03
    out: dict[str, Any] = {
        "metric": metric,
        "label": label,
        "claimed": 0.91,
        "here": None if middle is None else 0.91 + middle,
        "difference": middle,
        "lo": None if middle is None else middle - half,
        "hi": None if middle is None else middle + half,
        "alpha": 0.05,
        "margin": margin,
        "margin_source": "declared in the claim before outcomes were read",
        "word": word,
        "non_inferior": word in ("EQUIVALENT", "ABOVE"),
        "smallest_detectable_drop": half / 1.645 * 2.487,
        "smallest_provable_margin": half / 1.645 * 2.927,
        "flips_at": None if middle is None else abs(middle) + half,
        "out_of_reach": word == "INCONCLUSIVE",
    }
    if word == "NOT ASSESSED":
        out["reason"] = "AUPRC moves with prevalence, and the source's prevalence was not given"
    return out


def make_summary(
    task: str = "classification", *, word: str | None = "BELOW", rich: bool = True
) -> dict[str, Any]:
    """A summary of `task`; `word` None: no claim; `rich` False: only what every run has."""
    head = _HEAD[task]
    metrics = {name: dict(e) for name, e in _METRICS[task].items()}
    base = metrics[head]["value"]
    summary: dict[str, Any] = {
        "elsewhere": "0.1.0",
        "task": task,
        "protocol": {
            "detection": "dbtex-paper",
            "segmentation": "mamamia-paper",
            "response": "mamamia-paper",
        }.get(task, "plain"),
        "protocol_version": "1.0",
        "created": "2026-03-04T09:21:00+00:00",
        "provenance": {
            "cohort_hash": hashlib.sha256(task.encode()).hexdigest(),
            "predictions_digest": hashlib.sha256(b"p" + task.encode()).hexdigest(),
            "split_hash": None,
            "protocol_digest": hashlib.sha256(b"plain").hexdigest()[:16],
            "seed": 42,
            "resamples": 1000,
            "code_version": "0.1.0",
            "command": f"elsewhere score {task} cohort/ predictions.csv --group-by age --out result",
            "id_grades": {
                "Northgate": {"grade": "A", "why": "412 patients, as published"},
                "Harbour": {"grade": "B", "why": "ids are finer than patients: one id an exam for 18 of 97"},
            },
            "python": "3.11.9",
            "numpy": "2.3.1",
        },
        "counts": {
            "cases": 416,
            "patients": 396,
            "positives": 116,
            "scored": 404,
            "missing": 8,
            "undefined": 0,
            "invalid": 2,
            "not_analysable": 2,
            "without_boxes": 14 if task == "detection" else 0,
            "extra": 5,
        },
        "flow": [
            {"step": "rows in the prediction file", "n": 433, "lost": 0, "why": ""},
            {"step": "rows with a valid id", "n": 431, "lost": 2, "why": "blank case_id"},
            {
                "step": "after views were brought to the case",
                "n": 413,
                "lost": 18,
                "why": "two views of one breast: the larger kept",
            },
            {
                "step": "predictions of the cohort's cases",
                "n": 408,
                "lost": 5,
                "why": "ids that the cohort does not have",
            },
        ],
        "metrics": metrics,
        "curves": {},
        "warnings": [
            "8 cases have no prediction: each counts as the worst value (ST-14).",
            "Fewer than 30 positives in 2 of 3 sites: intervals are outside the domain of shown coverage.",
        ],
        "methods": "",
    }
    if task in ("classification", "response"):
        summary["curves"] = {
            "roc": roc(auroc=metrics["auroc"]["value"]),
            "pr": pr(),
            "reliability": reliability(),
        }
    elif task == "detection":
        summary["curves"] = {"froc": froc()}
    elif task == "slides":
        summary["curves"] = {"froc": froc(unit="slide")}
    if not rich:
        return summary
    summary["groups"] = _groups(head, base)
    summary["fairness"] = _fairness(head, summary["groups"])
    summary["sites"] = {
        site: {
            "cases": n,
            "patients": n - 6,
            "positives": int(n * 0.27),
            "metrics": {head: entry(base + d, h, label=_METRICS_LABEL[head])},
        }
        for site, n, d, h in zip(
            SITES, (212, 107, 97), (0.031, 0.008, -0.092), (0.04, 0.06, 0.08), strict=True
        )
    }
    summary["case_mix"] = {
        "age": {
            "reference": {"mean": 54.2, "sd": 11.9, "missing": 3},
            "here": {"mean": 49.8, "sd": 12.8, "missing": 6},
            "smd": -0.356,
        },
        "breast_density": {
            "levels": {
                k: {"reference": r, "here": h}
                for k, r, h in zip("ABCD", (88, 391, 298, 61), (31, 148, 172, 58), strict=True)
            },
            "smd": 0.291,
        },
        "prevalence": {"reference": {"mean": 0.343}, "here": {"mean": 0.279}, "smd": -0.139},
    }
    summary["worst_cases"] = [
        {
            "case": _hash(f"{task}-{i}"),
            "site": SITES[i % 3],
            "status": "missing" if i < 2 else "scored",
            head: round(0.01 + 0.013 * i, 4),
        }
        for i in range(12)
    ]
    summary["audit"] = [
        {
            "kind": "contradictory labels",
            "severity": "warning",
            "message": "2 patients carry both benign and malignant labels; each is one indivisible unit.",
            "rows": [3, 9],
        },
        {
            "kind": "ids shared by two sites",
            "severity": "error",
            "message": "4 patient ids occur at Northgate and at Harbour: a leak if one trained the model.",
            "rows": [17, 31, 55, 80],
        },
        {
            "kind": "attribute mostly empty",
            "severity": "note",
            "message": "scanner is empty in 93 % of rows; it is not used as a group.",
        },
    ]
    if word is not None:
        claims = [claim(word, head, _METRICS_LABEL[head])]
        if task == "classification":
            claims.append(claim("INCONCLUSIVE", "sensitivity", "Sensitivity"))
            claims.append(claim("NOT ASSESSED", "auprc", "AUPRC"))
        summary["verdict"] = {
            "word": word,
            "claims": claims,
            "exit_code": {"EQUIVALENT": 0, "ABOVE": 0, "BELOW": 2, "INCONCLUSIVE": 3, "NOT ASSESSED": 4}[
                word
            ],
        }
    _ADD[task](summary)
    return summary


def _classification(s: dict[str, Any]) -> None:
    s["curves"]["reliability_calibrated"] = reliability(0.02)
    s["calibration"] = {
        "before": {
            "ece_confidence": s["metrics"]["ece_confidence"],
            "ece_malignant": s["metrics"]["ece_malignant"],
            "nll": s["metrics"]["nll"],
            "brier": s["metrics"]["brier"],
            "slope": entry(0.71, 0.11, bounds=(-9, 9)),
            "intercept": entry(-0.38, 0.2, bounds=(-9, 9)),
        },
        "after": {
            "ece_confidence": entry(0.0301, 0.014),
            "ece_malignant": entry(0.0388, 0.016),
            "nll": s["metrics"]["nll_calibrated"],
            "brier": entry(0.1392, 0.017),
            "slope": entry(1.02, 0.15, bounds=(-9, 9)),
            "intercept": entry(-0.11, 0.2, bounds=(-9, 9)),
        },
        "temperature": 1.44,
        "eligible": True,
        "fitted_on": "the source's validation part, 214 images",
    }
    s["operating_point"] = {
        "threshold": 0.5,
        "threshold_source": "carried over from the source",
        "here": {"sensitivity": s["metrics"]["sensitivity"], "specificity": s["metrics"]["specificity"]},
        "reference": {"sensitivity": {"value": 0.902}, "specificity": {"value": 0.821}},
        "restoring": [
            {
                "restores": "sensitivity 0.902",
                "threshold": 0.3312,
                "sensitivity": 0.9043,
                "specificity": 0.6921,
            },
            {
                "restores": "specificity 0.821",
                "threshold": 0.5327,
                "sensitivity": 0.7739,
                "specificity": 0.8215,
            },
        ],
        "confusion": {"tp": 91, "fp": 56, "fn": 25, "tn": 240},
    }
    grid = np.linspace(0.02, 0.6, 120)
    s["clinical"] = {
        "verification": "Biopsy for 143 of 416; the others by 24 months of follow-up without cancer",
        "prevalence": 0.0071,
        "prevalence_source": "the hospital's screening rounds of 2023",
        "ppv": entry(0.0287, 0.006),
        "npv": entry(0.99816, 0.0007),
        "recall_rate": entry(0.1961, 0.03),
        "net_benefit": {
            "x": grid.tolist(),
            "model": (0.22 - 0.3 * grid).clip(-0.02).tolist(),
            "all": (0.28 - 0.72 * grid / (1 - grid)).tolist(),
        },
    }
    names = ["ours", "vendor A", "vendor B", "baseline", "vendor C", "reader"]
    s["comparison"] = {
        "a": "vendor A",
        "b": "baseline",
        "paired_cases": 404,
        "metrics": {
            "auroc": {
                "label": "AUROC",
                "a": 0.842,
                "b": 0.801,
                "difference": 0.041,
                "lo": 0.011,
                "hi": 0.071,
                "p_delong": 0.008,
                "p_bootstrap": 0.009,
                "p_permutation": 0.011,
                "p_holm": 0.022,
            },
            "sensitivity": {
                "label": "Sensitivity",
                "a": 0.791,
                "b": 0.774,
                "difference": 0.017,
                "lo": -0.042,
                "hi": 0.077,
                "p_bootstrap": 0.58,
                "p_permutation": 0.6,
                "p_holm": 0.6,
            },
        },
    }
    rng = np.random.default_rng(7)
    s["ranking"] = {
        "metric": "auroc",
        "table": [
            {
                "model": m,
                "value": 0.871 - 0.017 * i,
                "lo": 0.83 - 0.017 * i,
                "hi": 0.9 - 0.017 * i,
                "rank": i + 1,
                "rank_lo": max(1, i - 1),
                "rank_hi": min(6, i + 3),
                "tier": 1 if i < 3 else 2,
                "p_holm": None if m == "baseline" else 0.01 * (i + 1),
            }
            for i, m in enumerate(names)
        ],
        "frequencies": {
            m: rng.dirichlet(9 * np.exp(-0.8 * (np.arange(6) - i) ** 2) + 0.02).tolist()
            for i, m in enumerate(names)
        },
        "fairness_weight": {
            "weights": np.linspace(0, 1, 21).tolist(),
            "ranks": {
                m: [1 + (i if w < 0.55 else (i + 2) % 6) for w in np.linspace(0, 1, 21)]
                for i, m in enumerate(names)
            },
        },
        "failed": [{"model": "vendor D", "why": "no column case_id"}],
    }


def _detection(s: dict[str, Any]) -> None:
    s["difficulty"] = {
        "algorithms": 8,
        "lesions": 131,
        "budget_false_positives": 4,
        "detected_by": {str(k): n for k, n in enumerate((7, 8, 9, 11, 12, 14, 18, 23, 29))},
        "hardest": [
            {"lesion": _hash(f"lesion{i}"), "detected_by": i // 3, "mean_false_positives": 3.2 - 0.2 * i}
            for i in range(6)
        ],
    }


def _segmentation(s: dict[str, Any]) -> None:
    s["size_strata"] = {
        "variable": "tumour volume (ml)",
        "cuts": [1.31, 14.2],
        "strata": {
            name: {
                "cases": n,
                "patients": n,
                "metrics": {
                    "dice": entry(v, h, label="Dice"),
                    "norm_hd": entry(1 - v - 0.1, h, label="Normalised Hausdorff"),
                },
            }
            for name, n, v, h in (
                ("small", 83, 0.581, 0.05),
                ("moderate", 250, 0.742, 0.025),
                ("large", 83, 0.801, 0.04),
            )
        },
    }


def _response(s: dict[str, Any]) -> None:
    s["operating_point"] = {
        "threshold": 0.5,
        "here": {"sensitivity": s["metrics"]["recall_pcr"], "specificity": s["metrics"]["recall_no_pcr"]},
    }


def _slides(s: dict[str, Any]) -> None:
    s["confusion"] = {
        "stage": {
            "labels": ["negative", "itc", "micro", "macro"],
            "matrix": [[61, 3, 2, 0], [4, 5, 2, 0], [1, 2, 17, 3], [0, 0, 2, 29]],
        }
    }


_ADD = {
    "classification": _classification,
    "detection": _detection,
    "segmentation": _segmentation,
    "response": _response,
    "slides": _slides,
}

if __name__ == "__main__":
    import sys
    from pathlib import Path

    from elsewhere.report import write_report

    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/reports")
    folder.mkdir(parents=True, exist_ok=True)
    for chosen in TASKS:
        write_report(make_summary(chosen), folder / f"{chosen}.html")
    for chosen_word in (*WORDS, None):
        write_report(make_summary("classification", word=chosen_word), folder / f"word-{chosen_word}.html")
