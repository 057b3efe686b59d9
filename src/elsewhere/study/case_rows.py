"""The rows of a cohort as the sources of pixels read them."""

from __future__ import annotations

from collections.abc import Callable

from elsewhere.cohort import Cohort
from elsewhere.inputs.source import CaseRow


def case_rows(
    cohort: Cohort,
    *,
    named: Callable[[str, str], str] = lambda dataset, case_id: f"{dataset}/{case_id}",
) -> list[CaseRow]:
    """List the rows of a cohort for `Source.of_cases`.

    Args:
        cohort: Of one or several datasets.
        named: The study's name of a case, from its dataset and id.

    Returns:
        One entry for each row, in the order of the table.
    """
    return [
        CaseRow(
            name=named(str(row["dataset"]), str(row["case_id"])),
            values={str(name): value for name, value in row.items()},
            file=cohort.file,
        )
        for row in cohort.cases.to_dict("records")
    ]
