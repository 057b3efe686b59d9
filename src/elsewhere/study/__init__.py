"""Studies: a file says what is compared; the plan, the runs and the results follow from it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elsewhere.study.file import Study, load_study
    from elsewhere.study.picture_results import StudyResults, results_of
    from elsewhere.study.plan import Plan, make_plan
    from elsewhere.study.table import StudyTable, build_table

_WHERE = {
    "Plan": "plan",
    "Study": "file",
    "StudyResults": "picture_results",
    "StudyTable": "table",
    "build_table": "table",
    "load_study": "file",
    "make_plan": "plan",
    "results_of": "picture_results",
}

__all__ = [
    "Plan",
    "Study",
    "StudyResults",
    "StudyTable",
    "build_table",
    "load_study",
    "make_plan",
    "results_of",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'elsewhere.study' has no attribute '{name}'")
    return getattr(import_module(f"elsewhere.study.{_WHERE[name]}"), name)
