"""ST-05, ST-06: the five words, when they flip, and how several claims become one."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.statistics.differences import Difference
from elsewhere.statistics.verdict import Verdict, assess_claim, judge, not_assessed, overall


def difference(lo, hi, **changes):
    base = {
        "metric": "auroc", "here": 0.8, "reference": 0.82, "difference": (lo + hi) / 2, "lo": lo, "hi": hi,
        "se": (hi - lo) / 3.29, "alpha": 0.05, "method": "m", "reference_source": "r",
    }  # fmt: skip
    return Difference(**(base | changes))


def test_exactly_five_words():
    assert {str(v) for v in Verdict} == {"EQUIVALENT", "BELOW", "ABOVE", "INCONCLUSIVE", "NOT ASSESSED"}


@pytest.mark.parametrize(
    ("lo", "hi", "word", "non_inferior"),
    [
        (-0.04, 0.04, "EQUIVALENT", True),
        (-0.05, 0.04, "INCONCLUSIVE", False),  # touching is not inside
        (-0.04, 0.05, "INCONCLUSIVE", True),
        (-0.20, -0.06, "BELOW", False),
        (-0.20, -0.05, "INCONCLUSIVE", False),
        (0.06, 0.20, "ABOVE", True),
        (0.04, 0.20, "INCONCLUSIVE", True),
        (-0.20, 0.20, "INCONCLUSIVE", False),
    ],
)
def test_words_at_margin_005(lo, hi, word, non_inferior):
    judged = judge(lo, hi, 0.05)
    assert (str(judged.word), judged.non_inferior) == (word, non_inferior)


def test_lower_is_better_turns_the_interval_round():
    assert judge(0.06, 0.2, 0.05, higher_is_better=False).word is Verdict.BELOW
    assert judge(-0.2, -0.06, 0.05, higher_is_better=False).word is Verdict.ABOVE
    assert judge(-0.2, 0.04, 0.05, higher_is_better=False).non_inferior
    assert not judge(-0.04, 0.2, 0.05, higher_is_better=False).non_inferior


@given(a=st.floats(-0.5, 0.5), width=st.floats(1e-3, 0.5), margin=st.floats(0.005, 0.6), better=st.booleans())
def test_the_word_changes_at_flips_at_and_nowhere_before(a, width, margin, better):
    judged = judge(a, a + width, margin, higher_is_better=better)
    assert judged.flips_at is not None
    assume(abs(judged.flips_at - margin) > 1e-6 and judged.flips_at > 1e-5)
    beyond = judged.flips_at * (1 + 1e-7) if margin < judged.flips_at else judged.flips_at * (1 - 1e-7)
    assert judge(a, a + width, beyond, higher_is_better=better).word is judged.flips_to
    between = margin + 0.999 * (judged.flips_at - margin)
    assert judge(a, a + width, between, higher_is_better=better).word is judged.word
    assert judge(a, a + width, judged.non_inferior_from + 1e-6, higher_is_better=better).non_inferior


def test_bad_margins_and_intervals():
    for margin in (0.0, -0.1, math.nan, math.inf):
        with pytest.raises(UserError, match="margin"):
            judge(-0.1, 0.1, margin)
    with pytest.raises(UserError, match="wrong order"):
        judge(0.1, -0.1, 0.05)
    judged = judge(math.nan, math.nan, 0.05)
    assert judged.word is Verdict.NOT_ASSESSED and judged.reason and judged.flips_at is None


def test_claim_has_the_shape_of_the_summary():
    claim = assess_claim(difference(-0.03, 0.03), margin=0.05, margin_source="claim.toml")
    out = json.loads(json.dumps(claim.to_dict()))
    wanted = {
        "metric", "claimed", "here", "difference", "lo", "hi", "alpha", "margin", "margin_source", "word",
        "non_inferior", "smallest_detectable_drop", "smallest_provable_margin", "flips_at", "out_of_reach",
    }  # fmt: skip
    assert wanted <= set(out)
    assert out["word"] == "EQUIVALENT" and out["passes"] and not out["out_of_reach"]
    assert out["smallest_detectable_drop"] == pytest.approx((1.6448536 + 0.8416212) * 0.06 / 3.29, rel=1e-3)


def test_out_of_reach_is_said():
    claim = assess_claim(difference(-0.2, 0.2), margin=0.05)
    assert claim.word is Verdict.INCONCLUSIVE and claim.out_of_reach
    assert "EQUIVALENT was out of reach" in claim.power_sentence


def test_prevalence_moving_metrics_are_not_assessed_unless_standardised():
    d = difference(-0.01, 0.01, metric="auprc", moves_with_prevalence=True)
    claim = assess_claim(d, margin=0.05)
    assert claim.word is Verdict.NOT_ASSESSED and "prevalence" in claim.reason and not claim.non_inferior
    assert assess_claim(d, margin=0.05, standardised=True).word is Verdict.EQUIVALENT


EQ, AB, BE = (-0.01, 0.01), (0.1, 0.2), (-0.2, -0.1)
OPEN_BAD, OPEN_FINE = (-0.1, 0.1), (-0.01, 0.1)


@pytest.mark.parametrize(
    ("intervals", "aim", "word", "code"),
    [
        ([EQ], "equivalence", "EQUIVALENT", 0),
        ([AB], "equivalence", "ABOVE", 0),
        ([EQ, AB], "equivalence", "EQUIVALENT", 0),
        ([EQ, BE], "equivalence", "BELOW", 2),
        ([None, BE], "equivalence", "BELOW", 2),
        ([EQ, None], "equivalence", "NOT ASSESSED", 4),
        ([OPEN_BAD, None], "equivalence", "NOT ASSESSED", 4),
        ([EQ, OPEN_BAD], "equivalence", "INCONCLUSIVE", 3),
        ([EQ, OPEN_FINE], "equivalence", "INCONCLUSIVE", 3),
        ([EQ, OPEN_FINE], "non-inferiority", "INCONCLUSIVE", 0),
        ([EQ, OPEN_BAD], "non-inferiority", "INCONCLUSIVE", 3),
        ([EQ, EQ], "non-inferiority", "EQUIVALENT", 0),
        ([], "equivalence", "NOT ASSESSED", 4),
    ],
)
def test_all_primary_claims_must_pass(intervals, aim, word, code):
    claims = [
        not_assessed("auprc", "no such metric", margin=0.05)
        if i is None
        else assess_claim(difference(*i), margin=0.05, aim=aim)
        for i in intervals
    ]
    verdict = overall(claims)
    assert (str(verdict.word), verdict.exit_code) == (word, code)
    assert json.loads(json.dumps(verdict.to_dict()))["word"] == word


def test_descriptive_claims_do_not_decide():
    claims = [
        assess_claim(difference(*EQ), margin=0.05),
        assess_claim(difference(*BE), margin=0.05, primary=False, group="density D"),
    ]
    verdict = overall(claims)
    assert verdict.word is Verdict.EQUIVALENT and len(verdict.to_dict()["claims"]) == 2


def test_unknown_aim():
    with pytest.raises(UserError, match="aim"):
        assess_claim(difference(*EQ), margin=0.05, aim="superiority")
