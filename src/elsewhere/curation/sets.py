"""Training sets drawn evenly over groups and clusters: one for each clustering and each share of partly tumour patches (LN-07).

Every patch has a rank: the SHA-256 of the seed, its dataset, its case and its place. A set takes the patches of lowest rank of
each group, cluster and type. The rank does not depend on the other patches, on the clusters or on the share, so that two sets
have as many patches in common as their numbers allow, and the same seed gives the same set on every machine.

A manifest is a patch table: what reads patch tables can train on it. It has the hash of its rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort.patch_table import rows_hash
from elsewhere.curation.allocation import (
    FULL,
    NATURAL,
    PARTIAL,
    SHARES,
    Quotas,
    fill_evenly,
    plan_quotas,
    read_share,
    spread_over_clusters,
)
from elsewhere.curation.clusters import GROUPS
from elsewhere.errors import UserError, check_seed

SIZE = 35_000
SINGLE = "single"
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SetSettings:
    """How sets are drawn.

    Attributes:
        size: Patches per set, at most.
        shares: Shares of partly tumour patches, in per cent or "natural".
        of: "set": the shares are of the set; "tumour": of its tumour patches.
        same_size: Whether all sets have the size of the smallest, so that they differ in nothing else.
        seed: Seed of the ranks.

    Raises:
        UserError: A share cannot be read or is there twice, or a number is not possible.
    """

    size: int = SIZE
    shares: tuple[str, ...] = SHARES
    of: str = "set"
    same_size: bool = True
    seed: int = 42

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if not self.shares:
            raise UserError("no share of partly tumour patches was given")
        known: dict[Fraction | None, str] = {}
        for text in self.shares:
            share = read_share(text)
            if share in known:
                raise UserError(f"the share {text} was given twice")
            known[share] = text
        if self.size < 1:
            raise UserError(f"sets of {self.size} patches were asked for", fix="Give 1 or more.")


@dataclass(frozen=True, kw_only=True, eq=False)
class CuratedSet:
    """A training set.

    Attributes:
        clustering: The clustering.
        share: The share of partly tumour patches that was asked for, in per cent, or "natural".
        rows: The rows of the patch table that it holds.
        quotas: Its patches by group and type.
        clusters: By group, the patches of each cluster that it holds.
        hash: The hash of its rows.
        remarks: What could not be reached, as sentences.
    """

    clustering: str
    share: str
    rows: pd.DataFrame
    quotas: Quotas
    clusters: Mapping[str, tuple[int, ...]]
    hash: str
    remarks: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it is called, such as "imagenet-20"."""
        return f"{self.clustering}-{self.share}"

    @property
    def partial_of_set(self) -> float:
        """The share of its patches that are partly tumour."""
        return self.quotas.partial / self.quotas.size

    @property
    def partial_of_tumour(self) -> float:
        """The share of its tumour patches that are partly tumour."""
        return self.quotas.partial / self.quotas.tumour if self.quotas.tumour else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return what it is as plain values for JSON; no patch.

        Returns:
            Its numbers, and its hash.
        """
        quotas = self.quotas
        per_slide = self.rows.groupby(["dataset", "case_id"], dropna=False).size()
        return {
            "name": self.name,
            "clustering": self.clustering,
            "share": self.share,
            "hash": self.hash,
            "patches": quotas.size,
            "groups": quotas.groups(),
            "types": {
                PARTIAL: quotas.partial,
                FULL: quotas.full,
                "FN": quotas.normal + quotas.normal_of_tumour,
            },
            "partial_of_set": self.partial_of_set,
            "partial_of_tumour": self.partial_of_tumour,
            "clusters": {group: list(counts) for group, counts in self.clusters.items()},
            "slides": len(per_slide),
            "patients": int(self.rows[["dataset", "patient_id"]].drop_duplicates().shape[0]),
            "most_of_one_slide": int(per_slide.max()),
            "remarks": list(self.remarks),
        }


def canonical_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Put the rows of a patch table into an order that depends on the patches alone.

    Args:
        rows: The rows.

    Returns:
        The rows by dataset, case, row and column of the grid, numbered from 0.

    Raises:
        UserError: A patch is in the table twice.
    """
    keys = pd.DataFrame({
        "dataset": rows["dataset"].fillna("").astype(str), "case_id": rows["case_id"].astype(str),
        "j": rows["j"], "i": rows["i"],
    })  # fmt: skip
    twice = keys.duplicated()
    if twice.any():
        one = keys[twice].iloc[0]
        raise UserError(
            f"{int(twice.sum()):,} patches are in the table twice, such as column {one['i']}, row {one['j']} of "
            f"{one['case_id']}"
        )
    return rows.loc[keys.sort_values(["dataset", "case_id", "j", "i"], kind="stable").index].reset_index(
        drop=True
    )


