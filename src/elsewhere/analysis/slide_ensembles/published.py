"""What the lymph-node study prints about slides, next to ours where the models have the study's names (LN-15, LN-16).

A difference is a finding to explain, never an error: other slides, other networks and other draws of the
non-generalising members.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd

SOURCE = (
    "Varnava et al., Scientific Reports 2024, doi:10.1038/s41598-024-80495-y, tables 5 and 6: class averages, slides with "
    "isolated tumour cells alone left out"
)
ON_TUMOUR = ("histopathology-0", "histopathology-40", "imagenet-0", "imagenet-50", "single-natural")
ON_NORMAL = ("histopathology-0", "histopathology-natural", "imagenet-natural", "single-30", "single-natural")
PRINTED_FIGURE = {
    "single-natural": (0.950, 0.458),
    "nongeneralising": (0.918, 0.495),
    "generalising": (0.909, 0.622),
    "generalisingtn": (0.846, 0.767),
}
"""Sensitivity and specificity of the positive slides as Figure 8 prints them; there, slides with isolated tumour cells
alone count as negative."""
_NAME = re.compile(r"^(?P<clustering>[a-z ]+)[-_ /]*(?P<share>\d{1,3}|natural)\s*%?$")
_CLUSTERINGS = {
    "histology": "histopathology",
    "histopathology": "histopathology",
    "imagenet": "imagenet",
    "single": "single",
}
_SHARES = ("natural", "0", "10", "20", "30", "40", "50")


def study_model(name: str) -> str | None:
    """Translate the name of a model into the study's.

    Args:
        name: The name, such as `Histology-40` or `single natural %`.

    Returns:
        CLUSTERING-SHARE; None where the study has no such model.

    Example:
        >>> study_model("Histology_40"), study_model("unet-7")
        ('histopathology-40', None)
    """
    found = _NAME.match(name.strip().casefold())
    if found is None:
        return None
    clustering, share = _CLUSTERINGS.get(found["clustering"].strip()), found["share"]
    share = share if share == "natural" else str(int(share))
    return None if clustering is None or share not in _SHARES else f"{clustering}-{share}"


def study_ensemble(name: str) -> str | None:
    """Reduce the name of an ensemble to what its spellings share.

    Args:
        name: Ours, or the study's.

    Returns:
        The name; None where the study has no such ensemble.

    Example:
        >>> study_ensemble("Generalizing (T&N)"), study_ensemble("Generalising (T&N)"), study_ensemble("Natural %")
        ('generalisingtn', 'generalisingtn', 'natural')
    """
    plain = re.sub(r"[^a-z0-9]", "", name.casefold().replace("iz", "is"))
    plain = re.sub(r"^(nongeneralising)\d*$", r"\1", plain)
    known = {"generalising", "nongeneralising", "generalisingtn", "generalisingt", "generalisingn", *_SHARES}
    if plain in known:
        return plain
    return _CLUSTERINGS.get(plain)


@cache
def printed_tables() -> dict[str, dict[str, dict[str, float]]]:
    """Read the printed tables of slides.

    Returns:
        By 'model' and 'ensemble', by name: `sensitivity`, `precision`, `f1` (class averages) and their `_sd`.

    Example:
        >>> printed_tables()["ensemble"]["generalisingtn"]["f1"], len(printed_tables()["model"])
        (0.805, 21)
    """
    folder = resources.files("elsewhere.analysis.slide_ensembles").joinpath("published_tables")
    out: dict[str, dict[str, dict[str, float]]] = {"model": {}, "ensemble": {}}
    with folder.joinpath("lymph_nodes_models.csv").open("r", encoding="utf-8") as file:
        for row in pd.read_csv(file, dtype={"partial_share": str}).to_dict("records"):
            out["model"][f"{row['clustering']}-{row['partial_share']}"] = _numbers(row)
    with folder.joinpath("lymph_nodes_ensembles.csv").open("r", encoding="utf-8") as file:
        for row in pd.read_csv(file).to_dict("records"):
            out["ensemble"][str(study_ensemble(str(row["ensemble"])))] = _numbers(row)
    return out


def _numbers(row: Mapping[Any, Any]) -> dict[str, float]:
    return {str(key): float(value) for key, value in row.items() if isinstance(value, float)}


_COMPARED = {
    "sensitivity": "recall_mean_left_out",
    "precision": "precision_mean_left_out",
    "f1": "f1_mean_left_out",
}


def printed_comparison(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Set the rates of models and ensembles next to the printed ones.

    Args:
        rows: Our rows: `name`, `kind` ('model' or 'ensemble'), `members` and `rates`.

    Returns:
        `source` and `rows`; None unless at least one model has a name of the study.
    """
    models = {str(row["name"]): study_model(str(row["name"])) for row in rows if row["kind"] == "model"}
    if not any(models.values()):
        return None
    tables, out = printed_tables(), []
    for row in rows:
        name = models.get(str(row["name"])) if row["kind"] == "model" else study_ensemble(str(row["name"]))
        printed = tables[row["kind"]].get(str(name)) if row["kind"] in tables else None
        if printed is None:
            continue
        made: dict[str, Any] = {"name": row["name"], "kind": row["kind"]}
        for theirs, ours in _COMPARED.items():
            made |= {
                theirs: row["rates"][ours]["value"],
                f"{theirs}_sd": row["rates"][ours]["sd"],
                f"{theirs}_printed": printed[theirs],
                f"{theirs}_printed_sd": printed[f"{theirs}_sd"],
            }
        figure = PRINTED_FIGURE.get(str(name))
        if figure is not None:
            made |= {
                "positive_sensitivity": row["rates"]["sensitivity_negative"]["value"],
                "positive_specificity": row["rates"]["specificity_negative"]["value"],
                "positive_sensitivity_printed": figure[0],
                "positive_specificity_printed": figure[1],
            }
        out.append(made)
    return {"source": SOURCE, "rows": out, "models": sum(name is not None for name in models.values())}
