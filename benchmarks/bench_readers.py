"""A reader study of 2 treatments x 10 readers x 2,000 cases, against leaving out each case with scikit-learn.

The peer is what a user would write: `roc_auc_score` without each case in turn for every reader and treatment, then the
covariance with numpy and the same mean squares. It is timed on the cases of one reader and scaled to all 20 (its cost
is the same for each). Ours computes all values without a case in one sorted pass per reader. Both start from ratings
in memory: reading a workbook takes longer than either part of the analysis.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from elsewhere.phantom.reader_study import ReaderWorld, draw_reader_study
from elsewhere.scoring.reader_study import figure_matrix, find_figure
from elsewhere.statistics.mrmc import RandomFactors, analyse_readers

READERS, NORMAL, DISEASED = 10, 1200, 800
BAR = 100.0


def _ours(study):
    return analyse_readers(figure_matrix(study, find_figure("auroc", "ROC")))


def _scores(study, pair):
    """The ratings of one reader as arrays: what the peer starts from."""
    marks = study.marks[pair]
    score = np.empty(study.truth.n_cases)
    score[marks.case] = marks.score
    return (study.truth.n_lesions > 0).astype(int), score


def _peer(label, score, cases: int):
    from sklearn.metrics import roc_auc_score

    return np.array([roc_auc_score(np.delete(label, at), np.delete(score, at)) for at in range(cases)])


def run(quick: bool = False) -> dict:
    """Side by side in one run."""
    world = ReaderWorld(paradigm="ROC", readers=READERS, normal=NORMAL, diseased=DISEASED)
    study = draw_reader_study(world, np.random.default_rng(1))
    made, cases = _ours(study), NORMAL + DISEASED
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        made = _ours(study)
        seconds.append(time.perf_counter() - start)
    label, score = _scores(study, study.pairs()[0])
    few = 200 if quick else cases
    _peer(label, score, 5)
    start = time.perf_counter()
    without = _peer(label, score, few)
    peer = (time.perf_counter() - start) * 2 * READERS * cases / few
    values, theirs = made.study.values, np.nan
    if not quick:
        theirs = (cases - 1) / cases * float(((without - without.mean()) ** 2).sum())
        assert abs(theirs - made.study.covariance[0, 0]) < 1e-12
    test = made.analyses[RandomFactors.READERS_AND_CASES].test
    return {
        "job": "reader study, 2 treatments x 10 readers x 2,000 cases, jackknife and Obuchowski-Rockette analysis",
        "peer": "sklearn.metrics.roc_auc_score without each case, numpy",
        "peer_seconds": peer,
        "ours_seconds": min(seconds),
        "ratio": peer / min(seconds),
        "bar": BAR,
        "notes": f"best of 5 rounds; the peer is {few} left-out cases of one reader, scaled to 20 readers and all cases; mean AUC "
        f"{values.mean():.4f}, F {test.f:.3f}; variance of the first reader's AUC ours {made.study.covariance[0, 0]:.3e}, peer {theirs:.3e}",
    }


if __name__ == "__main__":
    result = run()
    (Path(__file__).parent / "results").mkdir(exist_ok=True)
    (Path(__file__).parent / "results" / "bench_readers.json").write_text(json.dumps(result, indent=2))
    print(json.dumps(result, indent=2))
