"""`phantom detections`: truth tables and the prediction files of many synthetic finders, without pixels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.errors import check_seed
from elsewhere.phantom.detectors import SPLITS, DetectorWorld, draw_detectors
from elsewhere.phantom.detectors_layout import COHORT, PACKED, PHASE, planted_in, write_detectors
from elsewhere.tables import check_out


@dataclass(frozen=True, kw_only=True)
class DetectionPhantoms:
    """Synthetic finders that were written, and the commands that use them.

    Args:
        splits: The counts of each split.
        finders: The finders with the number of boxes that each wrote.
        planted: What was planted.
        path: The folder that was written.
        seconds: How long it took.
    """

    splits: tuple[dict[str, Any], ...]
    finders: tuple[dict[str, Any], ...]
    planted: dict[str, Any]
    path: Path
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            Plain values by name.
        """
        return {
            "splits": list(self.splits),
            "finders": list(self.finders),
            "planted": self.planted,
            "path": str(self.path),
            "seconds": self.seconds,
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for made in self.splits:
            yield (
                f"{made['name']}: {made['patients']} patients, {made['volumes']} volumes, {made['lesions']} lesions in "
                f"{made['positive_volumes']} volumes"
            )
        for finder in self.finders:
            yield f"  {finder['name']:12s} {finder['boxes']:>8,} boxes, scores {finder['scale']}, depth {finder['depth']}"
        drop = self.planted["drop"]
        if drop["share"]:
            yield f"planted: each finder loses {drop['share']:.0%} of the lesions in dense breasts at vendor B"
        yield f"written: {self.path}, in {self.seconds:.0f} s"
        yield (
            f"next: elsewhere rank {self.path / PHASE / 'test'} --cohort {self.path / COHORT} --task detection "
            "--where split=test"
        )
        yield f"all files as the challenge's public zip: {self.path / PACKED}"


def detections(out: str | Path, *, replace: bool = False, **world: Any) -> DetectionPhantoms:
    """Make a world of synthetic finders: truth in the layout of BCS-DBT, predictions in DBTex's csv form.

    Args:
        out: The folder to write.
        replace: Whether files that exist may be replaced.
        **world: Fields of `DetectorWorld`, such as `patients`, `finders`, `vendors`, `drop` and `seed`.

    Returns:
        What was written.

    Raises:
        UserError: A value is not allowed, or the folder may not be replaced.
    """
    if "seed" in world:
        check_seed(world["seed"])
    start = time.perf_counter()
    spec = DetectorWorld(**world)
    out = Path(out)
    check_out(out, replace=replace)
    made = draw_detectors(spec)
    write_detectors(made, out, replace=replace)
    splits = []
    for split in SPLITS:
        cases = made.cases[made.cases["split"] == split]
        lesions = made.lesions[made.lesions["case_id"].isin(cases["case_id"])]
        splits.append(
            {
                "name": split,
                "patients": int(cases["patient_id"].nunique()),
                "volumes": len(cases),
                "lesions": len(lesions),
                "positive_volumes": int(lesions["case_id"].nunique()),
            }
        )
    finders = tuple(
        {
            "name": finder.name,
            "scale": finder.scale,
            "depth": finder.depth,
            "boxes": sum(len(table) for table in made.predictions[finder.name].values()),
        }
        for finder in made.finders
    )
    return DetectionPhantoms(
        splits=tuple(splits),
        finders=finders,
        planted=planted_in(made),
        path=out,
        seconds=time.perf_counter() - start,
    )
