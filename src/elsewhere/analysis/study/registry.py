"""Analyses of studies: functions that turn results into named tables, found by what a study ran.

An analysis is one function. It is called once for every task that it serves (or once for the whole study),
with a `Context`, and returns tables by name. Rows of several tasks are put below each other, with the column
`task`. Other packages register theirs by the entry-point group `elsewhere.study_analyses`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from elsewhere.errors import UserError
from elsewhere.registry import Registry, decorated, mark_registered

if TYPE_CHECKING:
    from elsewhere.analysis.study.context import Context

Tables = Mapping[str, pd.DataFrame]
Function = Callable[["Context"], Tables]


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """A registered analysis and when it runs.

    Args:
        name: Name under which it is listed.
        function: The function, which makes tables by name of a `Context`.
        tasks: The tasks that it serves; empty for every task.
        kinds: Kinds of scenarios, of which at least one must have run; empty for whatever ran.
        factors: Factors that at least one method must have, such as `input`; empty for any methods.
        probabilities: Whether it needs the probabilities of two classes, case by case.
        whole_study: Whether it is called once, with the context of the study's first task.
        after: Analyses whose tables it reads by `Context.table`.
    """

    name: str
    function: Function
    tasks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    probabilities: bool = False
    whole_study: bool = False
    after: tuple[str, ...] = ()

    def serves(self, context: Context) -> bool:
        """Decide whether the analysis can be run for a task of a study.

        Args:
            context: The context of the task.

        Returns:
            Whether its conditions hold.
        """
        if self.whole_study:
            return context.is_first
        ran = set(context.runs["kind"])
        factors = {name for method in context.methods.values() for name in method.factors}
        return (
            (not self.tasks or context.task in self.tasks)
            and (not self.kinds or bool(ran & set(self.kinds)))
            and set(self.factors) <= factors
            and (not self.probabilities or context.has_probabilities)
        )


analyses: Registry[Analysis] = Registry(
    "analysis of studies",
    group="elsewhere.study_analyses",
    check=decorated(Analysis, "analysis"),
    builtin_modules=(
        "elsewhere.analysis.study.cohort_tables",
        "elsewhere.analysis.study.leaderboard",
        "elsewhere.analysis.study.groups",
        "elsewhere.analysis.study.cases",
        "elsewhere.analysis.study.froc",
        "elsewhere.analysis.study.transfers",
        "elsewhere.analysis.study.averages",
        "elsewhere.analysis.study.calibration",
        "elsewhere.analysis.study.abstention",
        "elsewhere.analysis.study.selection",
        "elsewhere.analysis.study.published_comparison",
        "elsewhere.analysis.study.disclosure",
    ),
)


def analysis(
    name: str,
    *,
    tasks: tuple[str, ...] = (),
    kinds: tuple[str, ...] = (),
    factors: tuple[str, ...] = (),
    probabilities: bool = False,
    whole_study: bool = False,
    after: tuple[str, ...] = (),
) -> Callable[[Function], Function]:
    """Register a function as an analysis of studies.

    Args:
        name: Name under which it is listed.
        tasks: The tasks that it serves; default: every task.
        kinds: Kinds of scenarios, of which at least one must have run; default: whatever ran.
        factors: Factors that at least one method must have; default: any methods.
        probabilities: Whether it needs the probabilities of two classes.
        whole_study: Whether it is called once for a study instead of once per task.
        after: Analyses whose tables it reads.

    Returns:
        The decorator, which returns the function itself.

    Example:
        @analysis("constant", tasks=("signal",))
        def constant(context):
            return {"constant": pd.DataFrame({"value": [1.0]})}
    """

    def register(function: Function) -> Function:
        entry = Analysis(
            name=name,
            function=function,
            tasks=tasks,
            kinds=kinds,
            factors=factors,
            probabilities=probabilities,
            whole_study=whole_study,
            after=after,
        )
        mark_registered(function, entry)
        analyses.add(name, entry, owner=f"{function.__module__}:{function.__qualname__}")
        return function

    return register


def in_order() -> list[Analysis]:
    """List all analyses, each after those that it reads.

    Returns:
        The analyses.

    Raises:
        UserError: If one reads an analysis that is not registered, or two read each other.

    Example:
        >>> names = [one.name for one in in_order()]
        >>> names.index("averages") < names.index("comparison with published numbers")
        True
    """
    waiting = dict(analyses)
    done: dict[str, Analysis] = {}
    while waiting:
        ready = [name for name, one in waiting.items() if all(other in done for other in one.after)]
        if not ready:
            names = ", ".join(sorted(waiting))
            raise UserError(
                f"the analyses {names} wait for each other, or for analyses that are not registered"
            )
        for name in ready:
            done[name] = waiting.pop(name)
    return list(done.values())
