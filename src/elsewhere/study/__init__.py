"""Studies: a file says what is compared; the plan, the runs and the results follow from it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elsewhere.study.file import Study, load_study
    from elsewhere.study.plan import Plan, make_plan
    from elsewhere.study.results import Results
    from elsewhere.study.table import StudyTable, build_table

_WHERE = {
    "Plan": "plan",
    "Study": "file",
    "Results": "results",
    "StudyTable": "table",
    "build_table": "table",
    "load_study": "file",
    "make_plan": "plan",
}

__all__ = [
    "Plan",
    "Results",
    "Study",
    "StudyTable",
    "build_table",
    "load_study",
    "make_plan",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'elsewhere.study' has no attribute '{name}'")
    return getattr(import_module(f"elsewhere.study.{_WHERE[name]}"), name)
