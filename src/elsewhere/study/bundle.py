"""The release bundle of a study (US-24): all that another team needs to check its numbers, and no picture.

Manifest, splits, seed-level outputs, summaries, audit and environment in one folder, each file with its digest.
Ids are kept as they are, since a public set's ids are what makes it checkable; give a `salt` for data of your
own, and every name becomes a keyed hash.
"""

from __future__ import annotations

import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from elsewhere._version import __version__
from elsewhere.errors import UserError
from elsewhere.files import MARKER
from elsewhere.privacy import Redactor, hash_ids
from elsewhere.study.recipe_privacy import redacted_table
from elsewhere.study.report import write_study_report
from elsewhere.tables import file_digest, staged_directory
from elsewhere.tables.writing import write_json, write_table, write_text
from elsewhere.untrusted import read_json, read_text

if TYPE_CHECKING:
    from elsewhere.study.analysis import StudySummary
    from elsewhere.study.picture_results import StudyResults

MARK, SUMS = "bundle.json", "SHA256SUMS"
FORMAT = "elsewhere-study-bundle-1"
MOST_SUMS, MOST_BYTES = 1 << 26, 1 << 32
"""Of the list of digests, and of each file of a bundle."""
_PACKAGES = (
    "numpy",
    "scipy",
    "pandas",
    "scikit-learn",
    "numba",
    "torch",
    "torchvision",
    "timm",
    "monai",
    "xgboost",
    "pillow",
    "nibabel",
)
_NAMES = ("case", "case_id", "patient", "group")
_README = """# {name}

Release bundle of a study made with Elsewhere {version}. It holds no picture.

| file | what |
|---|---|
| `manifest.csv` | a row an image: dataset, ids, label, lesion box, size |
| `splits/` or `splits.parquet` | which case stands in which part, a scenario and seed |
| `outputs.parquet` | seed-level outputs: run, part, case, label, both logits, distance |
| `runs.csv`, `trainings.csv` | every run with its status, every training with its epochs, time and device |
| `tables/`, `summary.json`, `report.html` | the numbers and the report |
| `audit.json`, `study.json`, `environment.json` | what was checked, the study as data, versions |
| `SHA256SUMS` | the digest of each file |
{ids}
To check the files: `sha256sum -c SHA256SUMS`, or `elsewhere check-bundle` of this folder, which also names what is not listed.
"""


def write_bundle(
    results: StudyResults,
    summary: StudySummary,
    out: str | Path,
    *,
    splits: str | Path | None = None,
    replace: bool = False,
    salt: str | None = None,
) -> Path:
    """The folder, written whole or not at all. `splits`: the folder of exported splits to copy (US-09); they
    name cases, so that with a `salt` the parts are written anew from the outputs instead."""
    if splits is not None and not Path(splits).is_dir():
        raise UserError("there is no such folder of splits", where=str(splits))
    hashed = _Hashed(salt)
    with staged_directory(out, replace=replace) as staged:
        write_table(hashed(_manifest(results.table)), staged / "manifest.csv")
        outputs = _outputs(results)
        write_table(hashed(outputs), staged / "outputs.parquet")
        if splits is not None and salt is None:
            shutil.copytree(splits, staged / "splits")
        else:
            write_table(hashed(_splits(results, outputs)), staged / "splits.parquet")
        clean = Redactor(summary.ids if salt is not None else ())
        write_table(redacted_table(_plain(results.runs), clean), staged / "runs.csv")
        if results.units is not None and len(results.units):
            write_table(redacted_table(results.units, clean), staged / "trainings.csv")
        write_json(clean.tree(results.audit), staged / "audit.json")
        write_json(results.settings, staged / "study.json")
        write_json(environment(), staged / "environment.json")
        write_study_report(summary, staged, key_file=False)
        ids = (
            ""
            if salt is None
            else "\nNames of cases and patients are keyed hashes; the key is not in the bundle."
        )
        readme = _README.format(name=results.name, version=__version__, ids=ids)
        write_text(readme, staged / "README.md")
        seal(staged, {"format": FORMAT, "study": results.name, "hashed_ids": salt is not None})
    return Path(out)


