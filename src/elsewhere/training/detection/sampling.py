"""Which slices a detector is trained on (DBT-10, DBT-12, DBT-13, DBT-17).

A lesion is drawn on one slice and is seen on several: slices up to a reach around it show it. Slices without a lesion come
from normal volumes and from lesions' own volumes, beyond twice the reach; those of actionable volumes, where something
was suspected that no biopsy confirmed, are a kind of their own. Detections there can be given as further background.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from elsewhere.boxes import Boxes
from elsewhere.errors import TrainingError
from elsewhere.training.detection.views import VolumeView, lesion_corners

LESION, NEGATIVE, ACTIONABLE = 0, 1, 2
"""The kinds of slices."""
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """Which slices are taken.

    Args:
        reach: Slices up to this far from a lesion's slice show it (UCLA-MII: 3); "size": up to the square root of
            the lesion's mean side in pixels (Buda 2021).
        negatives: Slices without a lesion per lesion slice, per epoch.
        actionable: Slices of actionable volumes per lesion slice, per epoch.
        per_volume: How many slices without a lesion are loaded from each volume.
        only_cancer: Benign lesions are not learned (VICOROB in phase 1); their volumes are left out.
        neighbours: The channels are the slice before, the slice and the one after; otherwise three times the slice.
    """

    reach: int | Literal["size"] = 3
    negatives: float = 0.0
    actionable: float = 0.0
    per_volume: int = 4
    only_cancer: bool = False
    neighbours: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class SliceTable:
    """The slices that a training can draw from.

    Args:
        case: The case of each slice.
        z: (n,) its position in the volume.
        kind: (n,) `LESION`, `NEGATIVE` or `ACTIONABLE`.
        box: (n, m, 4) the lesions that it shows, in pixels of the whole volume.
        label: (n, m) 1 cancer, 0 benign, -1 no lesion.
        focus: (n, 2) x and y that a tile must show, in pixels of the whole volume; NaN: it lies around a lesion, or
            anywhere on the breast.
    """

    case: tuple[str, ...]
    z: IntArray
    kind: IntArray
    box: npt.NDArray[np.float64] = field(repr=False)
    label: IntArray
    focus: npt.NDArray[np.float64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.case)

    def rows(self, kind: int) -> IntArray:
        """Return the slices of one kind.

        Args:
            kind: `LESION`, `NEGATIVE` or `ACTIONABLE`.

        Returns:
            Their positions.
        """
        return np.flatnonzero(self.kind == kind).astype(np.int64)


def reach_of(lesion: Any, reach: int | Literal["size"]) -> int:
    """Return how far from its slice a lesion is seen.

    Args:
        lesion: A `LesionBox`.
        reach: A number of slices, or "size".

    Returns:
        A number of slices.
    """
    return int(math.sqrt((lesion.width + lesion.height) / 2)) if reach == "size" else reach


def shown_lesions(
    lesions: Sequence[Any], slices: int, reach: int | Literal["size"] = 3
) -> dict[int, tuple[int, ...]]:
    """Return which slices show which lesions.

    Args:
        lesions: `LesionBox` objects.
        slices: The number of slices of the volume.
        reach: See `SamplingSettings`.

    Returns:
        Positions in `lesions` by slice, for slices that show one.
    """
    found: dict[int, tuple[int, ...]] = {}
    for number, lesion in enumerate(lesions):
        far = reach_of(lesion, reach)
        for z in range(max(0, lesion.slice - far), min(slices, lesion.slice + far + 1)):
            found[z] = (*found.get(z, ()), number)
    return found


def list_slices(
    view: VolumeView,
    cases: Iterable[str],
    settings: SamplingSettings,
    *,
    rng: np.random.Generator,
    detections: Mapping[str, Boxes] | None = None,
) -> SliceTable:
    """List the slices of some cases.

    Args:
        view: The volumes.
        cases: Cases whose truth may be seen; others are left out.
        settings: Which slices are taken.
        rng: Draws the slices without a lesion.
        detections: Detections in actionable volumes, by case: their slices join those of actionable volumes, as
            background (PittRad).

    Returns:
        The slices.
    """
    rows: list[tuple[str, int, int, npt.NDArray[np.float64], list[int]]] = []
    for case in cases:
        lesions, finding = view.lesions(case), view.finding(case)
        if lesions is None or (settings.only_cancer and finding == "benign"):
            continue
        slices = view.shape(case)[2]
        corners = lesion_corners(lesions)
        shown = shown_lesions(lesions, slices, settings.reach)
        for z, numbers in sorted(shown.items()):
            label = [int(lesions[number].kind == "cancer") for number in numbers]
            rows.append((case, z, LESION, corners[list(numbers)], label))
        wide = 2 * max((reach_of(one, settings.reach) for one in lesions), default=0)
        near = {z for one in lesions for z in range(one.slice - wide, one.slice + wide + 1)}
        free = [z for z in range(slices) if z not in near]
        kind = ACTIONABLE if finding == "actionable" else NEGATIVE
        wanted = settings.actionable if kind == ACTIONABLE else settings.negatives
        chosen: list[int] = []
        if wanted > 0 and free:
            chosen = rng.choice(free, size=min(settings.per_volume, len(free)), replace=False).tolist()
        if detections and case in detections and not lesions:
            middle = np.floor(detections[case].centre_slice).astype(int).tolist()
            chosen = sorted({*chosen, *middle} & set(range(slices)))
        rows += [(case, z, kind, np.zeros((0, 4)), []) for z in sorted(chosen)]
    return _as_table(rows)


def perturbed_cases(
    cases: Sequence[str], group: Sequence[str], rng: np.random.Generator, *, share: float = 0.9
) -> tuple[str, ...]:
    """Leave out some patients: training sets that differ make the members of an ensemble differ (NYU B-Team, DBT-15).

    Args:
        cases: The cases of the training part.
        group: The patient of each case.
        rng: Draws who stays.
        share: How many of the patients stay, at least one.

    Returns:
        The cases of those who stay, in their order.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> chosen = perturbed_cases(["a/1", "a/2", "b/1", "b/2"], ["a", "a", "b", "b"], rng, share=0.5)
        >>> len(chosen), len({case[0] for case in chosen})
        (2, 1)
    """
    patients = list(dict.fromkeys(group))
    count = max(1, round(share * len(patients)))
    stay = (
        {patients[at] for at in rng.choice(len(patients), size=count, replace=False)} if patients else set()
    )
    return tuple(case for case, patient in zip(cases, group, strict=True) if patient in stay)


def _as_table(rows: list[tuple[str, int, int, npt.NDArray[np.float64], list[int]]]) -> SliceTable:
    most = max((len(row[4]) for row in rows), default=0) or 1
    box = np.zeros((len(rows), most, 4))
    label = np.full((len(rows), most), -1, dtype=np.int64)
    for at, (*_, corners, labels) in enumerate(rows):
        box[at, : len(labels)], label[at, : len(labels)] = corners, labels
    return SliceTable(
        case=tuple(row[0] for row in rows),
        z=np.array([row[1] for row in rows], dtype=np.int64),
        kind=np.array([row[2] for row in rows], dtype=np.int64),
        box=box,
        label=label,
        focus=np.full((len(rows), 2), np.nan),
    )


def draw_order(
    table: SliceTable, settings: SamplingSettings, rng: np.random.Generator, *, most: int | None = None
) -> IntArray:
    """Draw the slices of one epoch: every lesion slice once, others in their ratio, all mixed.

    Args:
        table: The slices.
        settings: The ratios.
        rng: Draws them.
        most: Lesion slices per epoch at most; None: all.

    Returns:
        Positions in the table.

    Raises:
        TrainingError: There is no lesion slice.
    """
    lesion = rng.permutation(table.rows(LESION))[:most]
    if not len(lesion):
        raise TrainingError(
            "the training part has no slice with a lesion, so that no detector can be trained",
            fix="Train on a part with volumes of biopsied lesions.",
        )
    parts = [lesion]
    for kind, share in ((NEGATIVE, settings.negatives), (ACTIONABLE, settings.actionable)):
        pool, count = table.rows(kind), round(share * len(lesion))
        if len(pool) and count:
            parts.append(rng.choice(pool, size=count, replace=count > len(pool)))
    return rng.permutation(np.concatenate(parts)).astype(np.int64)
