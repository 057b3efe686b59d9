"""Groups of a board: the result in each, the gap between them, and what cannot be estimated (MRI-06, MRI-11,
MRI-12).

A variable that the cohort does not have, or has for few cases, stays in the tables with its reason. Cells of
one to four patients are withheld, as in every report of Elsewhere: their values would be those people's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.analysis.study.boards import SEED, Board
from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.registry import Tables, analysis
from elsewhere.errors import UserError
from elsewhere.privacy import SMALLEST_CELL, SUPPRESSED, is_withheld, suppress, suppress_counts, suppress_rows
from elsewhere.scoring.groups import GroupCodes, group_codes
from elsewhere.scoring.prepared import fairness_disparity
from elsewhere.statistics.fairness import fairness_report, overall_null, variable_report
from elsewhere.statistics.fairness.disparity import Disparity
from elsewhere.statistics.fairness.subgroups import CaseFacts, group_table
from elsewhere.statistics.fairness.variants import fairness_variants
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.strata import SizeStrata, size_strata, top_against_bottom
from elsewhere.untrusted import as_float

REPORTED = ("subtype", "vendor", "field_strength")
"""Reported, never scored (MRI-06)."""
CENTRES = ("dataset", "site")
SIZE = "tumour_size"
OVERALL = "all"
SMALL_GROUP = "a group under 5"
FEW_KNOWN = 0.5
"""Fairness over a variable that is known for fewer than this share of the cases cannot be estimated."""
MOST_PERMUTATIONS = 1000
_NAN = float("nan")


def codes_of(board: Board, variables: Sequence[str]) -> dict[str, GroupCodes]:
    """Group the cases of a board by variables, as the protocol groups them.

    Args:
        board: Methods of a task on the same cases.
        variables: Names of columns.

    Returns:
        The groups of each variable that the cases have; variables that cannot be grouped are left out.
    """
    out: dict[str, GroupCodes] = {}
    for variable in variables:
        if variable not in board.cases.columns:
            continue
        try:
            out[variable] = group_codes(board.cases, variable, board.protocol.fairness)
        except UserError:
            continue
    return out


def sizes_of(board: Board) -> SizeStrata | None:
    """Divide the tumours of a board into small, moderate and large by the 20th and 80th percentile of the
    true volume.

    Args:
        board: Methods of a task on the same cases.

    Returns:
        The size of each case; None where fewer than five volumes are known.
    """
    if "volume_truth_ml" not in board.cases.columns:
        return None
    volume = board.cases["volume_truth_ml"].to_numpy(dtype=float)
    return size_strata(volume, variable=SIZE) if (np.isfinite(volume) & (volume > 0)).sum() >= 5 else None


def known_table(board: Board) -> pd.DataFrame:
    """Count for how many cases of the board each variable is known, and say what can be estimated from it.

    Args:
        board: Methods of a task on the same cases.

    Returns:
        One row per variable that the protocol scores or that is reported, with the number of cases and
        groups, whether fairness over it can be estimated, and the reason where it cannot. Small counts are
        withheld.
    """
    rows = []
    total = len(board.cases)
    scored = board.protocol.fairness.variables
    for variable in (*scored, *REPORTED):
        coded = codes_of(board, [variable]).get(variable)
        known = total - coded.missing if coded else 0
        groups = sum(n > 0 for n in coded.sizes().values()) if coded else 0
        if coded is None:
            why = "the cohort has no such column"
        elif known == 0:
            why = "no case has a value"
        elif groups < 2:
            why = "one group only: a range needs two"
        elif known < FEW_KNOWN * total:
            why = (
                f"known for {suppress(known)} of {total} cases: fairness over it cannot be estimated for this cohort, and the "
                "score rests on those few"
            )
        else:
            why = ""
        rows.append(
            {
                "task": board.task,
                "board": board.name,
                "variable": variable,
                "scored": variable in scored,
                "known": suppress(known),
                "cases": total,
                "groups": groups,
                "estimable": groups >= 2 and known >= FEW_KNOWN * total,
                "reason": why,
            }
        )
    return pd.DataFrame(rows)


def group_rows(board: Board, *, resamples: int | None = None) -> pd.DataFrame:
    """Estimate each method within each group, size stratum and centre, with intervals; small cells are
    withheld.

    Args:
        board: Methods of a task on the same cases.
        resamples: Number of resamples of patients; None for the board's.

    Returns:
        One row per method, variable and group.
    """
    variables = (*board.protocol.fairness.variables, *REPORTED, *CENTRES)
    codes: list[Any] = list(codes_of(board, variables).values())
    sizes = sizes_of(board)
    codes += [sizes] if sizes is not None else []
    rows: list[dict[str, Any]] = []
    for entry in board.entries:
        have = {s.name for s in entry.evaluator.specs}
        table = group_table(
            entry.evaluator,
            board.partition,
            codes,
            rules=board.protocol.interval,
            resampling=Resampling(
                key=board.key, seed=SEED, resamples=board.resamples if resamples is None else resamples
            ),
            metrics=[m for m in board.metrics.grouped if m in have],
            facts=CaseFacts(truth=board.truth),
        )
        for variable, held in table.items():
            for group, row in suppress_rows(held)[0].items():
                rows.append(
                    {"task": board.task, "board": board.name, "method": entry.method, "variable": variable}
                    | {"group": group, **_flat(row)}
                )
    return pd.DataFrame(rows)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    out = {name: row[name] for name in ("cases", "patients", "positives") if name in row}
    out["withheld"] = isinstance(row.get("patients"), str) and row["patients"] == SUPPRESSED
    for name, made in row["metrics"].items():
        out |= {name: _number(made.get("value"))}
        out |= {f"{name}_lo": _number(made.get("lo")), f"{name}_hi": _number(made.get("hi"))}
    out["note"] = row.get("note", "")
    return out


def _number(value: Any) -> float:
    found = as_float(value)
    return _NAN if found is None else found


def fairness_tables(board: Board, *, resamples: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute the gap between the groups of each variable, with its null band, for each method (MRI-12).

    Beside the range stand the worst group, the best group and the spread. The scored variables of a method
    are one family of tests; subtype is reported and is not part of it.

    Args:
        board: Methods of a task on the same cases.
        resamples: Number of resamples and of permutations; 0 leaves out intervals and null bands.

    Returns:
        One row per method and variable, with one for all scored variables together; and one row per method
        and pair of groups.
    """
    rows: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    scored = codes_of(board, board.protocol.fairness.variables)
    codes = scored | codes_of(board, ("subtype",))
    for entry in board.entries:
        disparity = Disparity.over_seeds(
            [fairness_disparity(r.scores, r.evaluator, headline=board.main) for r in entry.ready]
        )
        about = {"task": board.task, "board": board.name, "method": entry.method}
        by: dict[str, Any] = {
            "key": board.key,
            "seed": SEED,
            "resamples": resamples,
            "by_site": board.protocol.interval.by_site,
        }
        report = fairness_report(disparity, board.partition, list(scored.values()), **by)
        for variable, coded in codes.items():
            made = report.get(variable) or variable_report(disparity, board.partition, coded, **by)
            rows.append(about | _row(made, coded, scored=variable in scored))
            few = {g for g, n in made["patients"].items() if 0 < n < SMALLEST_CELL}
            pairs += [
                about | {"variable": variable} | _pair(pair, withheld=bool({pair["a"], pair["b"]} & few))
                for pair in made["pairwise"]
            ]
        if scored and resamples > 0:
            band = overall_null(
                disparity, board.partition, list(scored.values()), rules=board.protocol.fairness,
                key=board.key, seed=SEED, permutations=resamples,
            )  # fmt: skip
            rows.append(
                about
                | {"variable": OVERALL, "scored": True, "metric": disparity.name, "gap": band.gap}
                | {"null_mean": band.mean, "null_upper": band.upper, "above_null": band.above, "p": band.p}
            )
    return pd.DataFrame(rows), pd.DataFrame(pairs)


