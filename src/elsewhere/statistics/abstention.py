"""When a model should not answer: uncertainty scores, and what answering less would buy (US-32).

A score orders the cases from sure to unsure. Answering only the surest part (the coverage) has a risk: the
share of errors among the answered. The area under risk over coverage (AURC) is the mean risk over all
coverages. A score without any information has the plain error rate; the best possible score ranks every error
last. Cases of equal score have no order: their errors count as spread evenly over their positions, so that no
number here depends on the order of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from elsewhere.errors import UserError
from elsewhere.statistics.auroc import auroc

FloatArray = npt.NDArray[np.float64]


def _logits(logits: npt.ArrayLike) -> FloatArray:
    z = np.asarray(logits, dtype=np.float64)
    if z.ndim != 2 or z.shape[1] < 2:
        raise UserError(f"logits of shape {z.shape}", fix="Give one row per case and one column per class.")
    return z


def softmax_uncertainty(logits: npt.ArrayLike) -> FloatArray:
    """Compute how unsure a softmax is.

    Args:
        logits: The logits of each case, (cases, classes).

    Returns:
        1 - the largest class probability (US-18).

    Example:
        >>> softmax_uncertainty([[0.0, 0.0], [0.0, 50.0]]).round(3).tolist()
        [0.5, 0.0]
    """
    return np.asarray(1.0 - special.softmax(_logits(logits), axis=1).max(axis=1))


def energy_uncertainty(logits: npt.ArrayLike) -> FloatArray:
    """Compute the energy score of logits.

    Args:
        logits: The logits of each case, (cases, classes).

    Returns:
        -logsumexp of the logits (Liu 2020): high where all logits are low, whatever their difference.
    """
    return np.asarray(-special.logsumexp(_logits(logits), axis=1))


def _members(probability: npt.ArrayLike) -> FloatArray:
    p = np.asarray(probability, dtype=np.float64)
    if p.ndim != 2 or not p.size:
        raise UserError(f"members of shape {p.shape}", fix="Give one row per member and one column per case.")
    if not ((p >= 0) & (p <= 1)).all():
        raise UserError("a member's probability is missing or outside [0, 1]")
    return p


def binary_entropy(probability: npt.ArrayLike) -> FloatArray:
    """Compute the entropy of a two-class answer.

    Args:
        probability: The probability of the positive class, one per case.

    Returns:
        Entropy in nats of a two-class answer; 0 at 0 and 1, log 2 at a half.

    Example:
        >>> binary_entropy([0.0, 0.5, 1.0]).round(4).tolist()
        [0.0, 0.6931, 0.0]
    """
    p = np.asarray(probability, dtype=np.float64)
    return np.asarray(special.entr(p) + special.entr(1.0 - p))


def ensemble_entropy(members: npt.ArrayLike) -> FloatArray:
    """Compute the entropy of an ensemble's mean probability.

    Args:
        members: The probabilities of each member of an ensemble, (members, cases).

    Returns:
        Entropy of the members' mean probability (members, cases): all the uncertainty there is.
    """
    return binary_entropy(_members(members).mean(axis=0))


def ensemble_variance(members: npt.ArrayLike) -> FloatArray:
    """Compute how much the members of an ensemble disagree.

    Args:
        members: The probabilities of each member of an ensemble, (members, cases).

    Returns:
        Variance of the members' probabilities: how much the trainings disagree, 0 for one member.

    Example:
        >>> ensemble_variance([[0.2, 0.5], [0.4, 0.5]]).round(2).tolist()
        [0.01, 0.0]
    """
    return np.asarray(_members(members).var(axis=0))


@dataclass(frozen=True, kw_only=True)
class RiskCoverage:
    """Risk after answering the k surest cases, k = 1..n, and its mean over k (AURC).

    Args:
        coverage: The share of cases that are answered, k / n, rising to 1.
        risk: The share of errors among them.
        error_rate: The risk when every case is answered.
        aurc: The mean risk over all coverages.
        excess: The AURC above that of the best order of the same errors.
        detection: The AUROC with which the score separates errors from right answers; NaN where all answers
            are right, or all wrong.
    """

    coverage: FloatArray
    risk: FloatArray
    error_rate: float
    aurc: float
    excess: float
    detection: float

    def risk_at(self, coverage: float) -> float:
        """Look up the risk at a coverage.

        Args:
            coverage: The share of cases that are answered, above 0 and up to 1.

        Returns:
            Risk among the surest `coverage` of the cases: the smallest whole number of cases that reaches it.
            NaN without cases.

        Raises:
            UserError: If the coverage is not above 0 and at most 1.
        """
        if not 0 < coverage <= 1:
            raise UserError(
                f"a coverage of {coverage:g}", fix="Use a share above 0 and up to 1, such as 0.8."
            )
        if not self.risk.size:
            return math.nan
        return float(self.risk[max(1, math.ceil(coverage * self.risk.size - 1e-9)) - 1])

    def at(self, coverages: npt.ArrayLike) -> FloatArray:
        """Look up the risk at several coverages, for curves on a common grid.

        Args:
            coverages: Shares of cases that are answered, each above 0 and up to 1.

        Returns:
            The risk at each coverage.
        """
        return np.array([self.risk_at(float(c)) for c in np.asarray(coverages, dtype=float).ravel()])


def risk_coverage(error: npt.ArrayLike, uncertainty: npt.ArrayLike) -> RiskCoverage:
    """Compute the risk of the surest cases at every coverage; ties share their errors.

    Args:
        error: 1 where the answer is wrong, else 0, one per case.
        uncertainty: How unsure the model is, one per case; higher is less sure.

    Returns:
        The curve.

    Raises:
        UserError: If both do not have the same length, an error is neither 0 nor 1, or an uncertainty is
            missing.

    Example:
        >>> made = risk_coverage([0, 0, 1, 1], [0.1, 0.2, 0.3, 0.4])
        >>> made.risk_at(0.5), made.error_rate, made.detection
        (0.0, 0.5, 1.0)
    """
    wrong = np.asarray(error, dtype=np.float64).ravel()
    unsure = np.asarray(uncertainty, dtype=np.float64).ravel()
    if wrong.size != unsure.size:
        raise UserError(f"{wrong.size} answers with {unsure.size} uncertainties do not pair up")
    if not np.isin(wrong, (0.0, 1.0)).all():
        raise UserError("an error is neither 0 nor 1")
    if np.isnan(unsure).any():
        raise UserError("an uncertainty is missing", fix="Leave out cases without a score, and count them.")
    n = wrong.size
    if n == 0:
        empty = np.zeros(0)
        return RiskCoverage(
            coverage=empty,
            risk=empty,
            error_rate=math.nan,
            aurc=math.nan,
            excess=math.nan,
            detection=math.nan,
        )
    order = np.argsort(unsure, kind="stable")
    group = np.unique(unsure[order], return_inverse=True)[1].ravel()
    share = np.bincount(group, weights=wrong[order]) / np.bincount(group)
    k = np.arange(1, n + 1)
    risk = np.cumsum(share[group]) / k
    errors = int(wrong.sum())
    best = np.maximum(0, k - (n - errors)) / k
    return RiskCoverage(
        coverage=k / n,
        risk=risk,
        error_rate=errors / n,
        aurc=float(risk.mean()),
        excess=float(risk.mean() - best.mean()),
        detection=auroc(wrong, unsure),
    )