def patch_ranks(rows: pd.DataFrame, seed: int) -> Whole:
    """Rank patches by the SHA-256 of the seed and of what they are called.

    Args:
        rows: The rows of a patch table.
        seed: The seed.

    Returns:
        The rank of each row, from 0.

    Example:
        >>> rows = pd.DataFrame({"dataset": ["A"] * 3, "case_id": ["c"] * 3, "i": [0, 1, 2], "j": [0, 0, 0]})
        >>> patch_ranks(rows, 1).tolist()
        [1, 2, 0]
    """
    parts = zip(
        rows["dataset"].fillna("").astype(str), rows["case_id"].astype(str), rows["i"], rows["j"], strict=True
    )
    digests = [
        hashlib.sha256(f"{seed}\0{dataset}\0{case}\0{i}\0{j}".encode("utf-8", "surrogatepass")).digest()
        for dataset, case, i, j in parts
    ]
    ranks = np.empty(len(digests), np.int64)
    ranks[sorted(range(len(digests)), key=digests.__getitem__)] = np.arange(len(digests))
    return ranks


def plan_sets(rows: pd.DataFrame, settings: SetSettings | None = None) -> dict[str, Quotas]:
    """Plan how many patches of each group and type the sets have; the clusters do not matter for that.

    Args:
        rows: Patches that may be drawn, with the columns of a patch table; those of `training` alone count.
        settings: How sets are drawn; None for the defaults.

    Returns:
        The numbers by share.

    Raises:
        UserError: There are no tumour or no normal patches, or a share cannot be reached at all.
    """
    settings = settings or SetSettings()
    available = _count_available(_drawn_types(rows), rows["training"].to_numpy(bool))
    _check_available(available)

    def planned(size: int) -> dict[str, Quotas]:
        return {
            text: plan_quotas(size, read_share(text), available, of=settings.of) for text in settings.shares
        }

    plans = planned(settings.size)
    return planned(min(plan.size for plan in plans.values())) if settings.same_size else plans


def draw_sets(
    rows: pd.DataFrame, clusterings: Mapping[str, Whole], settings: SetSettings | None = None
) -> list[CuratedSet]:
    """Draw one set for each clustering and each share.

    Args:
        rows: Patches that may be drawn, with the columns of a patch table; those of `training` alone count.
        clusterings: By name, the cluster of each row within its group.
        settings: How sets are drawn; None for the defaults.

    Returns:
        The sets, clustering by clustering.

    Raises:
        UserError: There are no tumour or no normal patches, or a share cannot be reached at all.
    """
    settings = settings or SetSettings()
    usable = rows["training"].to_numpy(bool)
    types = _drawn_types(rows)
    available = _count_available(types, usable)
    plans = plan_sets(rows, settings)
    ranks = patch_ranks(rows, settings.seed)
    made = []
    for clustering, labels in clusterings.items():
        for text, planned in plans.items():
            drawn, clusters, remarks = _draw(types, labels, usable, ranks, planned, natural=text == NATURAL)
            held = rows.iloc[drawn].reset_index(drop=True)
            partial = int((types[drawn] == PARTIAL).sum())
            quotas = replace(planned, partial=partial, full=planned.tumour - partial)
            made.append(
                CuratedSet(
                    clustering=clustering,
                    share=text,
                    rows=held,
                    quotas=quotas,
                    clusters=clusters,
                    hash=rows_hash(held),
                    remarks=(*_remarks(quotas, settings, available), *remarks),
                )
            )
    return made


