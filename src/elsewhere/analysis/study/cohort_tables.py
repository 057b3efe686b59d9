"""Tables of a whole study: its datasets, its runs, and what was skipped or failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.published import Reference, reference
from elsewhere.analysis.study.registry import Tables, analysis
from elsewhere.cohort.published import published as published_dataset
from elsewhere.privacy import suppress_counts
from elsewhere.study.results import Results

LABELS = ("benign", "malignant", "normal")
CLINICAL = ("age", "menopausal_status", "breast_density", "subtype")


@analysis("datasets and runs", whole_study=True)
def cohort_tables(context: Context) -> Tables:
    """Describe the cohort, and list the runs and what has no result.

    Args:
        context: Any task of the study.

    Returns:
        The tables `datasets`, `runs` and `skipped`.
    """
    results = context.results
    name = results.study.analyses.reference
    return {
        "datasets": datasets_table(results, reference(name) if name else None),
        "runs": results.runs,
        "skipped": skipped_table(results),
    }


def datasets_table(results: Results, published: Reference | None = None) -> pd.DataFrame:
    """Describe each dataset: patients, sites, labels, outcomes, masks, and how far its patient ids can be
    trusted.

    Args:
        results: Results of the study.
        published: A published study, whose counts are put into columns of their own; None for none.

    Returns:
        One row per dataset. Counts under five are suppressed, except of public datasets, whose counts are
        public.
    """
    cases = results.cohort.cases
    about = results.audit.get("cohorts")
    about = about if isinstance(about, Mapping) else {}
    order = list(dict.fromkeys([*map(str, about), *map(str, cases["dataset"].unique())]))
    printed = published.rows("datasets", "dataset") if published else {}
    groups = {str(name): part for name, part in cases.groupby(cases["dataset"].astype("string").fillna(""))}
    rows = []
    for name in order:
        if name not in groups:
            continue
        part = groups[name]
        row: dict[str, Any] = {"dataset": name, "cases": len(part)}
        row |= {"patients": int(part["patient_id"].nunique())}
        row |= {"sites": int(part["site"].nunique()) if "site" in part.columns else 0}
        row |= _labels(part, public=published_dataset(name) is not None) | _outcomes(part)
        row |= _lesions(part, results.cohort.lesions)
        grade = results.cohort.id_grades.get(name)
        entry = about.get(name)
        entry = entry if isinstance(entry, Mapping) else {}
        row["id_grade"] = entry.get("id_grade") or (grade.grade if grade else "")
        row["id_grade_why"] = entry.get("id_grade_why") or (grade.why if grade else "")
        if (name,) in printed:
            theirs = printed[name,]
            row |= {
                "published_lesion_images": int(theirs["lesion_images"]),
                "published_normal": int(theirs["normal_images"]),
                "published_patients": int(theirs["patient_ids"]),
            }
        rows.append(row)
    return pd.DataFrame(rows)


def _labels(part: pd.DataFrame, *, public: bool) -> dict[str, Any]:
    """Images by label, and patients with both, of a dataset with benign and malignant lesions."""
    label = (
        part["label"].astype("string").fillna("") if "label" in part.columns else pd.Series(dtype="string")
    )
    if not label.isin(LABELS).any():
        return {}
    lesions = part[label.isin(LABELS[:2])]
    both = lesions.groupby("patient_id")["label"].nunique()
    counts: dict[str, Any] = {name: int((label == name).sum()) for name in LABELS}
    return {
        "lesion_images": len(lesions),
        **(counts if public else suppress_counts(counts)),
        "both_labels": int((both > 1).sum()),
    }


def _outcomes(part: pd.DataFrame) -> dict[str, Any]:
    """How many outcomes and masks of a dataset are known; small cells are suppressed."""
    row: dict[str, Any] = {}
    if "pcr" in part.columns:
        known = pd.to_numeric(part["pcr"], errors="coerce").dropna()
        split = suppress_counts({"pcr": int((known > 0).sum()), "no_pcr": int((known == 0).sum())})
        row |= {"outcome_known": len(known), **split}
    if "mask" in part.columns:
        row["masks"] = int(part["mask"].notna().sum())
    return row | {f"{name}_known": int(part[name].notna().sum()) for name in CLINICAL if name in part.columns}


def _lesions(part: pd.DataFrame, lesions: pd.DataFrame | None) -> dict[str, Any]:
    """How many cases of a dataset have annotated lesions; small cells are suppressed."""
    if lesions is None:
        return {}
    there = part["case_id"].astype("string").isin(lesions["case_id"].astype("string"))
    return suppress_counts({"with_lesions": int(there.sum()), "without_lesions": int((~there).sum())})


def skipped_table(results: Results) -> pd.DataFrame:
    """List scenarios that could not be split and runs that failed, with reasons.

    Args:
        results: Of the study.

    Returns:
        One row per scenario and seed, or per failed run.
    """
    parts = [results.skipped] if len(results.skipped) else []
    failed = results.runs[results.runs["status"] == "failed"]
    if len(failed):
        columns = ["scenario", "seed", "task", "method", "reason"]
        parts.append(failed[columns].assign(reason="failed: " + failed["reason"].astype(str)))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
