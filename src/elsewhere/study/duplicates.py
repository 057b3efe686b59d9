"""Near-duplicates of a study's pictures (US-30), found once and kept: which rows must stay on one side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.study.file import StudyFile
from elsewhere.study.pictures import Report
from elsewhere.tables import to_jsonable, write_json

Links = list[tuple[int, int]]


def duplicate_links(
    file: StudyFile,
    cohorts: Mapping[str, Cohort],
    frame: pd.DataFrame,
    *,
    digests: Mapping[str, str],
    cache: Path | None,
    progress: Report | None = None,
) -> tuple[Links, dict[str, Any]]:
    """Find the pairs of pictures that show the same, so that no split parts them (US-30).

    The search takes a while: its result is kept in the cache, by the cohorts, the digests and the code that
    searches.

    Args:
        file: The study; with `keep_duplicates_together = false` nothing is searched.
        cohorts: The cohorts of pictures, by the name of their first dataset.
        frame: The study table, with the column case.
        digests: The digest of each case's picture.
        cache: The folder where results are kept; None: the search is done anew.
        progress: Called with what is done, how much, and how much there is; None: nobody is told.

    Returns:
        The pairs as positions in `frame`, and what the audit says of them: whether duplicates are kept
        together, the pairs with their kind and distance, counts, warnings, and the calibration of the search.
    """
    if not file.study.scenarios.keep_duplicates_together:
        return [], {"kept_together": False, "why": "not searched for: keep_duplicates_together = false"}
    found = _found(cohorts, digests, cache, progress)
    row = {case: at for at, case in enumerate(frame["case"])}
    pairs = [pair for pair in found["pairs"] if pair[0] in row and pair[1] in row]
    told = {name: found[name] for name in ("counts", "warnings", "calibration")}
    return [(row[a], row[b]) for a, b, *_ in pairs], {"kept_together": True, "pairs": pairs} | told


def _code() -> str:
    """Of the search itself: another version of it may find other pairs."""
    import elsewhere.cohort

    digest = hashlib.sha256()
    for path in sorted(Path(elsewhere.cohort.__file__).parent.glob("duplicates*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _found(
    cohorts: Mapping[str, Cohort], digests: Mapping[str, str], cache: Path | None, progress: Report | None
) -> dict[str, Any]:
    """Searched once for the same cohorts and the same pictures: it takes a while."""
    content = [_code(), sorted(cohort.hash for cohort in cohorts.values()), sorted(digests.items())]
    name = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]
    path = cache / f"duplicates-{name}.json" if cache is not None else None
    if path is not None:
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            if {"pairs", "counts", "warnings", "calibration"} <= set(held):
                return dict(held)
        except (OSError, ValueError, TypeError):
            pass
    from elsewhere.cohort.duplicates import find_duplicates

    found = find_duplicates(list(cohorts.values()), progress=progress)
    pairs = [
        [f"{p.dataset_a}/{p.case_a}", f"{p.dataset_b}/{p.case_b}", p.kind, p.relation, p.distance]
        for p in found.pairs.itertuples(index=False)
    ]
    told: dict[str, Any] = to_jsonable(
        {
            "pairs": pairs,
            "counts": found.counts(),
            "warnings": found.warnings,
            "calibration": found.calibration,
        }
    )
    if path is not None:
        write_json(told, path)
    return told
