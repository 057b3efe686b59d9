"""The lesions of a ranking: a table that stays with the data, and what the map of hit rules shows, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

_KEY = ["case_id", "lesion_id"]


def with_rule_hits(lesions: pd.DataFrame | None, hits: pd.DataFrame) -> pd.DataFrame:
    """Add to a table of lesions under how many hit rules each model hits them.

    Args:
        lesions: The lesions, hardest first; None for none.
        hits: One row per lesion with its ids.

    Returns:
        The table with both; the order is that of `lesions`.
    """
    if lesions is None:
        return hits
    return lesions.merge(hits.astype(dict.fromkeys(_KEY, "object")), on=_KEY, how="left")


def hit_rule_lines(part: Mapping[str, Any]) -> list[str]:
    """Write what the map of hit rules shows, for a terminal and for the report.

    Args:
        part: `hit_rules` of a summary.

    Returns:
        Sentences.
    """
    lines = [
        f"under {part['rules']} other hit rules: another leader under {part['rules_with_another_leader']}, two models in "
        f"another order under {part['rules_with_another_order']}"
    ]
    for pair in part["changing_pairs"]:
        lines.append(
            f"  {pair['behind']} is ahead of {pair['ahead']} under {pair['rules_in_other_order']} of {part['rules']} rules"
        )
    lines.append(f"  {paper_and_code_sentence(part['paper_and_code'])}")
    return lines


def paper_and_code_sentence(part: Mapping[str, Any]) -> str:
    """Say on how many lesions the two rules of the DBTex challenge differ.

    Args:
        part: `paper_and_code` of a map of hit rules.

    Returns:
        One sentence.

    Example:
        >>> paper_and_code_sentence({"lesions": 4, "lesions_with_another_radius": 1, "models": []})
        "The challenge's paper and its code allow another distance on 1 of 4 lesions (25.0 %)."
    """
    lesions, other = part["lesions"], part["lesions_with_another_radius"]
    share = f" ({100 * other / lesions:.1f} %)" if lesions else ""
    text = f"The challenge's paper and its code allow another distance on {other} of {lesions} lesions{share}"
    changed = [row["lesions_hit_by_one_rule_alone"] for row in part["models"]]
    if not changed:
        return f"{text}."
    between = f"{min(changed)}" if min(changed) == max(changed) else f"{min(changed)} to {max(changed)}"
    return f"{text}; lesions per model that only one of the two rules counts as hit: {between}."
