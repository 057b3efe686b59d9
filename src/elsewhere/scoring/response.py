"""Pathologic complete response (MRI-05 to MRI-07): one probability per patient, compared with `pcr`.

Performance is balanced accuracy; fairness is 1 - the mean equalised-odds disparity over age, menopausal
status and breast density; the combined score weighs the two. The rules in which the paper and its code
differ (>= or > one half, constant predictions, groups of one class, unknown status, the cut) come from the
protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort.label_scheme import RESPONSES
from elsewhere.predictions.scales import ORDINAL_REASON
from elsewhere.protocols import FairnessRules, Protocol
from elsewhere.scoring.binary import BinaryEvaluator, ProbabilityRules, binary_spec, judge
from elsewhere.scoring.case_table import (
    PROBABILITY_KIND,
    CaseTable,
    check_threshold,
    count_cases,
    join_probabilities,
    predictions_from_scores,
    reversed_warning,
)
from elsewhere.scoring.curves import probability_curves
from elsewhere.scoring.flow import participant_flow
from elsewhere.scoring.groups import GroupCodes, fairness_codes
from elsewhere.scoring.labels import OUTCOME_WORDS, Truth, need_truth, read_truth
from elsewhere.scoring.task import ScoreOptions, Scores, StudyMetrics, Task, tasks
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.fairness.disparity import Disparity
from elsewhere.statistics.fairness.group_scores import EqualisedOdds, combined_score, fairness_score
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions import Predictions

CLASS_NAMES = ("non-pCR", "pCR")
PERFORMANCE_METRICS = ("balanced_accuracy", "auroc", "sensitivity", "specificity", "nll", "brier")
CONSTANT = "The prediction is constant"
CONSTANT_REASON = (
    "constant prediction: every patient gets the same decision, which this protocol calls invalid"
)


def response_specs(
    rules: FairnessRules, *, fairness_weight: float, nll_epsilon: float = 2.0**-52
) -> tuple[MetricSpec, ...]:
    """List the metrics of the task response, in the order of the report.

    Fairness may fall below 0: a disparity of TPR and FPR ranges reaches 2 unless the rules cut it.

    Args:
        rules: The protocol's rules of fairness.
        fairness_weight: The weight of fairness in the combined score, 0 to 1.
        nll_epsilon: The smallest probability that the negative log-likelihood takes.

    Returns:
        The specifications.

    Example:
        >>> [spec.name for spec in response_specs(FairnessRules(), fairness_weight=0.5)][-2:]
        ['fairness', 'combined']
    """
    lowest = 0.0 if rules.cut_mean_disparity_to_one else -1.0
    fairness = MetricSpec(
        name="fairness",
        label="Fairness (1 - equalised-odds disparity)",
        higher_is_better=True,
        kind=MetricKind.RANGE,
        interval=IntervalMethod.PERCENTILE,
        lower_bound=lowest,
        worst=lowest,
    )
    worst = fairness_weight * lowest
    combined = replace(
        fairness,
        name="combined",
        label=f"Combined (fairness weight {fairness_weight:g})",
        kind=MetricKind.RANGE if fairness_weight > 0 else MetricKind.COMPOSITE,
        lower_bound=worst,
        worst=worst,
    )
    performance = tuple(
        binary_spec(name, nll_epsilon=nll_epsilon, primary=name == "balanced_accuracy")
        for name in PERFORMANCE_METRICS
    )
    return (*performance, fairness, combined)


class ResponseEvaluator(Evaluator):
    """Balanced accuracy, AUROC, recall per class, fairness and combined score under patient weights.

    Args:
        binary: The metrics of the probability.
        groups: The groups by each fairness variable.
        rules: The protocol's rules of fairness.
        fairness_weight: The weight of fairness in the combined score, 0 to 1.
        invalid: Makes every metric undefined: a constant prediction, where the protocol says so (MRI-05). It
            is a property of the submission, not of a resample or a group that happens to have one decision.
    """

    def __init__(
        self,
        *,
        binary: BinaryEvaluator,
        groups: Sequence[GroupCodes],
        rules: FairnessRules,
        fairness_weight: float = 0.5,
        invalid: bool = False,
    ) -> None:
        self.binary, self.groups, self.rules = binary, tuple(groups), rules
        self.fairness_weight, self.invalid = fairness_weight, invalid
        self.cluster_of_case, self.n_clusters = binary.cluster_of_case, binary.n_clusters
        self.specs = response_specs(rules, fairness_weight=fairness_weight, nll_epsilon=binary.nll_epsilon)
        self._odds: EqualisedOdds | None = None

    @property
    def decision(self) -> npt.NDArray[np.bool_]:
        """Whether each case is called positive."""
        return self.binary.judged[0].decision

    @property
    def odds(self) -> EqualisedOdds:
        """The equalised-odds disparities under weights; computed at first use."""
        if self._odds is None:
            self._odds = EqualisedOdds(
                self.cluster_of_case,
                self.binary.label,
                self.decision,
                self.groups,
                n_clusters=self.n_clusters,
                rules=self.rules,
            )
        return self._odds

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        rows = weights.shape[0]
        if self.invalid:
            return np.full((rows, len(self.specs)), np.nan)
        performance = self.binary.evaluate(weights)
        fairness = fairness_score(self.odds(weights), self.rules) if self.groups else np.full(rows, np.nan)
        combined = combined_score(performance[:, 0], fairness, self.fairness_weight)
        return np.concatenate([performance, fairness[:, None], combined[:, None]], axis=1)

    def disparities(self) -> dict[str, float]:
        """Compute TPR range + FPR range of each variable over all patients.

        Returns:
            The disparity by the name of the variable; NaN where undefined.
        """
        values = self.odds(np.ones((1, self.n_clusters), dtype=np.uint16))[0] if self.groups else []
        return {group.variable: float(value) for group, value in zip(self.groups, values, strict=True)}

    def _with(
        self, binary: BinaryEvaluator, groups: Sequence[GroupCodes], *, invalid: bool
    ) -> ResponseEvaluator:
        return ResponseEvaluator(
            binary=binary,
            groups=groups,
            rules=self.rules,
            fairness_weight=self.fairness_weight,
            invalid=invalid,
        )

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> ResponseEvaluator:
        groups = [group.take(case_mask) for group in self.groups]
        return self._with(self.binary.subset(case_mask), groups, invalid=self.invalid)

    def stack(self, other: Evaluator) -> ResponseEvaluator:
        if not isinstance(other, ResponseEvaluator) or [g.variable for g in self.groups] != [
            g.variable for g in other.groups
        ]:
            raise TypeError("two models are stacked only when both were judged on the same variables")
        groups = [
            GroupCodes(a.variable, a.names, np.concatenate([a.codes, b.codes]), a.missing + b.missing, a.note)
            for a, b in zip(self.groups, other.groups, strict=True)
        ]
        both = self.binary.stack(other.binary)
        return self._with(both, groups, invalid=self.invalid or other.invalid)

    def ranked(self) -> ResponseEvaluator:
        return self._with(self.binary.ranked(), self.groups, invalid=self.invalid)

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        if self.invalid or metric in {"fairness", "combined"}:
            return None
        return self.binary.closed_form(metric)

    def undefined_reasons(self) -> dict[str, str]:
        if self.invalid:
            return {spec.name: CONSTANT_REASON for spec in self.specs}
        reasons = self.binary.undefined_reasons()
        if not self.groups:
            reasons["fairness"] = f"the cohort has none of {', '.join(self.rules.variables)}"
        elif not np.isfinite(list(self.disparities().values())).any():
            reasons["fairness"] = "no variable has groups with positives and negatives"
        if self.fairness_weight > 0 and "fairness" in reasons:
            reasons["combined"] = f"fairness is undefined: {reasons['fairness']}"
        elif self.fairness_weight < 1 and "balanced_accuracy" in reasons:
            reasons["combined"] = f"balanced accuracy is undefined: {reasons['balanced_accuracy']}"
        return reasons

    def case_counts(self) -> dict[str, tuple[int, int]]:
        n = self.n_cases
        if self.invalid:
            return {spec.name: (0, n) for spec in self.specs}
        counts = self.binary.case_counts()
        return counts | {"fairness": (n, 0), "combined": (n, 0)}


class ResponseTask(Task):
    """Pathologic complete response: a case is a patient before treatment, and the cluster is the patient."""

    name = "response"
    title = "Response to treatment"
    units = "patients' scans"
    target = "pcr"
    truth_column = "pcr"
    label_scheme = RESPONSES
    study_protocol = "mamamia-paper"
    compares_groups = True
    stored_columns = ("pcr", "probability")
    study_metrics = StudyMetrics(
        main="auroc",
        shown=("combined", "fairness", "balanced_accuracy", "auroc", "sensitivity", "specificity"),
        paired=("balanced_accuracy", "auroc"),
        grouped=("balanced_accuracy", "auroc", "sensitivity", "specificity"),
        baseline="random",
    )

    def threshold_inclusive(self, protocol: Protocol) -> bool:
        return protocol.response.threshold_inclusive

    def metrics(self, protocol: Protocol) -> tuple[MetricSpec, ...]:
        return response_specs(
            protocol.fairness,
            fairness_weight=protocol.fairness.fairness_weight,
            nll_epsilon=protocol.classification.nll_epsilon,
        )

    def score(
        self, cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
    ) -> Scores:
        truth = read_truth(cohort.cases, "pcr", words=OUTCOME_WORDS, normal_words=frozenset())
        need_truth(truth.label, column="pcr", names=CLASS_NAMES, truth=truth)
        joined = join_probabilities(
            cohort,
            predictions,
            group_by=(
                *options.group_by,
                *(v for v in protocol.fairness.variables if v in cohort.cases.columns),
            ),
            normalise_ids=options.normalise_ids,
        )
        return _finish(joined, truth, protocol, options)

    def from_table(
        self,
        cohort: Cohort,
        table: pd.DataFrame,
        events: pd.DataFrame | None,
        protocol: Protocol,
        options: ScoreOptions,
    ) -> Scores:
        return self.score(cohort, predictions_from_scores(table), protocol, options)

    def partition(self, scores: Scores) -> Clusters:
        return Clusters.from_table(scores.cases, positive=scores.cases["pcr"].to_numpy(dtype=float))

    def evaluator(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> ResponseEvaluator:
        cases, protocol = scores.cases, scores.protocol
        groups, _ = fairness_codes(cases, protocol.fairness)
        binary = BinaryEvaluator(
            label=cases["pcr"].to_numpy(dtype=np.int8),
            probability=cases["probability"].to_numpy(dtype=np.float64),
            cluster_of_case=partition.cluster_of_case,
            n_clusters=partition.n_clusters,
            metrics=PERFORMANCE_METRICS,
            rules=ProbabilityRules(
                threshold=_threshold(protocol, options),
                inclusive=protocol.response.threshold_inclusive,
                nll_epsilon=protocol.classification.nll_epsilon,
                bins=protocol.classification.bins,
                primary="balanced_accuracy",
                ordinal_reason=ORDINAL_REASON if PROBABILITY_KIND in cases.columns else None,
                class_names=CLASS_NAMES,
            ),
        )
        return ResponseEvaluator(
            binary=binary,
            groups=groups,
            rules=protocol.fairness,
            fairness_weight=_fairness_weight(protocol, options),
            invalid=protocol.response.constant_is_invalid
            and is_constant(binary.judged[0].decision, np.isfinite(binary.probability)),
        )

    def disparity(self, scores: Scores, evaluator: Evaluator, *, headline: str) -> Disparity:
        """Compare the equalised odds of the decisions (MRI-06).

        Args:
            scores: The scores.
            evaluator: Their metrics.
            headline: The name of the metric that leads the report.

        Returns:
            The disparity of the equalised odds; that of the headline where there are no decisions.
        """
        truth, decision = self.truth(scores), getattr(getattr(evaluator, "base", evaluator), "decision", None)
        if truth is None or decision is None:
            return super().disparity(scores, evaluator, headline=headline)
        return Disparity.equalised_odds(
            evaluator.cluster_of_case,
            truth,
            decision,
            n_clusters=evaluator.n_clusters,
            rules=scores.protocol.fairness,
        )

    def curves(
        self, scores: Scores, partition: Clusters, stream: Any, options: ScoreOptions
    ) -> dict[str, Any]:
        return probability_curves(
            self.evaluator(scores, partition, options).binary,
            stream,
            answered=(scores.cases["status"] == "scored").to_numpy(dtype=bool),
            level=scores.protocol.interval.level,
            threads=options.threads,
        )

    def details(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> dict[str, Any]:
        evaluator = self.evaluator(scores, partition, options)
        truth, decided = evaluator.binary.label == 1, evaluator.decision
        disparities = evaluator.disparities()
        out: dict[str, Any] = {
            "threshold": _threshold(scores.protocol, options),
            "threshold_inclusive": scores.protocol.response.threshold_inclusive,
            "fairness_weight": evaluator.fairness_weight,
            "confusion": {
                "true_positives": int((truth & decided).sum()),
                "false_negatives": int((truth & ~decided).sum()),
                "false_positives": int((~truth & decided).sum()),
                "true_negatives": int((~truth & ~decided).sum()),
            },
            "equalised_odds_disparity": {
                name: value if np.isfinite(value) else None for name, value in disparities.items()
            },
            "constant_prediction": is_constant(decided, np.isfinite(evaluator.binary.probability)),
        }
        if not evaluator.invalid:
            out["chance_test"] = (
                chance_test(truth, decided).to_dict()
                if truth.any() and not truth.all()
                else {"undefined_reason": "both classes are needed"}
            )
        return out


def is_constant(decision: npt.NDArray[np.bool_], answered: npt.NDArray[np.bool_]) -> bool:
    """Check whether everybody who was answered got the same decision.

    Args:
        decision: Whether each case is called positive.
        answered: True for the cases with a usable probability.

    Returns:
        True for one decision; False where nobody was answered.

    Example:
        >>> is_constant(np.array([True, True, False]), np.array([True, True, False]))
        True
    """
    given = decision[answered]
    return bool(given.size) and bool((given == given[0]).all())


def _threshold(protocol: Protocol, options: ScoreOptions) -> float:
    return check_threshold(protocol.response.threshold if options.threshold is None else options.threshold)


def _fairness_weight(protocol: Protocol, options: ScoreOptions) -> float:
    return protocol.fairness.fairness_weight if options.fairness_weight is None else options.fairness_weight


def _finish(joined: CaseTable, truth: Truth, protocol: Protocol, options: ScoreOptions) -> Scores:
    known = truth.label >= 0
    cases = joined.cases[known].reset_index(drop=True)
    label = truth.label[known]
    cases["pcr"] = label
    judged = judge(
        label,
        cases["probability"],
        threshold=_threshold(protocol, options),
        inclusive=protocol.response.threshold_inclusive,
        nll_epsilon=protocol.classification.nll_epsilon,
    )
    cases["decision"] = judged.decision.astype(np.int8)
    if PROBABILITY_KIND not in cases.columns:
        cases["nll"], cases["brier"] = judged.nll, judged.brier
    warnings = [*joined.warnings, *need_truth(truth.label, column="pcr", names=CLASS_NAMES, truth=truth)]
    left_out: list[tuple[str, int, str]] = []
    if truth.n_others:
        left_out.append(
            ("cohort cases with a known response", truth.n_others, f"pcr is {truth.others_text()}")
        )
        warnings.append(f"{truth.n_others} cases have no known response and were left out.")
    groups, notes = fairness_codes(cases, protocol.fairness)
    warnings += [*notes, *(f"{group.variable}: {group.note}" for group in groups if group.note)]
    turned = reversed_warning(label, cases)
    if turned:
        warnings.append(turned)
    answered = (cases["status"] == "scored").to_numpy(dtype=bool)
    constant = is_constant(judged.decision, answered)
    if constant:
        word = "pCR" if judged.decision[answered][0] else "non-pCR"
        invalid = (
            "invalid under this protocol"
            if protocol.response.constant_is_invalid
            else "balanced accuracy is 0.5"
        )
        warnings.append(f"{CONSTANT}: everybody is called {word}; {invalid}.")
    counts = count_cases(cases, label, n_extra=joined.n_extra) | {"left_out": truth.n_others}
    return Scores(
        task="response",
        protocol=protocol,
        cases=cases,
        counts=counts,
        flow=participant_flow(
            joined.flow, cohort_cases=len(joined.cases), status=cases["status"], left_out=left_out
        ),
        warnings=tuple(dict.fromkeys(warnings)),
        extras={
            "threshold": _threshold(protocol, options),
            "fairness_weight": _fairness_weight(protocol, options),
            "constant_prediction": constant,
            **joined.extras,
        },
    )


@dataclass(frozen=True, kw_only=True)
class ChanceTest:
    """Balanced accuracy compared with classifiers that guess (MRI-09); p = (b + 1)/(B + 1) (ST-12).

    Args:
        balanced_accuracy: The observed value.
        chance_mean: The mean of the guessing classifiers.
        chance_upper: Their upper quantile, by default 0.95.
        p: The one-sided p-value.
        classifiers: How many guessing classifiers were drawn.
        kind: How they guess, in words.
    """

    balanced_accuracy: float
    chance_mean: float
    chance_upper: float
    p: float
    classifiers: int
    kind: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as a mapping that json can hold.

        Returns:
            Every field by its name.
        """
        return {
            "balanced_accuracy": self.balanced_accuracy,
            "chance_mean": self.chance_mean,
            "chance_upper": self.chance_upper,
            "p": self.p,
            "classifiers": self.classifiers,
            "kind": self.kind,
        }


