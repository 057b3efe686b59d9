"""The leading number of many models at two domains: how many of them pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.page.numbers import number
from elsewhere.report.result.best_ensemble import best_ensemble
from elsewhere.report.result.largest_part import largest_part
from elsewhere.report.result.prepare import Prepared

_NAMED = 8


def passing_models(data: Prepared) -> Mapping[str, str] | None:
    """Say how many models are non-inferior in both metrics, or what a study's printed numbers decide; of ensembles, how many beat chance.

    Args:
        data: The summary as it may be printed.

    Returns:
        The leading number of the first page; None for other summaries.
    """
    part = data.part("generalise")
    printed = [kind for kind in part.get("printed") or [] if isinstance(kind, dict)]
    if printed:
        value = " + ".join(str(len(kind.get("equivalent") or [])) for kind in printed)
        kinds = "; ".join(
            f"{kind.get('kind')}: margin {number(kind.get('margin'))}, {len(kind.get('non_inferior') or [])} non-inferior"
            for kind in printed
        )
        label = f"Equivalent of {printed[0].get('models')} models, {' + '.join(str(k.get('kind')) for k in printed)}"
        return _hero(label, value, "By the printed p values, or else the intervals", f"{kinds}.")
    models = [row for row in part.get("models") or [] if isinstance(row, dict)]
    if not models:
        return best_ensemble(data) or largest_part(data)
    passed = [str(row.get("model")) for row in models if row.get("non_inferior")]
    shown = ", ".join(passed[:_NAMED]) + (f" and {len(passed) - _NAMED} more" if len(passed) > _NAMED else "")
    words = [str(row.get("verdict")) for row in models]
    rest = ", ".join(
        f"{words.count(word)} {word}"
        for word in ("EQUIVALENT", "ABOVE", "INCONCLUSIVE", "BELOW", "NOT ASSESSED")
        if word in words
    )
    sentence = (
        f"{shown}. Verdicts over both metrics: {rest}." if passed else f"Verdicts over both metrics: {rest}."
    )
    return _hero(
        "Models that are non-inferior at the other hospital, on tumour and on normal patches",
        f"{len(passed)} of {len(models)}",
        "By patient, at the declared margins"
        if not _study(part)
        else "By patient, at margins made from the data",
        sentence,
    )


def _study(part: Mapping[str, Any]) -> bool:
    return any(isinstance(row, dict) and row.get("source") == "study" for row in part.get("margins") or [])


def _hero(label: str, value: str, method: str, sentence: str) -> Mapping[str, str]:
    return {
        "label": label,
        "value": value,
        "interval": "",
        "method": method,
        "title": value,
        "spoken": f"{label}: {value}",
        "sentence": sentence,
    }
