"""What a study compares, read from its file and its runs: which configurations make up its averages.

A configuration is a model with an input: a pair of the study file's [models] and [inputs], or a method of
[recipes], which is its own model and has no input. The averages are over the plain pairs: annotated boxes,
the reference margin, plain training. Whatever else was run (other margins, found boxes, other ways to train)
is compared with them, and stays out of the averages. Methods of [recipes] are different published methods,
which no average joins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from elsewhere.study.file import Study

PLAIN = "plain"
_SHOWN = {"cnn": "CNN", "vit": "ViT", "roi": "ROI", "whole": "whole image"}
KIND_LABELS = {
    "internal": "internal",
    "external": "external",
    "leave-one-dataset-out": "all others train",
    "folds": "cross-validated",
    "nested": "a source left out, to choose",
}
"""The kinds of scenarios, in the order of the tables, in words."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """What varies in a task of a study.

    Args:
        name: Name of the study.
        task: Task whose runs these are.
        datasets: Datasets in the order of the study file.
        models: Models of the configurations, in the order of the study file.
        inputs: Inputs likewise; `("",)` where methods have no inputs.
        kinds: Kinds of the scenarios that ran.
        seeds: Seeds that ran.
        whole: Inputs that show the whole picture.
        found: Inputs whose boxes a model finds.
        method: How each model is trained: plain, or a way to learn from several sources.
        network: Network of each model.
        weights: Weights that each model starts from, as the study file says; empty where it does not.
        margin: Margin of the crop of each input that is a crop.
        margin_reference: The margin that others are compared with; None for none.
        main: The (model, input) pairs that make up the averages.
        without: Datasets each of which is left out once.
        reference: The published study that the numbers are compared with; empty for none.
        verdict_margin: The largest drop that would not matter; None where none was declared.
        ids: `patient`, or `image` where every picture counts as a patient.
    """

    name: str
    task: str
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    inputs: tuple[str, ...]
    kinds: tuple[str, ...]
    seeds: tuple[int, ...]
    whole: frozenset[str]
    found: frozenset[str]
    method: Mapping[str, str]
    network: Mapping[str, str]
    weights: Mapping[str, str]
    margin: Mapping[str, float]
    margin_reference: float | None
    main: tuple[tuple[str, str], ...]
    without: tuple[str, ...]
    reference: str
    verdict_margin: float | None
    ids: str

    @property
    def configurations(self) -> tuple[tuple[str, str], ...]:
        """Every model with every input."""
        return tuple((m, i) for m in self.models for i in self.inputs)

    def order(self, table: pd.DataFrame) -> pd.DataFrame:
        """Sort rows in the order of the study file, not of the alphabet.

        Args:
            table: A table with some of the columns kind, model and input.

        Returns:
            The rows in order.
        """
        ranks = {
            "kind": {k: n for n, k in enumerate(self.kinds)},
            "model": {k: n for n, k in enumerate(self.models)},
            "input": {k: n for n, k in enumerate(self.inputs)},
        }
        by = [c for c in ("kind", "model", "input") if c in table.columns]
        keys = {f"_{c}": table[c].map(ranks[c]).fillna(len(ranks[c])) for c in by}
        return (
            table.assign(**keys)
            .sort_values(list(keys), kind="stable")
            .drop(columns=list(keys))
            .reset_index(drop=True)
        )


def shown_name(name: str) -> str:
    """Give a model's or an input's name as readers know it.

    Args:
        name: Name in the study file.

    Returns:
        The usual spelling where there is one, else the name itself.

    Example:
        >>> shown_name("vit"), shown_name("my-net")
        ('ViT', 'my-net')
    """
    return _SHOWN.get(name, name)


def configuration(model: str, input_: str) -> str:
    """Name a configuration for readers.

    Args:
        model: Its model, or the method where there is no input.
        input_: Its input, or nothing.

    Returns:
        Such as `CNN, ROI`.

    Example:
        >>> configuration("cnn", "roi")
        'CNN, ROI'
    """
    return f"{shown_name(model)}, {shown_name(input_)}" if input_ else shown_name(model)


def read_design(study: Study, task: str, table: pd.DataFrame, runs: pd.DataFrame) -> Design:
    """Read what a task of a study compares.

    Args:
        study: The study file.
        task: Task whose runs these are.
        table: The study table.
        runs: The runs of the task that are done.

    Returns:
        The design.
    """
    pairs = set(zip(runs["model"].astype("str"), runs["input"].astype("str"), strict=True))
    models = _ordered(runs["model"], (*study.models, *study.recipes))
    inputs = _ordered(runs["input"], tuple(study.inputs))
    sections = {name: study.inputs[name] for name in inputs if name in study.inputs}
    whole = frozenset(i for i, section in sections.items() if section.kind == "whole")
    found = frozenset(i for i, section in sections.items() if section.boxes == "found")
    method = {m: study.models[m].method if m in study.models else PLAIN for m in models}
    margins = {
        i: section.margin for i, section in sections.items() if section.kind == "roi" and not section.outline
    }
    reference = study.analyses.margin_reference
    plain_models = [m for m in models if m in study.models and method[m] == PLAIN]
    plain_inputs = [
        i
        for i, section in sections.items()
        if i not in found
        and (reference is None or i not in margins or abs(margins[i] - reference) < 1e-9)
        and not section.outline
    ]
    if study.models and not plain_models:
        plain_models = [m for m in models if m in study.models]
    margin = study.task(task).verdict_margin
    return Design(
        name=study.study.name,
        task=task,
        datasets=tuple(dict.fromkeys(map(str, table["dataset"]))),
        models=models,
        inputs=inputs,
        kinds=tuple(k for k in KIND_LABELS if k in set(runs["kind"])),
        seeds=tuple(sorted(int(s) for s in runs["seed"].dropna().unique())),
        whole=whole,
        found=found,
        method=method,
        network={m: study.models[m].network if m in study.models else m for m in models},
        weights={m: study.models[m].weights if m in study.models else "" for m in models},
        margin=margins,
        margin_reference=reference,
        main=tuple((m, i) for m in plain_models for i in plain_inputs or sections if (m, i) in pairs),
        without=study.analyses.without,
        reference=study.analyses.reference,
        verdict_margin=margin if margin else None,
        ids=study.study.ids,
    )


def _ordered(column: pd.Series, named: tuple[str, ...]) -> tuple[str, ...]:
    present = list(dict.fromkeys(map(str, column)))
    first = [name for name in named if name in present]
    return tuple(first + [name for name in present if name not in first])
