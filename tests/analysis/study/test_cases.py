"""Single cases of a leaderboard: recall by class, reliability, and the hardest cases without their names."""

from __future__ import annotations

import numpy as np


def test_reliability_and_recall(mri_summary):
    curve = mri_summary.of("reliability", method="clinical")
    assert curve["cases"].sum() == 190 and curve["predicted"].is_monotonic_increasing and len(curve) == 5
    assert np.ptp(curve["prevalence"]) == 0
    recall = mri_summary.of("recall").set_index("method")
    assert np.allclose(recall["gap"], recall["sensitivity"] - recall["specificity"])


def test_the_recall_of_a_class_has_one_interval_on_the_page(mri_summary):
    name = mri_summary.headline["tasks"]["response"]["board"]
    board = mri_summary.of("leaderboard", task="response", board=name).set_index("method")
    recall = mri_summary.of("recall").set_index("method")
    for metric in ("sensitivity", "specificity"):
        for end in ("", "_lo", "_hi"):
            assert np.allclose(recall[f"{metric}{end}"], board.loc[recall.index, f"{metric}{end}"])


def test_hardest_cases_are_the_hardest_and_have_no_name(mri_summary):
    table = mri_summary.of("hardest", task="segmentation", why="hardest")
    assert table["mean"].is_monotonic_increasing and len(table) == 10
    assert set(mri_summary.of("hardest", task="segmentation")["why"]) == {"hardest", "small", "clip"}
    assert table["case"].str.startswith("h-").all()
