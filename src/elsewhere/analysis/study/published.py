"""The numbers that a study's paper prints, to be compared with ours (US-25).

They ship as csv files with their source named (`published/README.md`). A difference from them is a finding to
explain, never an error: the paper's seeds, framework and, in two datasets, its reading of the patient ids are
not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd

from elsewhere.errors import unknown_name

_FILES = {
    "ultrasound": (
        "datasets",
        "overall",
        "paired_roi_minus_whole",
        "roi_margin",
        "transfers",
        "without_busuclm",
        "stated",
    )
}
_SOURCES = {
    "ultrasound": "Wang, Breast Ultrasound AI Under Dataset Shift, Diagnostics 2026, 16(10), 1537, "
    "doi:10.3390/diagnostics16101537"
}
_MODELS = {
    "cnn": "cnn",
    "efficientnet-b0": "cnn",
    "efficientnetb0": "cnn",
    "vit": "vit",
    "vit-b-16": "vit",
    "vit-b16": "vit",
}
_NETWORKS = {"cnn": "efficientnet-b0", "vit": "vit-b-16"}
_INPUTS = {"roi": "roi", "whole": "whole", "whole-image": "whole", "lesion": "roi", "crop": "roi"}


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The tables that a published study prints, and the source they are from.

    Args:
        name: Name of the study in the study file.
        source: Citation of the paper.
        tables: The printed tables by name.
    """

    name: str
    source: str
    tables: dict[str, pd.DataFrame]

    def table(self, name: str) -> pd.DataFrame:
        """Return a printed table.

        Args:
            name: Name of the table.

        Returns:
            The table.
        """
        return self.tables[name]

    def rows(self, name: str, *keys: str) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Index the rows of a printed table by some of its columns.

        Args:
            name: Name of the table.
            *keys: The columns whose values name a row.

        Returns:
            The rows by the values of these columns.
        """
        return {
            tuple(row[k] for k in keys): {str(c): v for c, v in row.items()}
            for row in self.tables[name].to_dict(orient="records")
        }

    def stated(self, item: str) -> float | None:
        """Look up a number that the paper states in its text or in its overall row.

        Args:
            item: Its name in `stated.csv`.

        Returns:
            The number; None where the paper does not state it.
        """
        found = self.tables["stated"].set_index("item")["value"]
        return float(found[item]) if item in found.index else None


@cache
def reference(name: str) -> Reference:
    """Read the printed numbers of one study.

    Args:
        name: Name of the study, such as `ultrasound`.

    Returns:
        Its tables with their source.

    Raises:
        UserError: If no such study is shipped; the message offers similar names.
    """
    if name not in _FILES:
        raise unknown_name("published study", name, list(_FILES))
    folder = resources.files("elsewhere.analysis.study").joinpath("published_tables")
    tables = {}
    for table in _FILES[name]:
        with folder.joinpath(f"{name}_{table}.csv").open("r", encoding="utf-8") as file:
            tables[table] = pd.read_csv(file)
    return Reference(name=name, source=_SOURCES[name], tables=tables)


def published_model(model: str) -> str | None:
    """Translate the name of one of our models into the paper's.

    Args:
        model: Name in the study file; case and underscores do not matter.

    Returns:
        The paper's name; None where it has no such model.

    Example:
        >>> published_model("EfficientNet_B0")
        'cnn'
    """
    return _MODELS.get(model.casefold().replace("_", "-"))


def other_networks(network: Mapping[str, str], weights: Mapping[str, str]) -> list[str]:
    """Warn of models that are compared with the paper's although they are not the same experiment (US-14).

    That is so where our model is another network, or starts from other weights than ImageNet's.

    Args:
        network: Network of each model.
        weights: Weights that each model starts from; empty for ImageNet's.

    Returns:
        One sentence per difference; empty where there is none.

    Example:
        >>> other_networks({"cnn": "efficientnet-b0"}, {"cnn": "imagenet"})
        []
    """
    out = []
    for model, ours in network.items():
        theirs = _NETWORKS.get(published_model(model) or "")
        shown = {"cnn": "CNN", "vit": "ViT"}.get(str(published_model(model)), "")
        start = weights.get(model, "") or "imagenet"
        if theirs and start != "imagenet":
            what = "random weights" if start == "none" else "weights of a file"
            out.append(
                f"Our {shown} starts from {what}, the paper's from ImageNet's: the two are not the same experiment."
            )
        if theirs and ours and ours not in (theirs, model):
            out.append(
                f"Our {shown} is another network than the paper's: {_name(ours)} instead of {_name(theirs)}. "
                "Differences from the paper may come from the network."
            )
    return list(dict.fromkeys(out))


def _name(network: str) -> str:
    """As papers write it."""
    if network.startswith("efficientnet-"):
        return f"EfficientNet-{network.removeprefix('efficientnet-').capitalize()}"
    return {"vit-b-16": "ViT-B/16"}.get(network, network)


def published_input(name: str) -> str | None:
    """Translate the name of one of our inputs into the paper's.

    Args:
        name: Name in the study file; case and underscores do not matter.

    Returns:
        The paper's name; None where it has no such input.

    Example:
        >>> published_input("lesion")
        'roi'
    """
    return _INPUTS.get(name.casefold().replace("_", "-"))
