"""Tables of many models at two domains, for csv and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PAPER = (
    "model", "metric", "stratum_of", "stratum", "internal", "external", "difference", "lo", "hi", "margin", "verdict",
    "non_inferior", "ratio", "ratio_lo", "ratio_hi", "standardised_difference", "fold_difference", "fold_lo", "fold_hi", "fold_p",
)  # fmt: skip


def generalise_rows(part: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """List the tables of many models at two domains, for csv and LaTeX.

    Args:
        part: The part `generalise` of a summary.

    Returns:
        The rows of each table by its name: the verdicts over all slides per metric, those of strata, means by share and
        clustering, and what printed numbers decide.
    """
    rows = [row for row in part.get("rows") or [] if isinstance(row, dict)]
    overall = [row for row in rows if not row.get("stratum_of")]
    tables = {
        f"generalise_{metric}": [_paper(row) for row in overall if row.get("metric") == metric]
        for metric in dict.fromkeys(str(row.get("metric")) for row in overall)
    }
    tables["generalise_strata"] = [_paper(row) for row in rows if row.get("stratum_of")]
    kinds = (part.get("kinds") or {}).get("rows") or []
    tables["generalise_kinds"] = [dict(row) for row in kinds if isinstance(row, dict)]
    for kind in part.get("printed") or []:
        if isinstance(kind, dict):
            found = [dict(row) for row in kind.get("rows") or [] if isinstance(row, dict)]
            tables[f"printed_{kind.get('kind')}"] = found
    return tables


def _paper(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a paper's table that the row has."""
    return {key: row[key] for key in _PAPER if row.get(key) not in (None, "") or key in _PAPER[:2]}
