"""`phantom slides`: synthetic whole slides on disk, in the layout of CAMELYON17."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.commands.output import Report
from elsewhere.errors import check_seed


@dataclass(frozen=True, kw_only=True)
class SlidePhantoms:
    """Synthetic slides that were written, and the command that reads them.

    Args:
        centres: The name, counts, stages, resolution and size of the files of each centre.
        planted: What was planted, as in `planted.json`.
        path: The folder that was written.
        seconds: How long it took.
    """

    centres: tuple[dict[str, Any], ...]
    planted: dict[str, Any]
    path: Path
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            Plain values by name.
        """
        return {
            "centres": list(self.centres),
            "planted": self.planted,
            "path": str(self.path),
            "seconds": self.seconds,
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for made in self.centres:
            stages = ", ".join(f"{n} {stage}" for stage, n in made["stages"].items())
            yield (
                f"centre {made['number']} ({made['name']}): {made['slides']} slides of {made['patients']} patients "
                f"({stages}), {made['width_px']:,} x {made['height_px']:,} px at {made['mpp']:.3f} um, "
                f"{made['megabytes']:.0f} MB"
            )
        shift = ", ".join(f"{axis} {value:g}" for axis, value in self.planted["shift"].items())
        yield f"difference between the centres (1: as the real ones): {shift}"
        for fault in self.planted["faults"]:
            of = f" of {fault['copy_of']}" if "copy_of" in fault else ""
            yield f"planted {fault['fault']}{of}: {fault['slide_id']}"
        yield f"written: {self.path}, in {self.seconds:.0f} s"
        yield f"next: elsewhere cohort read camelyon17 {self.path} --out {self.path.name}-cohort"


def slides(
    out: str | Path,
    *,
    replace: bool = False,
    shift: Mapping[str, float] | None = None,
    plant: Mapping[str, int] | None = None,
    workers: int = 1,
    progress: Report | None = None,
    **world: Any,
) -> SlidePhantoms:
    """Make a world of synthetic H&E slides of lymph nodes in the layout of CAMELYON17.

    Args:
        out: The folder to write.
        replace: Whether files that exist may be replaced.
        shift: What differs between the centres, and how much; None or empty for the real difference in everything.
        plant: Faults to plant, with how many slides get each; None for none.
        workers: How many processes.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.
        **world: Further fields of `World`, such as `patients`, `size` and `seed`.

    Returns:
        The centres that were written.

    Raises:
        UserError: A value is not allowed, or the folder may not be replaced.
    """
    import json

    from elsewhere.phantom.slides.centres import STAGES, shift_from
    from elsewhere.phantom.slides.layout import PLANTED, write_world
    from elsewhere.phantom.slides.patients import World
    from elsewhere.tables import check_out, read_table

    if "seed" in world:
        check_seed(world["seed"])
    start = time.perf_counter()
    spec = World(shift=shift_from(shift or {}), **world)
    out = Path(out)
    check_out(out, replace=replace)
    write_world(spec, out, replace=replace, plant=plant, workers=workers, progress=progress)
    truth = read_table(out / "truth.csv")
    made = []
    for number in spec.centres:
        mine = truth[truth["centre"].astype(int) == number]
        own = mine[mine["fault"] != "copy"]
        first = (own if len(own) else mine).iloc[0]
        counts = Counter(mine["stage"])
        size = sum(file.stat().st_size for file in (out / f"centre_{number}").glob("*.tif"))
        made.append(
            {
                "number": number,
                "name": str(first["centre_name"]),
                "patients": int(mine["patient_id"].nunique()),
                "slides": len(mine),
                "stages": {stage: counts[stage] for stage in STAGES if counts[stage]},
                "width_px": int(first["width_px"]),
                "height_px": int(first["height_px"]),
                "mpp": float(first["mpp"]),
                "megabytes": size / 1e6,
            }
        )
    planted = json.loads((out / PLANTED).read_text(encoding="utf-8"))
    return SlidePhantoms(centres=tuple(made), planted=planted, path=out, seconds=time.perf_counter() - start)
