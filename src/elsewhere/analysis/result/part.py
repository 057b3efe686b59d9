"""Part of a cohort, chosen by its columns (`--where split=test`), with the flow of the cases left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError, near_matches
from elsewhere.predictions import Predictions
from elsewhere.scoring.task import Scores


@dataclass(frozen=True, kw_only=True)
class Part:
    """Part of a cohort that was chosen with `--where`. The audit still looks at the whole cohort, since a
    leak has two sides.

    Args:
        cohort: The chosen cases.
        whole: The cohort that they were chosen from.
        step: Entry of the flow that says how many cases were left out (`step`, `n`, `lost`, `why`); None
            where nothing was chosen.
        where: The columns and values that chose the cases.
    """

    cohort: Cohort
    whole: Cohort
    step: dict[str, Any] | None = None
    where: Mapping[str, str] = field(default_factory=dict)

    def predictions(self, said: Predictions) -> Predictions:
        """Leave out the rows of cases that were not chosen: they are neither missing nor extra.

        Args:
            said: The predictions of the whole cohort.

        Returns:
            The predictions of the chosen cases, with the step that says how many rows were left out.
        """
        if self.step is None:
            return said
        points = None if said.points is None else self.rows(said.points)
        kept = replace(said, table=self.rows(said.table), points=points)
        before = len(said.table if said.points is None else said.points)
        after = len(kept.table if kept.points is None else kept.points)
        if after == before:
            return kept
        step = {
            "step": f"rows of {self.step['step']}",
            "n": after,
            "lost": before - after,
            "why": "of cases left out by --where",
        }
        return replace(kept, flow=(*said.flow, step))

    def rows(self, table: pd.DataFrame) -> pd.DataFrame:
        """Leave out the rows of cases that were not chosen.

        Args:
            table: A table keyed by `case_id`.

        Returns:
            The table without them.
        """
        if self.step is None:
            return table
        left_out = set(self.whole.cases["case_id"].astype(str)) - set(
            self.cohort.cases["case_id"].astype(str)
        )
        return table[~table["case_id"].astype(str).isin(left_out)].reset_index(drop=True)

    def with_choice(self, scores: Scores) -> Scores:
        """Enter the choice into the flow of the cases, as their first loss.

        Args:
            scores: The scores.

        Returns:
            The same scores with the step.
        """
        if self.step is None:
            return scores
        flow = list(scores.flow)
        start = next((i for i, step in enumerate(flow) if step.get("of") == "cohort"), len(flow))
        flow[start : start + 1] = [
            {"step": "cohort cases", "n": len(self.whole.cases), "lost": 0, "why": "", "of": "cohort"},
            {**self.step, "of": "cohort"},
        ]
        return replace(scores, flow=tuple(flow))


def choose_part(cohort: Cohort, where: Mapping[str, str] | None) -> Part:
    """Choose the cases whose columns have the given values.

    Args:
        cohort: The cohort.
        where: The wanted values by column; None or empty for all cases.

    Returns:
        The part, with the step that says how many cases were left out.

    Raises:
        UserError: If the cohort lacks a column, or no case has a value; the message offers similar ones.
    """
    if not where:
        return Part(cohort=cohort, whole=cohort)
    keep = np.ones(len(cohort.cases), dtype=bool)
    for column, value in where.items():
        if column not in cohort.cases.columns:
            near = near_matches(column, [str(name) for name in cohort.cases.columns])
            raise UserError(
                f"the cohort has no column '{column}'",
                where="--where",
                fix=f"Did you mean {' or '.join(near)}?"
                if near
                else f"Columns: {', '.join(map(str, cohort.cases.columns))}.",
            )
        values = cohort.cases[column].astype("string")
        keep &= (values == value).fillna(False).to_numpy(dtype=bool)
        if not keep.any():
            known = sorted(values.dropna().unique().tolist())[:12]
            raise UserError(
                f"no case has {column} = {value}", where="--where", fix=f"Values: {', '.join(known)}."
            )
    named = ", ".join(f"{column} = {value}" for column, value in where.items())
    step = {
        "step": f"cohort cases with {named}",
        "n": int(keep.sum()),
        "lost": int((~keep).sum()),
        "why": "" if keep.all() else "left out by --where",
    }
    return Part(cohort=cohort.subset(keep), whole=cohort, step=step, where=dict(where))
