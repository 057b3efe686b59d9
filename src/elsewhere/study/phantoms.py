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
    """The synthetic hospital of this specification, and its name. The same specification is drawn once."""
    from elsewhere.phantom.ultrasound import hospital_from
    from elsewhere.phantom.ultrasound_layouts import make_phantom_cohort

    hospital = hospital_from(spec, where=where)
    text = json.dumps(dict(spec), sort_keys=True, default=list)
    base = cache if cache is not None else Path(tempfile.mkdtemp(prefix="elsewhere-phantom-"))
    folder = base / "phantoms" / f"{hospital.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    made = make_phantom_cohort(spec, folder, where=where)
    return read_cohort(hospital.layout, made), hospital.name