def _row(made: Mapping[str, Any], coded: GroupCodes, *, scored: bool) -> dict[str, Any]:
    names = list(made["group_scores"])
    values = [_number(made["group_scores"][n]) for n in names]
    sizes = [made["sizes"][n] for n in names]
    variants = fairness_variants(values, names=names, sizes=sizes)
    few = {name for name, n in made["patients"].items() if 0 < n < SMALLEST_CELL}
    worst_few, best_few = variants.worst_name in few, variants.best_name in few
    groups = int(np.isfinite(values).sum())
    reason = made.get("undefined_reason", "")
    return {
        "variable": coded.variable,
        "scored": scored,
        "metric": made["metric"],
        "gap": _number(made["gap"]),
        "gap_lo": _number(made["gap_lo"]),
        "gap_hi": _number(made["gap_hi"]),
        "interval_without": "; ".join(map(str, made.get("gap_interval_without", ()))),
        "null_mean": _number(made["null_mean"]),
        "null_upper": _number(made["null_band_upper"]),
        "above_null": _number(made["gap_above_null"]),
        "p": _number(made["p"]),
        "p_holm": _number(made.get("p_holm")),
        "flagged": bool(made.get("flagged")),
        "range_based": variants.range_based,
        "worst_group_score": _NAN if worst_few else variants.worst_group,
        "best_group_score": _NAN if best_few else variants.best_group,
        "variance_based": variants.variance_based,
        "weighted_variance_based": variants.weighted_variance_based,
        "worst_group": SMALL_GROUP if worst_few else variants.worst_name,
        "best_group": SMALL_GROUP if best_few else variants.best_name,
        "groups": groups,
        "smallest_group": SUPPRESSED if few else made["smallest_group"],
        "missing": suppress(made["missing"]),
        "unestimable": "; ".join(f"{g}: {why}" for g, why in made["unestimable"].items()),
        "reason": reason,
        "note": coded.note,
    }


