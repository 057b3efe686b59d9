"""Make the pictures of the README and the docs from the demo: `python docs/make_images.py [DEMO_OUT]`.

`verdict.svg` is the report's verdict figure; `first-page.png` and `study-page.png` are the first pages of a
report and of a study's report as a browser shows them (needs chromium). DEMO_OUT is a folder that `elsewhere demo` wrote; without it the demo is run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent / "images"
LARGEST_BYTES = 200_000
WIDTH_PX, HEIGHT_PX, STUDY_HEIGHT_PX = 1000, 920, 1030


def main(demo_out: str | None = None) -> None:
    from elsewhere.commands.demo import demo
    from elsewhere.report import write_figures
    from elsewhere.results import load_result

    HERE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        if demo_out is None:
            demo(Path(folder) / "demo-out", study="demo")
            demo_out = str(Path(folder) / "demo-out")
        result = Path(demo_out) / "classification"
        write_figures(load_result(result).summary, Path(folder) / "figures")
        shutil.copyfile(Path(folder) / "figures" / "verdict.svg", HERE / "verdict.svg")
        _first_page(result / "report.html", HERE / "first-page.png", Path(folder), height_px=HEIGHT_PX)
        study = Path(demo_out) / "study" / "report" / "report.html"
        if study.is_file():
            _first_page(study, HERE / "study-page.png", Path(folder), height_px=STUDY_HEIGHT_PX)
        else:
            print("no study in the demo: study-page.png stays as it is")
    for picture in sorted(HERE.iterdir()):
        size = picture.stat().st_size
        print(f"{picture.name}: {size:,} bytes")
        if size > LARGEST_BYTES:
            raise SystemExit(f"{picture.name} is larger than {LARGEST_BYTES:,} bytes")


def _first_page(report: Path, picture: Path, scratch: Path, *, height_px: int) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print(f"no chromium: {picture.name} stays as it is")
        return
    taken = scratch / "page.png"
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={WIDTH_PX},{height_px}",
        f"--screenshot={taken}",
        report.resolve().as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    from PIL import Image

    Image.open(taken).convert("RGB").save(picture, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
