"""Elsewhere: does this breast-imaging model still work at another hospital?

The functions below are the commands, typed: paths, data frames or arrays in, a result out. They are
imported at first use, so that `import elsewhere` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elsewhere._version import __version__

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort, load_cohort, read_cohort
    from elsewhere.commands.accept import accept
    from elsewhere.commands.carry_threshold import carry_threshold
    from elsewhere.commands.check import check
    from elsewhere.commands.check_bundle import check_bundle
    from elsewhere.commands.compare import compare
    from elsewhere.commands.diff import diff
    from elsewhere.commands.equivalence import equivalence
    from elsewhere.commands.generalise import generalise
    from elsewhere.commands.merge import merge
    from elsewhere.commands.plan import plan_study
    from elsewhere.commands.plan_sample import plan_sample
    from elsewhere.commands.predict import list_models, predict
    from elsewhere.commands.rank import rank
    from elsewhere.commands.readers import reader_study
    from elsewhere.commands.report import report as write_report
    from elsewhere.commands.run import run_study
    from elsewhere.commands.score import score, score_arrays
    from elsewhere.commands.summarise import summarise
    from elsewhere.errors import UserError
    from elsewhere.results import Result, load_result

_WHERE = {
    "Cohort": "cohort",
    "load_cohort": "cohort",
    "read_cohort": "cohort",
    "accept": "commands.accept",
    "carry_threshold": "commands.carry_threshold",
    "check": "commands.check",
    "check_bundle": "commands.check_bundle",
    "compare": "commands.compare",
    "diff": "commands.diff",
    "equivalence": "commands.equivalence",
    "generalise": "commands.generalise",
    "list_models": "commands.predict",
    "merge": "commands.merge",
    "plan_sample": "commands.plan_sample",
    "plan_study": "commands.plan",
    "predict": "commands.predict",
    "rank": "commands.rank",
    "reader_study": "commands.readers",
    "run_study": "commands.run",
    "write_report": "commands.report",
    "score": "commands.score",
    "score_arrays": "commands.score",
    "summarise": "commands.summarise",
    "UserError": "errors",
    "Result": "results",
    "load_result": "results",
}
_OTHER_NAME = {"write_report": "report"}

__all__ = [
    "Cohort",
    "Result",
    "UserError",
    "__version__",
    "accept",
    "carry_threshold",
    "check",
    "check_bundle",
    "compare",
    "diff",
    "equivalence",
    "generalise",
    "list_models",
    "load_cohort",
    "load_result",
    "merge",
    "plan_sample",
    "plan_study",
    "predict",
    "rank",
    "read_cohort",
    "reader_study",
    "run_study",
    "score",
    "score_arrays",
    "summarise",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'elsewhere' has no attribute '{name}'")
    return getattr(import_module(f"elsewhere.{_WHERE[name]}"), _OTHER_NAME.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)
