"""Sections of thresholds: what is shown, and what is withheld about one to four patients."""

from __future__ import annotations

import json

import pytest

from elsewhere.report.result.prepare import prepare
from elsewhere.report.result.thresholds import carried_threshold, thresholds
from worlds.result_summaries import make_summary


def entry(value, lo=None, hi=None):
    return {"value": value, "lo": lo, "hi": hi, "method": "percentile", "label": "x"}


def row(patients: int, *, words: bool = True) -> dict:
    made = {
        "cases": 4 * patients,
        "patients": patients,
        "positives": 2 * patients,
        "units": {"lesion": 2 * patients, "breast": patients, "patient": patients},
        "metrics": {
            "false_positives": entry(0.876, 0.7, 1.0),
            "lesion": entry(0.543, 0.4, 0.6),
            "breast": entry(0.654, 0.5, 0.7),
            "patient": entry(0.654, 0.5, 0.7),
        },
    }
    if words:
        made["metrics"] |= {
            "false_positives_difference": entry(-0.111, -0.2, 0.1),
            "false_positives_ratio": entry(0.888, 0.7, 1.1),
            "lesion_difference": entry(-0.222, -0.3, -0.1),
        }
        made["words"] = {
            "false_positives": "no difference shown",
            "sensitivity": "lower",
            "sentence": "It fell.",
        }
    return made


def summary(home: int = 40, there: int = 40) -> dict:
    return make_summary("detection") | {
        "thresholds": {
            "points": [
                {
                    "volumes": "all volumes",
                    "rate": 2.0,
                    "metrics": {
                        "threshold": entry(0.000123456, 0.0001, 0.0002),
                        "lesion": entry(0.75, 0.7, 0.8),
                        "breast": entry(0.85, 0.8, 0.9),
                        "patient": {"value": None, "undefined_reason": "no lesion among these volumes"},
                    },
                }
            ],
            "units": {"lesion": 40, "breast": 20, "patient": 3},
            "note": "How it was made.",
            "warnings": ["Few patients."],
        },
        "carried_threshold": {
            "column": "vendor",
            "reference": "A",
            "rate": 1.0,
            "threshold": entry(0.1234567, 0.1, 0.2),
            "rows": {"A": row(home, words=False), "B": row(there), "C": row(60)},
            "resamples": 1000,
            "note": "How it was made.",
            "warnings": [],
        },
    }


def said(section) -> str:
    parts = [section.lead]
    for block in section.blocks:
        for line in getattr(block, "rows", []):
            parts += [f"{cell.text} {cell.sub}" for cell in line]
        parts += [f"{name} {cell.text} {cell.sub}" for name, cell in getattr(block, "items", [])]
        parts.append(str(getattr(block, "text", "")))
    return "\n".join(parts)


def test_thresholds_have_four_digits_and_three_sensitivities():
    text = said(thresholds(prepare(summary()), {}))
    assert "0.0001235" in text and "[0.0001, 0.0002]" in text
    assert "at most 2" in text and "no lesion among these volumes" in text and "Few patients." in text
    assert "<5 patients" in text and "40 lesions in volumes" in text


def test_the_carried_threshold_is_shown_with_its_words():
    text = said(carried_threshold(prepare(summary()), {}))
    for words in ("0.1235", "at most 1 false positive per volume", "set here", "It fell.", "lower"):
        assert words in text


def test_a_part_of_few_patients_is_withheld_with_its_words():
    text = said(carried_threshold(prepare(summary(there=3)), {}))
    assert "fewer than 5 patients" in text
    assert text.count("It fell.") == 1, "the words of the other part alone"
    rows = prepare(summary(there=3)).data["carried_threshold"]["rows"]
    assert rows["B"]["cases"] == "<5" and "units" not in rows["A"], "exact sizes would tell the small one"


def test_where_the_reference_is_withheld_no_difference_tells_its_value():
    made = prepare(summary(home=3)).data["carried_threshold"]["rows"]
    assert all("words" not in one for one in made.values())
    assert not any(
        "difference" in name or "ratio" in name for one in made.values() for name in one["metrics"]
    )
    text = said(carried_threshold(prepare(summary(home=3)), {}))
    assert "It fell." not in text and "-0.222" not in text


@pytest.mark.parametrize(
    "odd", [None, 3, "text", [], [1], {"points": 3, "rows": []}, {"points": [1], "rows": {"A": 3}}]
)
def test_odd_parts_are_left_out(odd):
    data = prepare(
        json.loads(json.dumps(make_summary("detection") | {"thresholds": odd, "carried_threshold": odd}))
    )
    assert thresholds(data, {}) is None or isinstance(odd, dict)
    assert carried_threshold(data, {}) is None or isinstance(odd, dict)
