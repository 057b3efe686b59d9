"""Cohorts that are made up: a phantom hospital of a study file, drawn once and read like a real one."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elsewhere.cohort import Cohort, read_cohort


def phantom_cohort(spec: Mapping[str, Any], cache: Path | None, *, where: str) -> tuple[Cohort, str]:
    """Draw a synthetic hospital and read it as a cohort. The same specification is drawn once for each cache.

    Args:
        spec: The specification, as under `phantom` in a study file. With the layout 'mama-mia' it is an MRI
            hospital, or with `sites` several of them in one cohort; with 'bcs-dbt' it is tomosynthesis of one vendor
            or of several; other layouts are ultrasound.
        cache: The folder for its files; None: a temporary folder.
        where: The place of the specification, for messages.

    Returns:
        The cohort, and the hospital's name; '' for several hospitals.

    Raises:
        UserError: A key is unknown, or a value is not allowed.
    """
    if spec.get("layout") == "mama-mia":
        return _mri_cohort(spec, cache, where=where)
    if spec.get("layout") == "bcs-dbt":
        return _tomosynthesis_cohort(spec, cache, where=where)
    from elsewhere.phantom.ultrasound import hospital_from
    from elsewhere.phantom.ultrasound_layouts import make_phantom_cohort

    hospital = hospital_from(spec, where=where)
    made = make_phantom_cohort(spec, _folder(spec, cache, hospital.name), where=where)
    return read_cohort(hospital.layout, made), hospital.name


def _mri_cohort(spec: Mapping[str, Any], cache: Path | None, *, where: str) -> tuple[Cohort, str]:
    from elsewhere.phantom.mri_layout import make_phantom_world, world_from

    world = world_from(spec, where=where)
    name = world[0].name if len(world) == 1 else ""
    made = make_phantom_world(world, _folder(spec, cache, name or "mri"), where=where)
    return read_cohort("mama-mia", made), name


def _tomosynthesis_cohort(spec: Mapping[str, Any], cache: Path | None, *, where: str) -> tuple[Cohort, str]:
    from elsewhere.phantom.tomosynthesis_layout import make_phantom_world
    from elsewhere.phantom.tomosynthesis_patients import world_from

    vendors = world_from(spec, where=where).vendors
    name = vendors[0] if len(vendors) == 1 else ""
    made = make_phantom_world(spec, _folder(spec, cache, name or "tomosynthesis"), where=where)
    return read_cohort("bcs-dbt", made, volumes=True, site_by_vendor=not name), name


def _folder(spec: Mapping[str, Any], cache: Path | None, name: str) -> Path:
    text = json.dumps(dict(spec), sort_keys=True, default=list)
    base = cache if cache is not None else Path(tempfile.mkdtemp(prefix="elsewhere-phantom-"))
    return base / "phantoms" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
