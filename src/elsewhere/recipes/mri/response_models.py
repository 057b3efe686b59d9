"""Models from tables of numbers to a probability of response: what the classical recipes share.

Classes weigh the same in every fit, and the chosen model's logits are shifted so that, out of fold, the mean
probability of responders is as far above one half as that of the others is below it: a decision at 0.5 is
then the balanced operating point of the training cases, as the challenge scores balanced accuracy at 0.5
(MRI-05). The shift changes no AUC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elsewhere.errors import TrainingError
from elsewhere.recipes.base import Job, RecipeCase, of_label

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
FOLDS = 5


class Model(Protocol):
    """A model that learns from a table and can be saved."""

    def fit(self, x: FloatArray, y: IntArray) -> Any:
        """Fit the model.

        Args:
            x: (cases, columns), NaN where a value is missing.
            y: 0 or 1 per case.

        Returns:
            The fitted model.
        """
        ...

    def logit(self, x: FloatArray) -> FloatArray:
        """Predict logits.

        Args:
            x: (cases, columns), NaN where a value is missing.

        Returns:
            (cases,).
        """
        ...

    def kept(self) -> dict[str, Any]:
        """Return the model for saved weights.

        Returns:
            Plain values and arrays, with its kind under 'kind'.
        """
        ...


class KeptModel(Protocol):
    """A model that was made from saved weights, and predicts."""

    @classmethod
    def from_kept(cls, kept: Mapping[str, Any]) -> KeptModel:
        """Make the model from saved weights.

        Args:
            kept: What `Model.kept` returned.

        Returns:
            The model, ready to predict.
        """
        ...

    def logit(self, x: FloatArray) -> FloatArray:
        """Predict logits.

        Args:
            x: (cases, columns), NaN where a value is missing.

        Returns:
            (cases,).
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model to choose among others; simpler ones come first, since the first wins a tie.

    Args:
        name: The name that the report gives it.
        make: Makes a fresh model from a seed.
    """

    name: str
    make: Callable[[int], Model]


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The candidate with the best out-of-fold AUC, fitted on all training cases.

    Args:
        model: The fitted model.
        name: The name of the candidate.
        inner_auc: Its out-of-fold AUC inside the training part; NaN where folds were not possible.
        shift: What is added to its logits.
        attempts: The out-of-fold AUC of every candidate, by name.
    """

    model: Model
    name: str
    inner_auc: float
    shift: float
    attempts: dict[str, float]

    def probability(self, x: FloatArray) -> FloatArray:
        """Predict probabilities of response.

        Args:
            x: (cases, columns), NaN where a value is missing.

        Returns:
            (cases,).
        """
        return sigmoid(self.model.logit(x) + self.shift)

    def kept(self) -> dict[str, Any]:
        """Return the model and its shift for saved weights.

        Returns:
            Plain values and arrays.
        """
        return {"model": self.model.kept(), "shift": self.shift}


@dataclass(frozen=True, kw_only=True)
class Applied:
    """A fitted model that was read from saved weights.

    Args:
        model: The model.
        shift: What is added to its logits.
    """

    model: KeptModel
    shift: float

    @classmethod
    def of(cls, kept: Mapping[str, Any], models: Mapping[str, type[KeptModel]]) -> Applied:
        """Make the model from saved weights.

        Args:
            kept: What `Fitted.kept` returned.
            models: The classes of models by the kind that they save.

        Returns:
            The model and its shift.
        """
        held = kept["model"]
        return cls(model=models[held["kind"]].from_kept(held), shift=float(kept["shift"]))

    def probability(self, x: FloatArray) -> FloatArray:
        """Predict probabilities of response.

        Args:
            x: (cases, columns), NaN where a value is missing.

        Returns:
            (cases,).
        """
        return sigmoid(self.model.logit(x) + self.shift)


def training_cases(job: Job) -> tuple[RecipeCase, ...]:
    """Return training and validation cases together, where the outcome is known.

    The classical recipes choose their model by folds inside these cases.

    Args:
        job: The job.

    Returns:
        The cases, with both outcomes among them.

    Raises:
        TrainingError: All known outcomes are the same, or none is known.
    """
    cases = of_label((*job.train, *job.validation))
    positives = sum(case.label for case in cases)
    if not 0 < positives < len(cases):
        raise TrainingError(
            f"{positives} of {len(cases)} training cases with a known outcome responded",
            fix="A response recipe needs both outcomes among its training cases.",
        )
    return cases


