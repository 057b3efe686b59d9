"""The rows of a cohort as the sources of pixels read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elsewhere.cohort import Cohort
from elsewhere.inputs.source import LESIONS, CaseRow


def case_rows(
    cohort: Cohort,
    *,
    named: Callable[[str, str], str] = lambda dataset, case_id: f"{dataset}/{case_id}",
) -> list[CaseRow]:
    """List the rows of a cohort for `Source.of_cases`, each with its rows of the table of lesions.

    Args:
        cohort: Of one or several datasets.
        named: The study's name of a case, from its dataset and id.

    Returns:
        One entry for each row, in the order of the table.
    """
    lesions: dict[str, list[dict[str, Any]]] = {}
    if cohort.lesions is not None:
        for lesion in cohort.lesions.to_dict("records"):
            lesions.setdefault(str(lesion["case_id"]), []).append({str(k): v for k, v in lesion.items()})

    def values(row: dict[Any, Any]) -> dict[str, Any]:
        cells = {str(name): value for name, value in row.items()}
        if cohort.lesions is not None:
            cells[LESIONS] = tuple(lesions.get(str(row["case_id"]), ()))
        return cells

    return [
        CaseRow(name=named(str(row["dataset"]), str(row["case_id"])), values=values(row), file=cohort.file)
        for row in cohort.cases.to_dict("records")
    ]
