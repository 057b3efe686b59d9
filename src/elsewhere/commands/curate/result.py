"""What `curate` made, and what it would make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.curation.allocation import Quotas
from elsewhere.curation.audit import AuditRow, Stability, sentences_of
from elsewhere.curation.clusters import GroupClusters
from elsewhere.curation.leaks import KINDS, Leak
from elsewhere.curation.sets import CuratedSet
from elsewhere.errors import EXIT_OK

_MOST_SHOWN = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Clustering:
    """The clusters of all groups by one kind of features.

    Attributes:
        name: What it is called.
        words: What the features are.
        digest: What names them: the encoder's digest, or that of the table.
        labels: The cluster of each patch within its group, from 0.
        shares: How much of the patch belongs to it.
        groups: The clusters by group.
        hash: The hash of which patch is in which cluster.
        audit: The clusters against slides, patients, hospitals, sharpness and stain.
        stability: Whether they are found again.
    """

    name: str
    words: str
    digest: str
    labels: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]
    groups: tuple[GroupClusters, ...]
    hash: str
    audit: tuple[AuditRow, ...] = ()
    stability: tuple[Stability, ...] = ()

    def sentences(self) -> list[str]:
        """Say what the clusters are.

        Returns:
            One sentence per group and question.
        """
        return sentences_of(self.audit, self.stability)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON; no patch.

        Returns:
            The choice, the audit and the sentences.
        """
        return {
            "name": self.name,
            "features": self.words,
            "features_digest": self.digest,
            "hash": self.hash,
            "groups": [one.to_dict() for one in self.groups],
            "audit": [row.to_dict() for row in self.audit],
            "stability": [one.to_dict() for one in self.stability],
            "sentences": self.sentences(),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class CurateReport:
    """What was curated.

    Attributes:
        out: The folder that was written.
        table_hash: The hash of the patch table.
        counts: Patches that were used and left out.
        settings: How it was done.
        clusterings: The clusterings; that of a single cluster is not among them.
        sets: The training sets.
        leaks: What training and test shared.
        notes: What a reader must know.
    """

    out: Path
    table_hash: str
    counts: Mapping[str, int]
    settings: Mapping[str, Any]
    clusterings: tuple[Clustering, ...]
    sets: tuple[CuratedSet, ...]
    leaks: tuple[Leak, ...] = ()
    notes: tuple[str, ...] = ()

    exit_code = EXIT_OK

    def all_notes(self) -> list[str]:
        """List what a reader must know, of the run and of the clusters.

        Returns:
            Sentences.
        """
        return [
            *self.notes,
            *(
                f"{one.name}: {note}"
                for one in self.clusterings
                for group in one.groups
                for note in group.notes
            ),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The clusterings, the sets with their hashes, and the notes.
        """
        return {
            "out": str(self.out),
            "patch_table_hash": self.table_hash,
            "counts": dict(self.counts),
            "settings": dict(self.settings),
            "clusterings": [one.to_dict() for one in self.clusterings],
            "sets": [one.to_dict() for one in self.sets],
            "shared_with_test": [{"kind": leak.kind, "what": leak.what} for leak in self.leaks],
            "notes": self.all_notes(),
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        counts = self.counts
        yield f"{counts['patches']:,} patches for training of {counts['rows']:,} in the table"
        yield from _leak_lines(self.leaks, left_out=counts.get("shared with the test", 0))
        for one in self.clusterings:
            yield f"{one.name}: {one.words}"
            for group in one.groups:
                yield f"  {group.group}: {group_words(group)}"
            for sentence in one.sentences():
                yield f"  {sentence}"
        yield f"{len(self.sets)} sets:"
        for made in self.sets:
            yield f"  {set_words(made)}"
        for remark, names in _remarks(self.sets).items():
            yield f"  {_names(names, len(self.sets))}: {remark}"
        for note in self.all_notes():
            yield f"warning: {note}"
        yield f"written: {self.out}"


@dataclass(frozen=True, kw_only=True)
class EstimateReport:
    """What would be curated.

    Attributes:
        out: The folder that would be written.
        patches: Patches for training.
        groups: The same by group.
        missing: Features that are not computed yet, by name.
        plans: The patches of the sets by share.
        clusterings: The names of the clusterings.
        leaks: What training and test share.
        notes: What a reader must know.
    """

    out: Path
    patches: int
    groups: Mapping[str, int]
    missing: Mapping[str, int]
    plans: Mapping[str, Quotas]
    clusterings: tuple[str, ...]
    leaks: tuple[Leak, ...] = ()
    notes: tuple[str, ...] = field(default=())

    exit_code = EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The counts and the plans.
        """
        return {
            "out": str(self.out),
            "patches": self.patches,
            "groups": dict(self.groups),
            "features_to_compute": dict(self.missing),
            "clusterings": list(self.clusterings),
            "sets": {
                share: {"patches": quotas.size, **quotas.groups(), "PT": quotas.partial, "FT": quotas.full}
                for share, quotas in self.plans.items()
            },
            "shared_with_test": [{"kind": leak.kind, "what": leak.what} for leak in self.leaks],
            "notes": list(self.notes),
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        groups = ", ".join(f"{name} {count:,}" for name, count in self.groups.items())
        yield f"{self.patches:,} patches for training ({groups})"
        yield from _leak_lines(self.leaks)
        for name, count in self.missing.items():
            yield f"{name}: features of {count:,} patches to compute"
        yield f"{len(self.plans) * len(self.clusterings)} sets, for each of {', '.join(self.clusterings)}:"
        for share, quotas in self.plans.items():
            parts = ", ".join(f"{name} {count:,}" for name, count in quotas.groups().items())
            yield (
                f"  {share_words(share)}: {quotas.size:,} patches ({parts}; PT {quotas.partial:,}, FT {quotas.full:,})"
            )
        for note in self.notes:
            yield f"warning: {note}"
        yield "nothing was written"


def group_words(group: GroupClusters) -> str:
    """Describe the clusters of a group.

    Args:
        group: The clusters.

    Returns:
        Their number, why it was chosen, and their sizes.
    """
    sizes = ", ".join(f"{size:,}" for size in group.sizes())
    if not group.sizes():
        return "no patches"
    number = f"{group.number} cluster{'' if group.number == 1 else 's'} of {sizes} patches"
    return f"{number}; {group.choice.reason}" if group.choice is not None else number


def share_words(share: str) -> str:
    """Describe a share of partly tumour patches.

    Args:
        share: Per cent, or "natural".

    Returns:
        Such as "20 %".

    Example:
        >>> share_words("20"), share_words("natural")
        ('20 %', 'natural')
    """
    return share if not share[:1].isdigit() else f"{share} %"


def set_words(made: CuratedSet) -> str:
    """Describe a set in one line.

    Args:
        made: The set.

    Returns:
        Its name, patches, shares and the beginning of its hash.
    """
    quotas = made.quotas
    parts = ", ".join(f"{name} {count:,}" for name, count in quotas.groups().items())
    return (
        f"{made.name}: {quotas.size:,} patches ({parts}), partly tumour {made.partial_of_set:.1%} of the set and "
        f"{made.partial_of_tumour:.1%} of tumour, hash {made.hash[:12]}"
    )


def _leak_lines(leaks: tuple[Leak, ...], *, left_out: int = 0) -> Iterator[str]:
    for kind, words in KINDS.items():
        some = [leak.what for leak in leaks if leak.kind == kind]
        if some:
            more = f" and {len(some) - _MOST_SHOWN} more" if len(some) > _MOST_SHOWN else ""
            yield f"{len(some)} {words}: {'; '.join(some[:_MOST_SHOWN])}{more}"
    if left_out:
        yield f"{left_out:,} patches of their slides were left out of training"


def _remarks(sets: tuple[CuratedSet, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in sets:
        for remark in one.remarks:
            found.setdefault(remark, []).append(one.name)
    return found


def _names(names: list[str], every: int) -> str:
    if len(names) == every:
        return "all sets"
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