def choose(
    candidates: Sequence[Candidate], x: FloatArray, y: IntArray, groups: Sequence[str], *, seed: int
) -> Fitted:
    """Choose the candidate with the best out-of-fold AUC, and fit it on all cases.

    Folds split no group; with too few of a class for two folds, the first candidate is chosen. A candidate
    that gives everybody the same answer (a penalty that leaves nothing) is passed over: a constant prediction
    is invalid (MRI-05).

    Args:
        candidates: The models to choose from, simpler ones first.
        x: (cases, columns), NaN where a value is missing.
        y: 0 or 1 per case.
        groups: The group of each case.
        seed: Seed of the folds and the models.

    Returns:
        The chosen model with its shift.
    """
    fold_of = inner_folds(y, groups, seed=seed)
    attempts: dict[str, float] = {}
    held: dict[str, FloatArray] = {}
    if fold_of is not None:
        for candidate in candidates:
            held[candidate.name] = _out_of_fold(candidate, x, y, fold_of, seed=seed)
            attempts[candidate.name] = fold_auc(y, held[candidate.name], fold_of)
    order = sorted(candidates, key=lambda c: -attempts.get(c.name, 0.0))
    for candidate in order:
        model = candidate.make(seed)
        model.fit(x, y)
        own = model.logit(x)
        if np.ptp(own) > 1e-9:
            break
    return Fitted(
        model=model,
        name=candidate.name,
        inner_auc=attempts.get(candidate.name, float("nan")),
        shift=balanced_shift(held.get(candidate.name, own), y),
        attempts=attempts,
    )


def _out_of_fold(
    candidate: Candidate, x: FloatArray, y: IntArray, fold_of: IntArray, *, seed: int
) -> FloatArray:
    logit = np.empty(len(y))
    for fold in np.unique(fold_of):
        out = fold_of == fold
        model = candidate.make(seed)
        model.fit(x[~out], y[~out])
        logit[out] = model.logit(x[out])
    return logit


def fold_auc(y: IntArray, score: FloatArray, fold_of: IntArray) -> float:
    """Average the AUCs of folds, weighted by their pairs of a positive and a negative case.

    Scores of different folds are not compared, as each fold's model has its own offset.

    Args:
        y: 0 or 1 per case.
        score: The out-of-fold score of each case.
        fold_of: The fold of each case.

    Returns:
        The mean; 0.5 where no fold has both classes.

    Example:
        >>> fold_auc(np.array([0, 1, 0, 1]), np.array([0.1, 0.2, 5.0, 6.0]), np.array([0, 0, 1, 1]))
        1.0
    """
    total = pairs = 0.0
    for fold in np.unique(fold_of):
        out = fold_of == fold
        n = float((y[out] == 1).sum() * (y[out] == 0).sum())
        if n:
            total, pairs = total + n * auc(y[out], score[out]), pairs + n
    return total / pairs if pairs else 0.5