def seal(staged: Path, about: dict[str, Any]) -> None:
    """The digest of every file, and last the mark that says what kind of bundle this is."""
    files = sorted(p for p in staged.rglob("*") if p.is_file() and p != staged / MARKER)
    sums = {p.relative_to(staged).as_posix(): file_digest(p) for p in files}
    write_text("".join(f"{d}  {n}\n" for n, d in sums.items()), staged / SUMS)
    write_json(about | {"files": len(sums)}, staged / MARK)


def read_mark(folder: Path) -> dict[str, Any]:
    """What a bundle says of itself."""
    fix = "Give a folder that `run --bundle` wrote."
    if not (folder / MARK).is_file():
        raise UserError("this is no release bundle", where=str(folder), fix=fix)
    return read_json(folder / MARK, what="mark of the bundle", fix=fix)


def broken_files(folder: Path) -> tuple[int, list[str]]:
    """How many files the bundle lists, and what is wrong with which: changed, lost, or of nobody."""
    told: dict[str, str] = {}
    listed = read_text(folder / SUMS, most=MOST_SUMS, what="list of digests", fix="Fetch the bundle again.")
    for line in listed.splitlines():
        digest, _, name = line.partition("  ")
        told[name] = digest
    here = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    here -= {SUMS, MARK, MARKER}
    wrong = [f"{name}: it is not there" for name in sorted(set(told) - here)]
    wrong += [f"{name}: it is not listed" for name in sorted(here - set(told))]
    for name in sorted(here & set(told)):
        if (folder / name).stat().st_size > MOST_BYTES:
            wrong.append(f"{name}: it has over {MOST_BYTES:,} bytes, and was not read")
        elif file_digest(folder / name) != told[name]:
            wrong.append(f"{name}: it has changed")
    return len(told), wrong


class _Hashed:
    """Exchanges names for keyed hashes, or leaves them alone."""

    def __init__(self, salt: str | None) -> None:
        self.salt = salt

    def __call__(self, table: pd.DataFrame) -> pd.DataFrame:
        if self.salt is None:
            return table
        out = table.copy()
        for name in _NAMES:
            if name in out.columns:
                held = out[name].astype(str)
                known = list(dict.fromkeys(held))
                out[name] = held.map(dict(zip(known, hash_ids(known, self.salt), strict=True)))
        return out


def _manifest(table: pd.DataFrame) -> pd.DataFrame:
    """Without paths of this machine; how many masks there are instead of where."""
    out = table.drop(columns=[c for c in ("image", "masks") if c in table.columns])
    if "masks" in table.columns:
        out = out.assign(masks=[len(m) for m in table["masks"]])
    return out


def _plain(runs: pd.DataFrame) -> pd.DataFrame:
    return runs.drop(columns=[c for c in ("ensemble",) if c in runs.columns])


def _outputs(results: StudyResults) -> pd.DataFrame:
    parts = []
    for run in results.runs.loc[results.runs["status"] == "done", "run"]:
        for part, frame in results.outputs(str(run)).items():
            if len(frame):
                parts.append(frame.assign(run=str(run), part=part))
    if not parts:
        raise UserError("no run of the study is done", where=results.name)
    out = pd.concat(parts, ignore_index=True)
    return out[["run", "part", *[c for c in out.columns if c not in ("run", "part")]]]


def _splits(results: StudyResults, outputs: pd.DataFrame) -> pd.DataFrame:
    """Validation, test and normal parts as the outputs show them: one run of each scenario and seed tells."""
    first = results.runs[results.runs["status"] == "done"].drop_duplicates(["scenario", "seed"])
    held = outputs[outputs["run"].isin(first["run"])].merge(first[["run", "scenario", "seed"]], on="run")
    return held[["scenario", "seed", "part", "case", "patient"]].reset_index(drop=True)


def environment() -> dict[str, Any]:
    """Versions of what made the numbers."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "elsewhere": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": versions,
    }
