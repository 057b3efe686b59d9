"""The page of curated sets, from what was curated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.commands.curate.result import Clustering, CurateReport, group_words
from elsewhere.curation.audit import ATTRIBUTES
from elsewhere.curation.clusters import GROUP_WORDS, GroupClusters
from elsewhere.curation.sets import patch_ranks
from elsewhere.inputs.patches.store import PatchSet
from elsewhere.report.curation import (
    MOST_POINTS,
    ClusteringSection,
    CurationPage,
    GroupFigures,
    write_page,
)

SAMPLE_PX = 96
MOST_SAMPLES = 240
"""Sample patches on a page, so that it stays under 2 MB."""


def write_curation_page(
    report: CurateReport, path: Path, *, rows: pd.DataFrame, patches: PatchSet | None, samples: int = 0
) -> None:
    """Write the page.

    Args:
        report: What was curated.
        path: The file.
        rows: The patches.
        patches: Their pixels; None where there is no store.
        samples: Patches of each cluster that are shown.

    Raises:
        FileSystemError: The system refuses.
    """
    ranks = patch_ranks(rows, report.settings["sets"]["seed"])
    clusters = sum(group.number for one in report.clusterings for group in one.groups)
    notes = []
    if samples and patches is not None and samples * clusters > MOST_SAMPLES:
        fewer = max(1, MOST_SAMPLES // max(clusters, 1))
        notes.append(
            f"{fewer} sample patches of each cluster are shown, not {samples}, so that the page stays small."
        )
        samples = fewer
    if not samples:
        notes.append("No sample patches are shown, as pages hold no pixels unless asked (--sample-patches).")
    elif patches is None:
        notes.append("No sample patches are shown, as no store of patches was named.")
    pictures = sum(group.points is not None for one in report.clusterings for group in one.groups)
    most = MOST_POINTS // max(pictures, 1)
    page = CurationPage(
        masthead=[f"{report.counts['patches']:,} patches", f"{len(report.sets)} sets"],
        clusterings=[_section(one, rows, patches, (ranks, most, samples)) for one in report.clusterings],
        sets=[
            {
                "name": one.name,
                "patches": one.quotas.size,
                **one.quotas.groups(),
                "PT": one.quotas.partial,
                "of_set": one.partial_of_set,
                "of_tumour": one.partial_of_tumour,
                "slides": one.to_dict()["slides"],
                "hash": one.hash,
                "remarks": one.remarks,
            }
            for one in report.sets
        ],
        warnings=_without_names(report),
        notes=notes,
    )
    write_page(page, path)


def _without_names(report: CurateReport) -> list[str]:
    """What a reader must know, without the slides that a note may name."""
    named = [leak.what for leak in report.leaks]
    kept = [note for note in report.all_notes() if not any(what in note for what in named)]
    between = sum(leak.is_between_folds for leak in report.leaks)
    if between:
        kept.append(
            f"{between} pairs of slides of different patients show the same tissue: keep each pair in one fold."
        )
    return kept


def _section(
    clustering: Clustering,
    rows: pd.DataFrame,
    patches: PatchSet | None,
    shown: tuple[npt.NDArray[np.int64], int, int],
) -> ClusteringSection:
    group_of = rows["group"].to_numpy(dtype=str)
    return ClusteringSection(
        name=clustering.name,
        words=clustering.words,
        groups=[
            _group(group, np.flatnonzero(group_of == group.group), patches, shown)
            for group in clustering.groups
        ],
        sentences=clustering.sentences(),
        audit=[
            {
                **row.to_dict(),
                "attribute": ATTRIBUTES[row.attribute],
                **{
                    name: None if np.isnan(value := getattr(row, name)) else value
                    for name in ("information", "chance", "p_value", "purity", "guessing")
                },
            }
            for row in clustering.audit
        ],
    )


def _group(
    group: GroupClusters,
    inside: npt.NDArray[np.int64],
    patches: PatchSet | None,
    shown: tuple[npt.NDArray[np.int64], int, int],
) -> GroupFigures:
    ranks, most, samples = shown
    numbers = sorted(group.indices)
    points = labels = None
    if group.points is not None:
        first = np.argsort(ranks[inside], kind="stable")[:most]
        points = group.points[first][:, :2]
        if points.shape[1] < 2:
            points = np.concatenate([points, np.zeros((len(points), 1))], axis=1)
        labels = group.labels[first]
    pictures: list[npt.NDArray[np.uint8]] = []
    if samples and patches is not None:
        for cluster in range(group.number):
            members = inside[group.labels == cluster]
            chosen = members[np.argsort(ranks[members], kind="stable")[:samples]]
            pictures.append(_small(patches.batch(chosen)))
    return GroupFigures(
        name=group.group,
        title=f"{group.group}: {GROUP_WORDS[group.group]}",
        words=f"{group_words(group)[:1].upper()}{group_words(group)[1:]}.",
        numbers=numbers,
        harabasz=[group.indices[n].calinski_harabasz for n in numbers],
        davies=[group.indices[n].davies_bouldin for n in numbers],
        entropy=[group.indices[n].entropy for n in numbers],
        chosen=None if group.choice is None else group.choice.clusters,
        points=points,
        labels=labels,
        samples=pictures,
    )


def _small(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    from PIL import Image

    side = min(SAMPLE_PX, pixels.shape[1])
    return np.stack(
        [np.asarray(Image.fromarray(one).resize((side, side), Image.Resampling.BOX)) for one in pixels]
    )