def inner_folds(y: IntArray, groups: Sequence[str], *, seed: int) -> IntArray | None:
    """Assign cases to folds that keep groups together and classes even.

    Args:
        y: 0 or 1 per case.
        groups: The group of each case.
        seed: Seed of the split.

    Returns:
        The fold of each case, from 0; None where a class has fewer than two groups.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    held = np.asarray(groups)
    fewest = min(len(np.unique(held[y == c])) for c in (0, 1))
    folds = min(FOLDS, fewest)
    if folds < 2:
        return None
    split = StratifiedGroupKFold(n_splits=folds, shuffle=True, random_state=seed % 2**32)
    fold_of = np.zeros(len(y), dtype=np.int64)
    for fold, (train, test) in enumerate(split.split(np.zeros((len(y), 1)), y, held)):
        if len(np.unique(y[train])) < 2:
            return None
        fold_of[test] = fold
    return fold_of


def balanced_shift(logit: FloatArray, y: IntArray) -> float:
    """Find the shift at which the mean probabilities of responders and of the others add to 1.

    Args:
        logit: The logit of each case.
        y: 0 or 1 per case, both present.

    Returns:
        What has to be added to the logits.

    Example:
        >>> round(balanced_shift(np.array([0.0, 2.0]), np.array([0, 1])), 6)
        -1.0
    """
    low, high = -30.0, 30.0
    for _ in range(80):
        middle = (low + high) / 2
        p = sigmoid(logit + middle)
        low, high = (middle, high) if p[y == 1].mean() + p[y == 0].mean() < 1 else (low, middle)
    return (low + high) / 2


def auc(y: IntArray, score: FloatArray) -> float:
    """Compute the area under the ROC curve; ties count half.

    Args:
        y: 0 or 1 per case, both present.
        score: The score of each case.

    Returns:
        The AUC.

    Example:
        >>> auc(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.4, 0.8]))
        0.875
    """
    _, inverse, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2
    positives = int((y == 1).sum())
    negatives = len(y) - positives
    return float((rank[inverse][y == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def sigmoid(x: FloatArray) -> FloatArray:
    """Compute 1 / (1 + exp(-x)) without overflow.

    Args:
        x: Logits, any shape.

    Returns:
        Probabilities of the same shape.

    Example:
        >>> sigmoid(np.array([0.0, -1000.0])).tolist()
        [0.5, 0.0]
    """
    out: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * np.asarray(x, dtype=np.float64)))
    return out


def balanced_weights(y: IntArray) -> FloatArray:
    """Weigh cases so that each class has half of the weight.

    Args:
        y: 0 or 1 per case.

    Returns:
        One weight per case; they sum to 1 where both classes are present.

    Example:
        >>> balanced_weights(np.array([0, 0, 1])).tolist()
        [0.25, 0.25, 0.5]
    """
    return np.where(y == 1, 0.5 / max(1, int((y == 1).sum())), 0.5 / max(1, int((y == 0).sum())))


class ElasticNet:
    """Logistic regression with the elastic net's penalty, on normal scores of ranks or standardised values.

    It minimises mean loss + strength (l1 |b| + (1 - l1) |b|^2 / 2), classes weighing the same, by accelerated
    proximal steps. Missing values take the training median; columns that do not vary have no effect.

    Args:
        strength: The strength of the penalty.
        l1: The share of the absolute penalty, 0 (ridge) to 1 (lasso).
        ranks: Whether columns become normal scores of ranks; otherwise they are standardised.
        steps: The largest number of steps.

    Example:
        >>> x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
        >>> model = ElasticNet(strength=0.1, l1=0.0).fit(x, y)
        >>> (model.logit(x) > 0).tolist()
        [False, False, True, True]
    """

    def __init__(self, *, strength: float, l1: float, ranks: bool = True, steps: int = 500) -> None:
        self.strength, self.l1, self.ranks, self.steps = strength, l1, ranks, steps
        self.scale: ColumnScale | None = None
        self.weight: FloatArray = np.zeros(0)
        self.intercept = 0.0

    def fit(self, x: FloatArray, y: IntArray) -> ElasticNet:
        """Fit the regression.

        Args:
            x: (cases, columns), NaN where a value is missing.
            y: 0 or 1 per case, both present.

        Returns:
            The same model.
        """
        self.scale = ColumnScale.of(x, ranks=self.ranks)
        z = self.scale.apply(x)
        w = balanced_weights(y)
        n, columns = z.shape
        wide = np.concatenate([z, np.ones((n, 1))], axis=1)
        largest = float(np.linalg.norm(wide * np.sqrt(w)[:, None], 2) ** 2) / 4
        step = 1.0 / (largest + self.strength * (1 - self.l1) + 1e-12)
        beta, look, t = np.zeros(columns + 1), np.zeros(columns + 1), 1.0
        penalised = np.append(np.ones(columns), 0.0)
        for _ in range(self.steps):
            residual = w * (sigmoid(wide @ look) - y)
            gradient = wide.T @ residual + self.strength * (1 - self.l1) * penalised * look
            new = look - step * gradient
            shrink = step * self.strength * self.l1 * penalised
            new = np.sign(new) * np.maximum(np.abs(new) - shrink, 0.0)
            following = (1 + np.sqrt(1 + 4 * t * t)) / 2
            look = new + (t - 1) / following * (new - beta)
            moved = float(np.abs(new - beta).max())
            beta, t = new, following
            if moved < 1e-6:
                break
        self.weight, self.intercept = beta[:-1], float(beta[-1])
        return self

    def logit(self, x: FloatArray) -> FloatArray:
        """Predict logits.

        Args:
            x: (cases, columns), NaN where a value is missing.

        Returns:
            (cases,).

        Raises:
            RuntimeError: The model was not fitted.
        """
        if self.scale is None:
            raise RuntimeError("fit first")
        out: FloatArray = self.scale.apply(x) @ self.weight + self.intercept
        return out

    def kept(self) -> dict[str, Any]:
        """Return the model for saved weights.

        Returns:
            Its penalty, scale, weights and intercept.

        Raises:
            RuntimeError: The model was not fitted.
        """
        if self.scale is None:
            raise RuntimeError("fit first")
        scale = {name: value for name, value in vars(self.scale).items() if value is not None}
        return {
            "kind": "elastic-net",
            "strength": self.strength,
            "l1": self.l1,
            "scale": scale,
            "weight": self.weight,
            "intercept": self.intercept,
        }

    @classmethod
    def from_kept(cls, kept: Mapping[str, Any]) -> ElasticNet:
        """Make the model from saved weights.

        Args:
            kept: What `kept` returned.

        Returns:
            The model, ready to predict.
        """
        held = kept["scale"]
        made = cls(strength=kept["strength"], l1=kept["l1"], ranks="knots" in held)
        made.scale = ColumnScale(
            median=held["median"],
            mean=held["mean"],
            deviation=held["deviation"],
            knots=held.get("knots"),
            scores=held.get("scores"),
        )
        made.weight, made.intercept = kept["weight"], float(kept["intercept"])
        return made


@dataclass(frozen=True, kw_only=True)
class ColumnScale:
    """Columns on one scale, as the training rows define it: standard units, or normal scores of ranks.

    A value beyond all training values takes the outermost score.

    Args:
        median: Of each column: what a missing value becomes.
        mean: Of each column.
        deviation: Of each column; infinite for a column that does not vary.
        knots: Quantiles of each column, (quantiles, columns); None: standard units.
        scores: The normal score of each quantile; None: standard units.
    """

    median: FloatArray
    mean: FloatArray
    deviation: FloatArray
    knots: FloatArray | None
    scores: FloatArray | None

    @classmethod
    def of(cls, x: FloatArray, *, ranks: bool) -> ColumnScale:
        """Define the scale by training rows.

        Args:
            x: (cases, columns), NaN where a value is missing.
            ranks: Whether columns become normal scores of ranks; otherwise standard units.

        Returns:
            The scale.
        """
        known = np.isfinite(x)
        median = np.array([np.median(c[k]) if k.any() else 0.0 for c, k in zip(x.T, known.T, strict=True)])
        filled = np.where(known, x, median)
        deviation = filled.std(axis=0)
        deviation = np.where(deviation > 1e-9 * (1 + np.abs(filled.mean(axis=0))), deviation, np.inf)
        knots = scores = None
        if ranks:
            from scipy.stats import norm

            at = np.linspace(0, 1, min(101, len(x)))
            knots = np.quantile(filled, at, axis=0)
            edge = 0.5 / len(x)
            scores = norm.ppf(np.clip(at, edge, 1 - edge))
        return cls(median=median, mean=filled.mean(axis=0), deviation=deviation, knots=knots, scores=scores)

    def apply(self, x: FloatArray) -> FloatArray:
        """Bring rows to the scale.

        Args:
            x: (cases, columns), NaN where a value is missing.

        Returns:
            (cases, columns), without missing values.

        Example:
            >>> x = np.array([[1.0], [3.0]])
            >>> ColumnScale.of(x, ranks=False).apply(np.array([[3.0], [np.nan]])).tolist()
            [[1.0], [0.0]]
        """
        filled = np.where(np.isfinite(x), x, self.median)
        if self.knots is None or self.scores is None:
            return (filled - self.mean) / self.deviation
        out = np.zeros_like(filled)
        for column in np.flatnonzero(np.isfinite(self.deviation)):
            knots = self.knots[:, column]
            # A tie takes the middle of the scores that its value spans.
            up = np.interp(filled[:, column], knots, self.scores)
            down = -np.interp(-filled[:, column], -knots[::-1], -self.scores[::-1])
            out[:, column] = (up + down) / 2
        return out


class Forest:
    """A random forest whose trees weigh both classes alike; its logit is that of its mean vote.

    Args:
        seed: Seed of the trees.
        leaf: The fewest cases in a leaf.
        trees: Trees.
    """

    def __init__(self, *, seed: int, leaf: int, trees: int = 150) -> None:
        from sklearn.ensemble import RandomForestClassifier

        self.forest = RandomForestClassifier(
            n_estimators=trees,
            min_samples_leaf=leaf,
            max_features="sqrt",
            class_weight="balanced",
            random_state=seed % 2**32,
        )
        self.median: FloatArray = np.zeros(0)

    def fit(self, x: FloatArray, y: IntArray) -> Forest:
        """Fit the trees.

        Args:
            x: (cases, columns), NaN where a value is missing.
            y: 0 or 1 per case.

        Returns:
            The same model.
        """
        self.median = ColumnScale.of(x, ranks=False).median
        self.forest.fit(np.where(np.isfinite(x), x, self.median), y)
        return self

    def logit(self, x: FloatArray) -> FloatArray:
        """Predict logits.

        Args:
            x: (cases, columns), NaN where a value is missing.

        Returns:
            (cases,).
        """
        return _forest_logit(self.forest.predict_proba(np.where(np.isfinite(x), x, self.median))[:, 1])

    def kept(self) -> dict[str, Any]:
        """Return the model for saved weights: every tree as arrays.

        Returns:
            The medians, and per tree where a case goes and the share of responders in each leaf.
        """
        trees = []
        for one in self.forest.estimators_:
            tree = one.tree_
            share = tree.value[:, 0, :]
            trees.append(
                {
                    "left": tree.children_left.astype(np.int32),
                    "right": tree.children_right.astype(np.int32),
                    "column": tree.feature.astype(np.int32),
                    "threshold": tree.threshold.astype(np.float64),
                    "share": share[:, 1] / share.sum(axis=1),
                }
            )
        return {"kind": "forest", "median": self.median, "trees": trees}


def _forest_logit(vote: FloatArray) -> FloatArray:
    p = np.clip(vote, 1e-3, 1 - 1e-3)
    out: FloatArray = np.log(p / (1 - p))
    return out


@dataclass(frozen=True, kw_only=True)
class KeptForest:
    """A random forest from saved weights: the same votes without the library that grew it.

    Args:
        median: Of each column: what a missing value becomes.
        trees: The arrays of each tree, as `Forest.kept` returns them.
    """

    median: FloatArray
    trees: Sequence[Mapping[str, Any]]

    @classmethod
    def from_kept(cls, kept: Mapping[str, Any]) -> KeptForest:
        """Make the forest from saved weights.

        Args:
            kept: What `Forest.kept` returned.

        Returns:
            The forest, ready to predict.
        """
        return cls(median=kept["median"], trees=kept["trees"])

    def logit(self, x: FloatArray) -> FloatArray:
        """Predict logits.

        Args:
            x: (cases, columns), NaN where a value is missing.

        Returns:
            (cases,).
        """
        # Trees are grown on single precision, and compare in it.
        filled = np.where(np.isfinite(x), x, self.median).astype(np.float32)
        total = np.zeros(len(filled))
        for tree in self.trees:
            at = np.zeros(len(filled), dtype=np.int64)
            while (inner := tree["left"][at] >= 0).any():
                rows = np.flatnonzero(inner)
                here = at[rows]
                goes_left = filled[rows, tree["column"][here]] <= tree["threshold"][here]
                at[rows] = np.where(goes_left, tree["left"][here], tree["right"][here])
            total += tree["share"][at]
        return _forest_logit(total / len(self.trees))


PLAIN_MODELS: Mapping[str, type[KeptModel]] = {"elastic-net": ElasticNet, "forest": KeptForest}
"""The saved models that `Applied.of` can read without any further library."""
