"""A folder of small slides with annotations, and functions that worker processes of tests run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from worlds.outline_files import asap_xml, square, star, write
from worlds.slide_files import pyramid, tissue_picture, write_tiff


def write_slides(folder: Path) -> Path:
    """Three slides: two with tumour, at two scales, one without; `slides` and `xml` below the folder."""
    (folder / "slides").mkdir()
    (folder / "xml").mkdir()
    for seed, (name, mpp) in enumerate((("tumor_001", 0.25), ("tumor_002", 0.243), ("normal_001", 0.25))):
        picture = tissue_picture(1700, 1400, seed=seed)
        write_tiff(folder / "slides" / f"{name}.tif", pyramid(picture, 3), mpp=mpp)
    crossing = star(np.random.default_rng(0), (900, 700), 300, crossing=True)
    write(
        folder / "xml/Tumor_001.xml",
        asap_xml([(square(300, 200, 800), "Tumor"), (square(500, 400, 100), "Exclusion")]),
    )
    write(folder / "xml/tumor_002.xml", asap_xml([(crossing, "Tumor")]))
    return folder


def dies_on_b(task: str, progress: object = None) -> dict | None:
    """Ends its process at one task, and refuses another."""
    if task == "b":
        os._exit(9)
    return {"error": "bad", "where": None, "fix": None} if task == "c" else None


def writes_its_process_and_waits(task: str, progress: object = None) -> None:
    """Writes the number of its process into a file, and waits for minutes."""
    Path(task).write_text(str(os.getpid()))
    time.sleep(300)