def _pair(pair: Mapping[str, Any], *, withheld: bool) -> dict[str, Any]:
    out = {"a": pair["a"], "b": pair["b"]}
    for name in ("difference", "lo", "hi"):
        out[name] = _NAN if withheld else _number(pair.get(name))
    out["surely_apart"] = bool(out["lo"] > 0 or out["hi"] < 0)
    out["reason"] = SMALL_GROUP if withheld else pair.get("undefined_reason", "")
    return out


def top_bottom(board: Board) -> pd.DataFrame:
    """Compare the five best methods with the five worst, overall, by size and by group (MRI-11).

    Args:
        board: Methods of a task on the same cases.

    Returns:
        One row per group, and one for all cases; empty with fewer than two methods, or where the main metric
        of a method is undefined.
    """
    if len(board.entries) < 2:
        return pd.DataFrame()
    metric = board.main
    if not np.isfinite(board.values(metric)).all():
        return pd.DataFrame()
    by: list[Any] = [s for s in (sizes_of(board),) if s is not None]
    by += list(codes_of(board, (*board.protocol.fairness.variables, "subtype", "dataset")).values())
    rows: list[dict[str, Any]] = []
    for coded in by:
        made = top_against_bottom(
            board.evaluators, board.partition, metric, coded, names=board.names, resampling=Resampling(key=board.key, seed=SEED, resamples=board.resamples),
            by_site=board.protocol.interval.by_site,
        )  # fmt: skip
        for group, row in made["strata"].items():
            if group == "all" and rows:
                continue
            few = 0 < int(row.get("patients", 0)) < SMALLEST_CELL
            rows.append(
                {
                    "task": board.task,
                    "board": board.name,
                    "metric": metric,
                    "count": made["count"],
                    "top": ", ".join(made["top"]),
                    "bottom": ", ".join(made["bottom"]),
                    "variable": OVERALL if group == "all" else coded.variable,
                    "group": group,
                    "patients": suppress(row.get("patients", 0)),
                    **{
                        n: _NAN if few else _number(row.get(k))
                        for n, k in (
                            ("top_value", "top"),
                            ("bottom_value", "bottom"),
                            ("gap", "gap"),
                            ("lo", "lo"),
                            ("hi", "hi"),
                        )
                    },
                }
            )
    return pd.DataFrame(rows)


def size_mix(board: Board) -> pd.DataFrame:
    """Count the small, moderate and large tumours of each dataset: a drop may come from the case mix
    (MRI-11).

    Args:
        board: Methods of a task on the same cases.

    Returns:
        One row per dataset; empty where sizes or datasets are not known. Small counts are withheld.
    """
    sizes = sizes_of(board)
    if sizes is None or "dataset" not in board.cases.columns:
        return pd.DataFrame()
    rows = []
    for dataset, at in board.cases.groupby("dataset", sort=True).indices.items():
        codes = sizes.codes[at]
        held = {name: int((codes == g).sum()) for g, name in enumerate(sizes.names)}
        known = sum(held.values())
        row: dict[str, Any] = {
            "task": board.task,
            "board": board.name,
            "dataset": dataset,
            "cases": suppress(known),
        }
        shown = suppress_counts(held)
        row |= shown
        withheld = not known or any(is_withheld(n) for n in shown.values())
        row |= {f"{name}_share": _NAN if withheld else n / known for name, n in held.items()}
        rows.append(row | {"edge_low_ml": sizes.edges[0], "edge_high_ml": sizes.edges[1]})
    return pd.DataFrame(rows)


@analysis("groups")
def groups(context: Context) -> Tables:
    """Judge the methods of the leading board group by group.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The tables `known`, `groups`, `fairness`, `group_pairs`, `top_and_bottom` and `size_mix`; nothing
        without a board.
    """
    board = context.leading
    if board is None:
        return {}
    fairness, pairs = fairness_tables(board, resamples=min(context.resamples, MOST_PERMUTATIONS))
    return {
        "known": known_table(board),
        "groups": group_rows(board),
        "fairness": fairness,
        "group_pairs": pairs,
        "top_and_bottom": top_bottom(board),
        "size_mix": size_mix(board),
    }
