"""Does it still work elsewhere? External less internal, per dataset, with a word where a margin was declared.

The transfers of one source share one home value, and twelve transfers share four datasets. So the interval of
the drop is over sources: each source's mean transfer less its value at home is one observation. Over targets
(a foreign model against the one made there) the mean is the same and the pairing another; both are shown.

A word takes four sources. With two, the t interval has one degree of freedom and knows nothing of the patients
within a source: by luck it is tiny or endless. It is then a spread, and only the transfers keep their words.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from elsewhere.statistics.scenario import scenario_summary, signed_rank_test
from elsewhere.statistics.verdict import Verdict, judge
from elsewhere.study.analysis_design import Design
from elsewhere.study.analysis_scenarios import PAIRED_METRICS

ALPHA = 0.05
OVERALL = "overall"
SOURCES_NEEDED = 4
"""Fewer sources than this give no word for the study."""
CHANGE = (-1.0, 1.0)
"""A difference of two values in [0, 1] lies here."""


def main_mean(scenarios: pd.DataFrame, design: Design) -> pd.DataFrame:
    """Each scenario's mean over the main configurations: a scenario that lacks one of them is left out."""
    chosen = pd.MultiIndex.from_tuples(design.main, names=["model", "input"])
    part = scenarios[pd.MultiIndex.from_frame(scenarios[["model", "input"]]).isin(chosen)]
    keys = ["kind", "scenario", "source", "target"]
    grouped = part.groupby(keys, as_index=False)
    out = grouped[list(PAIRED_METRICS)].mean()
    whole = grouped.size()["size"] == len(design.main)
    return out[whole.to_numpy()].assign(model=OVERALL, input="")


def drop_table(scenarios: pd.DataFrame, design: Design) -> pd.DataFrame:
    """A row a configuration (and the overall one) and metric."""
    held = pd.concat([main_mean(scenarios, design), scenarios], ignore_index=True)
    rows = []
    order = [(OVERALL, ""), *design.configurations]
    for model, input_ in order:
        part = held[(held["model"] == model) & (held["input"] == input_)]
        for metric in PAIRED_METRICS:
            made = _drop(part, metric)
            if made is not None:
                rows.append({"model": model, "input": input_, "metric": metric, **made})
    return pd.DataFrame(rows)


def _drop(part: pd.DataFrame, metric: str) -> dict[str, Any] | None:
    home = part[part["kind"] == "internal"].set_index("target")[metric]
    away = part[part["kind"] == "external"]
    away = away[away["source"].isin(home.index) & away["target"].isin(home.index)]
    if home.empty or away.empty:
        return None
    out: dict[str, Any] = {
        "internal": float(home.mean()),
        "external": float(away[metric].mean()),
        "transfers": len(away),
    }
    for side in ("source", "target"):
        difference = away.groupby(side)[metric].mean() - home
        kept = difference.dropna().to_numpy()
        wide = scenario_summary(kept, bounds=CHANGE)
        narrow = scenario_summary(kept, bounds=CHANGE, level=1 - 2 * ALPHA)
        test = signed_rank_test(kept) if kept.size else None
        out |= {
            f"by_{side}": wide.value,
            f"by_{side}_lo": math.nan if wide.lo is None else wide.lo,
            f"by_{side}_hi": math.nan if wide.hi is None else wide.hi,
            f"by_{side}_lo90": math.nan if narrow.lo is None else narrow.lo,
            f"by_{side}_hi90": math.nan if narrow.hi is None else narrow.hi,
            f"by_{side}_n": int(kept.size),
            f"by_{side}_p": test.p if test and test.p is not None else math.nan,
            f"by_{side}_smallest_p": test.smallest_p if test and test.smallest_p is not None else math.nan,
        }
    ranges = []
    names = sorted(set(away["source"]) | set(away["target"]))
    for name in names:
        rest = away[(away["source"] != name) & (away["target"] != name)]
        if len(rest):
            ranges.append(float(rest[metric].mean() - home.drop(name).mean()))
    out["without_one_lo"] = min(ranges) if ranges else math.nan
    out["without_one_hi"] = max(ranges) if ranges else math.nan
    return out


