"""Tables and free notes as they may be shared: without ids of cases in their texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elsewhere.privacy.redaction import Redactor

if TYPE_CHECKING:
    import pandas as pd

LEFT_OUT = "cases_not_shown"
"""Key that counts the entries which were left out because each belonged to one case."""


def redacted_table(table: pd.DataFrame, redactor: Redactor) -> pd.DataFrame:
    """Take ids out of every text cell: a reason or a note, which a recipe or a file wrote, may name a case.

    Args:
        table: Any table that is shared.
        redactor: Knows the ids.

    Returns:
        The same table with marks in place of ids.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"reason": ["mask of case-17 is empty"]})
        >>> redacted_table(table, Redactor(["case-17"]))["reason"].tolist()
        ['mask of [id 1] is empty']
    """
    words = [c for c in table.columns if table[c].map(lambda v: isinstance(v, str)).any()]
    clean = {c: table[c].map(lambda v: redactor.text(v) if isinstance(v, str) else v) for c in words}
    return table.assign(**clean) if clean else table


def nameless(value: Any, redactor: Redactor) -> Any:
    """Take cases out of free notes: an entry per case is left out, and a name in a sentence becomes a mark.

    Args:
        value: The `notes` or `details` of a training: mappings, lists, texts and numbers.
        redactor: Knows the ids.

    Returns:
        The same shape; a mapping that lost entries counts them under `cases_not_shown`.

    Example:
        >>> nameless({"epochs": 5, "case-17": 0.2}, Redactor(["case-17"]))
        {'epochs': 5, 'cases_not_shown': 1}
    """
    if isinstance(value, Mapping):
        kept = {k: v for k, v in value.items() if str(k) not in redactor}
        out = {redactor.text(str(k)): nameless(v, redactor) for k, v in kept.items()}
        return out if len(kept) == len(value) else out | {LEFT_OUT: len(value) - len(kept)}
    if isinstance(value, list | tuple):
        return [nameless(v, redactor) for v in value]
    return redactor.text(value) if isinstance(value, str) else value
