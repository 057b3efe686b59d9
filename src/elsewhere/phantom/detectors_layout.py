"""Worlds of finders on disk: BCS-DBT's tables, and prediction files laid out as the challenge's public zip.

`BCS-DBT-labels-*.csv` and `BCS-DBT-boxes-*.csv` are the truth of validation and test under their published names,
which the reader 'bcs-dbt' reads. `cohort/` is the same as a cohort folder, with what the published tables have no
column for: site, vendor and breast density. `phase1/validation/TEAM.csv` and `phase1/test/TEAM.csv` are the
predictions, `team_predictions_bothphases.zip` the same packed. `planted.json` says what was planted.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from elsewhere.phantom.detectors import SPLITS, DetectorTables
from elsewhere.phantom.tables import BCS_DBT_NAMES
from elsewhere.tables import staged_directory, to_jsonable, write_json, write_table

MARK = "phantom.json"
"""File with the specification that the world was made from."""
PLANTED = "planted.json"
PHASE = "phase1"
PACKED = "team_predictions_bothphases.zip"
"""The name of the challenge's public zip of all teams' files."""
COHORT = "cohort"
_DATE = (2026, 1, 1, 0, 0, 0)


def write_detectors(made: DetectorTables, folder: str | Path, *, replace: bool = False) -> Path:
    """Write a world of finders under one folder, whole or not at all.

    Args:
        made: The tables of the world.
        folder: The folder to write.
        replace: Whether an earlier phantom in the same place may be replaced.

    Returns:
        The folder.

    Raises:
        UserError: `folder` exists and may not be replaced.

    Example:
        >>> import tempfile
        >>> from elsewhere.phantom.detectors import DetectorWorld, draw_detectors
        >>> made = draw_detectors(DetectorWorld(patients=4, finders=2))
        >>> folder = write_detectors(made, Path(tempfile.mkdtemp()) / "finders")
        >>> sorted(path.name for path in (folder / "phase1" / "test").iterdir())
        ['alpha.csv', 'beta.csv']
    """
    folder = Path(folder)
    with staged_directory(folder, replace=replace) as staged:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for split in SPLITS:
                labels, boxes, _ = BCS_DBT_NAMES[split]
                write_table(made.labels(split), staged / f"{labels}.csv")
                write_table(made.truth_boxes(split), staged / f"{boxes}.csv")
                (staged / PHASE / split).mkdir(parents=True)
                for finder in made.finders:
                    name = f"{PHASE}/{split}/{finder.name}.csv"
                    write_table(made.predictions[finder.name][split], staged / name)
                    archive.writestr(zipfile.ZipInfo(name, _DATE), (staged / name).read_bytes())
        (staged / PACKED).write_bytes(packed.getvalue())
        made.cohort().save(staged / COHORT)
        write_json(planted_in(made), staged / PLANTED)
        write_json({"world": to_jsonable(made.world)}, staged / MARK)
    return folder


def planted_in(made: DetectorTables) -> dict[str, object]:
    """Say what was planted in a world of finders, in plain Python.

    Args:
        made: The tables of the world.

    Returns:
        The drop with the number of lesions that each finder loses by it, and the finders.

    Example:
        >>> from elsewhere.phantom.detectors import DetectorWorld, draw_detectors
        >>> planted_in(draw_detectors(DetectorWorld(patients=4, finders=1)))["drop"]
        {'share': 0.0, 'vendor': 'B', 'breast_density': ['C', 'D'], 'lesions': {'alpha': 0}}
    """
    lost = {finder.name: len(made.lost[finder.name]) for finder in made.finders}
    return {
        "drop": {"share": made.world.drop, "vendor": "B", "breast_density": ["C", "D"], "lesions": lost},
        "finders": to_jsonable(made.finders),
    }