def chance_test(
    truth: npt.ArrayLike,
    decision: npt.ArrayLike,
    *,
    classifiers: int = 1000,
    rate: float = 0.5,
    level: float = 0.95,
    rng: np.random.Generator | None = None,
    key: str = "chance",
    seed: int = 42,
) -> ChanceTest:
    """Compare balanced accuracy with random classifiers that call pCR with probability `rate`.

    The number of true positives of such a classifier is binomial, so a thousand of them are two draws.

    Args:
        truth: The outcome of each case; above 0 is pCR.
        decision: The decision for each case; above 0 is pCR.
        classifiers: How many random classifiers are drawn.
        rate: The probability with which they call pCR.
        level: The quantile of their balanced accuracy that is reported.
        rng: The random generator; None makes one from `key` and `seed`.
        key: The name of the random stream.
        seed: The seed of the random stream.

    Returns:
        The comparison.

    Raises:
        ValueError: The truth lacks one of the classes.

    Example:
        >>> chance_test([0] * 20 + [1] * 20, [0] * 20 + [1] * 20).p < 0.01
        True
    """
    from elsewhere.statistics.bootstrap_weights import generator_for

    positive = np.asarray(truth) > 0
    decided = np.asarray(decision) > 0
    p, n = int(positive.sum()), int((~positive).sum())
    if p == 0 or n == 0:
        raise ValueError("the chance test needs both classes")
    observed = 0.5 * (decided[positive].mean() + (~decided[~positive]).mean())
    rng = rng or generator_for(key, seed, 9)
    random = 0.5 * (rng.binomial(p, rate, classifiers) / p + rng.binomial(n, 1.0 - rate, classifiers) / n)
    above = int((random >= observed - 1e-12).sum())
    return ChanceTest(
        balanced_accuracy=float(observed),
        chance_mean=float(random.mean()),
        chance_upper=float(np.quantile(random, level)),
        p=(above + 1) / (classifiers + 1),
        classifiers=classifiers,
        kind=f"random classifiers that call pCR with probability {rate:g}",
    )


tasks.add("response", ResponseTask())