def verdict(drop: pd.DataFrame, design: Design) -> dict[str, Any]:
    """The headline: the drop in AUROC over the main configurations, and the word a declared margin gives."""
    if drop.empty or "metric" not in drop.columns:
        return _not_assessed(
            "the study has not both internal and external scenarios, so there is no drop to tell"
        )
    rows = drop[(drop["metric"] == "auroc") & (drop["model"] == OVERALL)]
    if rows.empty:
        return _not_assessed("no scenario has a result of every main configuration")
    row = rows.iloc[0]
    out: dict[str, Any] = {
        "metric": "auroc",
        "internal": float(row["internal"]),
        "external": float(row["external"]),
        "difference": float(row["by_source"]),
        "lo": float(row["by_source_lo"]),
        "hi": float(row["by_source_hi"]),
        "lo90": float(row["by_source_lo90"]),
        "hi90": float(row["by_source_hi90"]),
        "sources": int(row["by_source_n"]),
        "transfers": int(row["transfers"]),
        "without_one": [float(row["without_one_lo"]), float(row["without_one_hi"])],
        "margin": design.verdict_margin,
        "alpha": ALPHA,
    }
    if out["sources"] < SOURCES_NEEDED or not np.isfinite([out["lo90"], out["hi90"]]).all():
        return out | _not_assessed(few_sources(out["sources"]))
    if design.verdict_margin is None:
        would = judge(out["lo90"], out["hi90"], 1e-9)
        return out | {
            "word": str(Verdict.NOT_ASSESSED),
            "reason": "the study declares no margin, so its numbers stand without a verdict",
            "word_below": str(would.word) if would.word in (Verdict.BELOW, Verdict.ABOVE) else None,
            "word_below_margin": would.flips_at if would.word in (Verdict.BELOW, Verdict.ABOVE) else None,
            "equivalent_from": max(abs(out["lo90"]), abs(out["hi90"])),
        }
    made = judge(out["lo90"], out["hi90"], design.verdict_margin)
    return out | {
        "word": str(made.word),
        "reason": made.reason,
        "non_inferior": made.non_inferior,
        "flips_at": made.flips_at,
        "flips_to": str(made.flips_to) if made.flips_to else None,
    }


def transfer_verdicts(transfers: pd.DataFrame, scenarios: pd.DataFrame, design: Design) -> pd.DataFrame:
    """Each transfer against its source's own value at home: the difference of two independent samples of
    patients with its 90 % interval, and the word where the study declares a margin (ST-05).

    The networks are taken as they were trained. Home is the internal scenario's: the same recipe on 70 % of
    the source, where a transfer trains on 85 %, so that a drop is, if anything, told too small.
    """
    if transfers.empty or "auroc_se" not in scenarios.columns:
        return transfers
    home = {
        (r["target"], r["model"], r["input"]): (r["auroc"], r["auroc_se"])
        for r in scenarios[scenarios["kind"] == "internal"].to_dict(orient="records")
    }
    away = {
        (r["source"], r["target"], r["model"], r["input"]): r["auroc_se"]
        for r in scenarios[scenarios["kind"] == "external"].to_dict(orient="records")
    }
    if not home:
        return transfers
    z = float(stats.norm.ppf(1 - ALPHA))
    rows = []
    for r in transfers.to_dict(orient="records"):
        at_home, se_home = home.get((r["source"], r["model"], r["input"]), (math.nan, math.nan))
        se = math.hypot(se_home, away[r["source"], r["target"], r["model"], r["input"]])
        change = r["auroc"] - at_home
        lo, hi = np.clip([change - z * se, change + z * se], *CHANGE)
        word = ""
        if design.verdict_margin is not None:
            word = str(judge(lo, hi, design.verdict_margin).word)
        rows.append({"home": at_home, "change": change, "change_lo90": lo, "change_hi90": hi, "word": word})
    return pd.concat([transfers, pd.DataFrame(rows)], axis=1)


def few_sources(sources: int) -> str:
    """Why so few give no word."""
    return (
        f"{sources} source{'' if sources == 1 else 's'}: a word over sources takes at least {SOURCES_NEEDED}, "
        "since with fewer their agreement is luck"
    )


def _not_assessed(reason: str) -> dict[str, Any]:
    return {"word": str(Verdict.NOT_ASSESSED), "reason": reason}
