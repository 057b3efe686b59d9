"""All features of a case by name, from its phases and a region."""

from __future__ import annotations

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.volumes import Volumes
from elsewhere.radiomics.first_order import first_order_features, histogram_features
from elsewhere.radiomics.kinetics import kinetic_features
from elsewhere.radiomics.region import bounding_box, case_region
from elsewhere.radiomics.shape import shape_features
from elsewhere.radiomics.texture import (
    cooccurrence_features,
    discretise,
    run_length_features,
    size_zone_features,
)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """What is measured, and in which region.

    Args:
        bins: Number of grey levels of the textures. The number is fixed, because MR signals have no unit.
        region: "automatic" for every case, or "expert": the expert's mask where it is available, else
            automatic. The second gives training cases better regions than test cases have, and is for
            comparison only.
        families: Families of features: "shape", "first", "texture" and "kinetic".

    Example:
        >>> FeatureSettings(bins=16).families
        ('shape', 'first', 'texture', 'kinetic')
    """

    bins: int = 32
    region: str = "automatic"
    families: tuple[str, ...] = ("shape", "first", "texture", "kinetic")


@dataclass(frozen=True, kw_only=True)
class CaseFeatures:
    """The features of one case.

    Args:
        values: The features by name.
        region_voxels: Number of voxels of the region.
        region_from: "expert" or "automatic".
        seconds: Seconds that the first measurement took, without reading.
    """

    values: dict[str, float]
    region_voxels: int
    region_from: str
    seconds: float


def region_features(
    phases: Sequence[npt.NDArray[np.floating]],
    mask: Mask,
    spacing_mm: tuple[float, float, float],
    *,
    settings: FeatureSettings | None = None,
) -> dict[str, float]:
    """Measure a region; only its bounding box is used, and for the first-order scale the whole early phase.

    Args:
        phases: The phase before the contrast agent, then the others in their order; at least two.
        mask: The region, with the shape of a phase; at least one voxel is set.
        spacing_mm: Size of a voxel along each axis in mm.
        settings: What is measured; None: all families.

    Returns:
        `shape_`, `first_` (enhancement over the brightest early signal), `glcm_`, `glrlm_`, `glszm_` (early
        phase) and `kinetic_` features by name.

    Example:
        >>> before, mask = np.full((6, 6, 4), 10.0), np.zeros((6, 6, 4), dtype=bool)
        >>> mask[2:4, 2:4, 1:3] = True
        >>> phases = [before, before + 20 * mask, before + 10 * mask]
        >>> found = region_features(phases, mask, (1.0, 1.0, 2.0))
        >>> found["shape_volume_voxels"], found["kinetic_peak_enhancement"]
        (16.0, 2.0)
    """
    how = settings or FeatureSettings()
    part = bounding_box(mask)
    inside = mask[part]
    cut = [np.asarray(p)[part] for p in phases]
    out: dict[str, float] = {}
    if "shape" in how.families:
        out |= _named("shape", shape_features(inside, spacing_mm))
    if "first" in how.families:
        bright = max(float(np.percentile(np.asarray(phases[1]), 99.5)), 1e-6)
        gain = (cut[1][inside].astype(np.float64) - cut[0][inside].astype(np.float64)) / bright
        out |= _named("first", first_order_features(gain))
    if "texture" in how.families:
        levels = discretise(cut[1], inside, bins=how.bins)
        out |= _named("first", histogram_features(levels[inside], bins=how.bins))
        out |= _named("glcm", cooccurrence_features(levels, bins=how.bins))
        out |= _named("glrlm", run_length_features(levels, bins=how.bins))
        out |= _named("glszm", size_zone_features(levels, bins=how.bins))
    if "kinetic" in how.families:
        out |= _named("kinetic", kinetic_features(cut, inside, voxel_mm3=math.prod(spacing_mm)))
    return out


def _named(family: str, values: dict[str, float]) -> dict[str, float]:
    return {f"{family}_{name}": value for name, value in values.items()}


_KEPT: OrderedDict[bytes, CaseFeatures] = OrderedDict()
_KEEP = 4096
"""Number of cases whose features stay in memory, by their content: a study's trainings share their cases."""


def case_features(volumes: Volumes, case: str, settings: FeatureSettings | None = None) -> CaseFeatures:
    """Measure a case; the region follows the settings' rule.

    A single slice counts as a picture cut round the tumour, and as 1 mm thick: its volumes are areas, and do
    not depend on the scanner's slice thickness.

    Args:
        volumes: Where phases and masks are read.
        case: Name of the case.
        settings: What is measured, and in which region; None: the defaults.

    Returns:
        The features; from memory where the same content was measured before.

    Example:
        >>> from elsewhere.phantom import mri
        >>> (case,) = mri.make_world([mri.HospitalSpec(patients=1, size=32)], seed=7)
        >>> found = case_features(mri.memory_volumes([case]), case.name, FeatureSettings(region="expert"))
        >>> found.region_from, found.region_voxels == int(case.mask.sum())
        ('expert', True)
    """
    how = settings or FeatureSettings()
    grid = volumes.grid(case)
    x, y, z = grid.spacing_mm
    spacing = (x, y, z if grid.shape[2] > 1 else 1.0)
    phases = [volumes.phase(case, at) for at in range(volumes.phases(case))]
    expert = volumes.mask(case) if how.region == "expert" else None
    key = _key(phases, spacing, grid.affine, expert, how)
    kept = _KEPT.get(key)
    if kept is not None:
        return kept
    start = time.perf_counter()
    if expert is not None and expert.any():
        mask, source = expert, "expert"
    else:
        mask, source = case_region(phases[0], phases[1], grid), "automatic"
    values = region_features(phases, mask, spacing, settings=how)
    made = CaseFeatures(
        values=values,
        region_voxels=int(mask.sum()),
        region_from=source,
        seconds=time.perf_counter() - start,
    )
    _KEPT[key] = made
    if len(_KEPT) > _KEEP:
        _KEPT.popitem(last=False)
    return made


def _key(
    phases: Sequence[npt.NDArray[np.floating]],
    spacing_mm: tuple[float, float, float],
    affine: npt.NDArray[np.float64] | None,
    expert: Mask | None,
    how: FeatureSettings,
) -> bytes:
    digest = hashlib.blake2b(repr((spacing_mm, affine, how)).encode(), digest_size=16)
    for phase in phases:
        digest.update(np.ascontiguousarray(phase).data)
    if expert is not None:
        digest.update(np.packbits(expert).data)
    return digest.digest()