def _drawn_types(rows: pd.DataFrame) -> npt.NDArray[np.str_]:
    """PT and FT of tumour patches, NT and NN of normal ones; empty for what is not known."""
    group = rows["group"].fillna("").to_numpy(dtype=str)
    kind = rows["type"].fillna("").to_numpy(dtype=str)
    tumour = (group == "TT") & ((kind == PARTIAL) | (kind == FULL))
    normal = ((group == "NT") | (group == "NN")) & (kind == "FN")
    return np.where(tumour, kind, np.where(normal, group, ""))


def _count_available(types: npt.NDArray[np.str_], usable: npt.NDArray[np.bool_]) -> dict[str, int]:
    return {name: int(((types == name) & usable).sum()) for name in (PARTIAL, FULL, "NT", "NN")}


def _check_available(available: Mapping[str, int]) -> None:
    if not available[PARTIAL] + available[FULL]:
        raise UserError(
            "no tumour patch of the table is drawn for training",
            fix="Cut slides with annotated tumour: elsewhere slides patches.",
        )
    if not available["NT"] + available["NN"]:
        raise UserError(
            "no normal patch of the table is drawn for training",
            fix="Draw normal patches when the slides are cut: elsewhere slides patches.",
        )


def _draw(
    types: npt.NDArray[np.str_],
    labels: Whole,
    usable: npt.NDArray[np.bool_],
    ranks: Whole,
    quotas: Quotas,
    *,
    natural: bool,
) -> tuple[Whole, dict[str, tuple[int, ...]], list[str]]:
    """The rows of a set, its patches by group and cluster, and what could not be even."""
    taken: list[Whole] = []
    clusters: dict[str, tuple[int, ...]] = {}
    remarks: list[str] = []

    def take(name: str, counts: Sequence[int]) -> None:
        for cluster, count in enumerate(counts):
            rows = np.flatnonzero((types == name) & usable & (labels == cluster))
            taken.append(rows[np.argsort(ranks[rows], kind="stable")[:count]])

    def held(name: str, number: int) -> list[int]:
        return np.bincount(labels[(types == name) & usable], minlength=number)[:number].tolist()

    for group in GROUPS:
        kinds = (PARTIAL, FULL) if group == "TT" else (group,)
        number = int(labels[np.isin(types, kinds) & usable].max(initial=-1)) + 1
        if group == "TT":
            rooms = list(zip(held(PARTIAL, number), held(FULL, number), strict=True))
            pairs = spread_over_clusters(quotas.partial, quotas.full, rooms, natural=natural)
            take(PARTIAL, [one for one, _ in pairs])
            take(FULL, [other for _, other in pairs])
            counts = [one + other for one, other in pairs]
            without = [at + 1 for at, room in enumerate(rooms) if not room[0] and room[1]]
            if quotas.partial and without:
                remarks.append(
                    f"{_clusters(without)} of TT {'has' if len(without) == 1 else 'have'} no partly tumour patch."
                )
        else:
            wanted = quotas.groups()[group]
            counts = fill_evenly(wanted, held(group, number))
            take(group, counts)
        clusters[group] = tuple(counts)
        if len(counts) > 1 and max(counts) - min(counts) > 1:
            remarks.append(
                f"The clusters of {group} are not even: {min(counts):,} to {max(counts):,} patches."
            )
    return np.sort(np.concatenate(taken)), clusters, remarks


def _clusters(numbers: Sequence[int]) -> str:
    return f"Cluster{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def _remarks(quotas: Quotas, settings: SetSettings, available: Mapping[str, int]) -> list[str]:
    made = []
    if quotas.size < settings.size:
        kept = "every share" if settings.same_size else "the share"
        made.append(f"{quotas.size:,} patches, not {settings.size:,}: there are no more that keep {kept}.")
    groups = quotas.groups()
    if max(groups.values()) - min(groups.values()) > 1:
        shares = ", ".join(f"{name} {count / quotas.size:.1%}" for name, count in groups.items())
        short = [name for name in ("NT", "NN") if groups[name] == available[name]]
        if quotas.full == available[FULL]:
            short.append("TT")
        why = f"; {' and '.join(short)} {'has' if len(short) == 1 else 'have'} no more" if short else ""
        made.append(f"The groups are not balanced: {shares}{why}.")
    return made
