"""Files from elsewhere, mutated, through the commands that read them: an answer or a refusal, in bounded time and memory.

Result folders, claims and their locks, study files, bundles of studies, stores and model files. Whatever is in them, a
command ends with one of its documented exit codes: never with a traceback, never not at all, never with gigabytes.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worlds import artefacts as made
from worlds import mutations
from worlds.drawn_figures import draw_once
from worlds.mutations import ALLOWED, SWAPS, byte_edits, digest, positions, table_edits, tree_edits

WITHIN = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
KINDS = ("results", "tables", "claims", "locks", "studies", "bundles", "models", "stores")
SHARE = {"results": 0.28, "tables": 0.16, "claims": 0.14, "locks": 0.06, "studies": 0.14, "bundles": 0.05, "models": 0.11, "stores": 0.06}  # fmt: skip
QUICK, MANY = 50, 10_000


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("artefacts")
    with pytest.MonkeyPatch.context() as patch:
        draw_once(patch)
        made.make_results(folder / "results")
    made.make_claim(folder / "claim")
    made.make_picture_study(folder / "study")
    made.make_recipe_study(folder / "recipes")
    return folder


def copied(source: Path, target: Path) -> Path:
    mutations.removed(target)
    return Path(shutil.copytree(source, target)) if source.is_dir() else Path(shutil.copy(source, target))


def ends_well(*arguments: object) -> None:
    with mutations.guarded():
        done = made.call(*arguments)
    assert done.code in ALLOWED, f"exit {done.code}\n{done.said[-3000:]}"
    assert "Traceback" not in done.said, done.said[-3000:]
    assert "\x1b" not in done.said and "\u202e" not in done.said, (
        "a terminal escape from the file was printed"
    )
    if done.code == 64:
        assert len(done.said) < 20_000


changes = st.one_of(
    st.tuples(st.just("bytes"), byte_edits),
    st.tuples(st.just("tree"), tree_edits),
    st.tuples(st.just("tree"), tree_edits),
    st.tuples(st.just("swap"), st.sampled_from(SWAPS)),
)


def change_file(path: Path, change: tuple[str, Any], other: Path) -> None:
    kind, how = change
    if kind == "swap":
        mutations.swapped(path, how, other)
    elif kind == "bytes":
        path.write_bytes(mutations.mutated_bytes(path.read_bytes(), how))
    elif path.suffix == ".toml":
        path.write_text(mutations.mutated_toml(path.read_text(), how), encoding="utf-8", errors="replace")
    else:
        mutations.mutated_json(path, how)


def sealed_again(folder: Path) -> None:
    """As a careful forger would leave a result folder: every digest fits what is there."""
    from elsewhere import results

    seal = getattr(results, "reseal", None)
    if seal is None or not (folder / "summary.json").is_file():
        return
    try:
        tree = json.loads((folder / "summary.json").read_bytes()[: 1 << 22])
        mutations.write_json(seal(tree, folder), folder / "summary.json")
    except (ValueError, OSError, RecursionError, AttributeError, TypeError, KeyError):
        return


def use_result(artefacts: Path, task: str, folder: Path, command: str, scratch: Path) -> None:
    other = artefacts / "results" / task / "second"
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    arguments: dict[str, tuple[object, ...]] = {
        "report": ("report", folder, "--out", scratch / "page.html", "--tables", out),
        "compare": ("compare", folder, other, "--resamples", 0),
        "compared": ("compare", other, folder, "--resamples", 0),
        "rank": ("rank", folder, other, "--resamples", 20),
        "equivalence": ("equivalence", folder, other, "--margin", 0.1, "--resamples", 20),
        "split": ("equivalence", folder, "--split-by", "site", "--reference", "north", "--margin", 0.1, "--resamples", 0),
        "summarise": ("summarise", task, made.cohort_of(artefacts / "results", task), folder, "--resamples", 0, "--out", out),
        "diff": ("diff", folder, other),
        "json": ("diff", other, folder, "--json"),
    }  # fmt: skip
    ends_well(*arguments[command])
    beside = sorted(path.name for path in scratch.iterdir())
    assert set(beside) <= {"result", "out", "page.html", "nowhere"}, f"files outside of --tables: {beside}"


COMMANDS = (
    "report",
    "report",
    "compare",
    "compared",
    "rank",
    "equivalence",
    "split",
    "summarise",
    "diff",
    "json",
)


def fuzz_results(artefacts: Path, scratch: Path, data: st.DataObject) -> None:
    task = data.draw(st.sampled_from(made.TASKS))
    folder = copied(artefacts / "results" / task / "first", scratch / "result")
    name = data.draw(st.sampled_from(("summary.json",) * 8 + ("scores.parquet", "events.parquet", ".")))
    change = data.draw(changes)
    if name == ".":
        mutations.swapped(folder, data.draw(st.sampled_from(SWAPS)), artefacts / "claim" / "claim.toml")
    elif name.endswith(".parquet"):
        if not (folder / name).exists():
            return
        change_file(
            folder / name,
            change if change[0] != "tree" else ("swap", "random"),
            artefacts / "claim" / "claim.toml",
        )
    else:
        change_file(folder / name, change, artefacts / "claim" / "claim.toml")
        if change[0] == "tree" and data.draw(st.booleans()):
            sealed_again(folder)
    use_result(artefacts, task, folder, data.draw(st.sampled_from(COMMANDS)), scratch)


def fuzz_tables(artefacts: Path, scratch: Path, data: st.DataObject) -> None:
    task = data.draw(st.sampled_from(made.TASKS))
    folder = copied(artefacts / "results" / task / "first", scratch / "result")
    name = data.draw(st.sampled_from(("scores.parquet", "scores.parquet", "events.parquet")))
    if not (folder / name).exists():
        name = "scores.parquet"
    frame = mutations.mutated_table(pd.read_parquet(folder / name), data.draw(table_edits))
    frame.to_parquet(folder / name)
    if data.draw(st.integers(0, 4)):
        sealed_again(folder)
    use_result(artefacts, task, folder, data.draw(st.sampled_from(COMMANDS[2:])), scratch)


def fuzz_claims(artefacts: Path, scratch: Path, data: st.DataObject, *, name: str = "claim.toml") -> None:
    folder = copied(artefacts / "claim", scratch / "claim")
    if name == "claim.toml":
        for lock in folder.glob("*.lock"):
            lock.unlink()
    file = folder / name
    if not file.exists():
        file = next(iter(folder.glob("*.lock")), file)
    change_file(file, data.draw(changes), folder / "cohort.csv")
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    ends_well("accept", folder / "cohort.csv", folder / "predictions.csv", "--claim", folder / "claim.toml", "--out", out, "--resamples", 0)  # fmt: skip


def fuzz_locks(artefacts: Path, scratch: Path, data: st.DataObject) -> None:
    fuzz_claims(artefacts, scratch, data, name="claim.toml.lock")


def fuzz_studies(artefacts: Path, scratch: Path, data: st.DataObject) -> None:
    recipes = data.draw(st.booleans())
    source = artefacts / "recipes" if recipes else artefacts / "study"
    study = scratch / "tiny.toml"
    copied(source / "tiny.toml", study)
    change_file(study, data.draw(changes), artefacts / "claim" / "cohort.csv")
    options: list[object] = ["--data", source / "world"] if recipes else []
    if not recipes:
        for name in ("Alder", "Birch"):
            if not (scratch / name).exists():
                shutil.copytree(source / name, scratch / name)
    ends_well("plan", study, "--out", source / "out", *options, *data.draw(st.sampled_from(((), ("--profile", "small"), ("--json",)))))  # fmt: skip


def fuzz_bundles(artefacts: Path, scratch: Path, data: st.DataObject) -> None:
    bundle = copied(artefacts / "recipes" / "bundle", scratch / "bundle")
    files = sorted(path for path in bundle.rglob("*") if path.is_file() and path.suffix != ".html")
    file = files[int(data.draw(positions) * len(files))]
    if data.draw(st.booleans()):
        file = bundle / data.draw(
            st.sampled_from(("bundle.json", "SHA256SUMS", "scores.json", "study.json", "audit.json"))
        )
    change = data.draw(changes)
    if change[0] == "tree" and file.suffix == ".parquet":
        mutations.mutated_table(pd.read_parquet(file), data.draw(table_edits)).to_parquet(file)
    elif change[0] == "tree" and file.suffix == ".csv":
        mutations.mutated_table(pd.read_csv(file), data.draw(table_edits)).to_csv(file, index=False)
    else:
        change_file(
            file,
            change if file.suffix == ".json" or change[0] != "tree" else ("swap", "random"),
            artefacts / "claim" / "cohort.csv",
        )
    if data.draw(st.booleans()):
        sums = bundle / "SHA256SUMS"
        if (
            sums.is_file()
            and file.is_file()
            and not file.is_symlink()
            and file != sums
            and file.stat().st_size < 1 << 24
        ):
            name = file.relative_to(bundle).as_posix()
            lines = [
                f"{digest(file.read_bytes())}  {name}" if line.endswith(f"  {name}") else line
                for line in sums.read_text().splitlines()
            ]
            sums.write_text("\n".join(lines) + "\n")
    ends_well("check-bundle", bundle)


def change_unit(name: str, content: bytes, data: st.DataObject) -> bytes:
    """A file of a unit: its values where it is JSON, its arrays where it is a .npz, else its bytes."""
    if name.endswith(".json") and data.draw(st.booleans()):
        return json.dumps(mutations.mutated_tree(json.loads(content), data.draw(tree_edits))).encode()
    if name.endswith(".npz") and data.draw(st.booleans()):
        with np.load(io.BytesIO(content), allow_pickle=False) as held:
            arrays = {key: held[key] for key in held.files}
        chosen = list(arrays)[int(data.draw(positions) * len(arrays))]
        how = data.draw(st.sampled_from(("drop", "objects", "shape", "text", "huge", "tree", "more")))
        if how == "drop":
            del arrays[chosen]
        elif how == "tree" and "tree" in arrays:
            arrays["tree"] = np.array(
                json.dumps(mutations.mutated_tree(json.loads(str(arrays["tree"])), data.draw(tree_edits)))
            )
        else:
            arrays[chosen] = {
                "objects": np.array([{"a": print}, None], dtype=object),
                "shape": np.zeros((3, 0, 2)),
                "text": np.array(["x", "\x1b[2J"]),
                "huge": np.array([1e308, np.nan]),
                "tree": np.array("[" * 3000),
                "more": np.arange(1000),
            }[how]
        packed = io.BytesIO()
        np.savez(packed, **arrays)
        return packed.getvalue()
    return mutations.mutated_bytes(content, data.draw(byte_edits))


def fitting(files: dict[str, bytes]) -> dict[str, bytes]:
    """The digests and sizes of each unit made to fit its files."""
    out = dict(files)
    for name, content in files.items():
        if not name.endswith("done.json"):
            continue
        folder = name.removesuffix("done.json")
        try:
            done = json.loads(content)
            for file in list(done["digests"]):
                done["digests"][file] = digest(files[folder + file])
                done["sizes"][file] = len(files[folder + file])
            out[name] = json.dumps(done).encode()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return out


def fuzz_models(artefacts: Path, scratch: Path, data: st.DataObject) -> None:
    model = copied(artefacts / "recipes" / "keeper.zip", scratch / "model.zip")
    how = data.draw(st.sampled_from(("member", "member", "member", "bytes", "swap", "names")))
    if how == "bytes":
        model.write_bytes(mutations.mutated_bytes(model.read_bytes(), data.draw(byte_edits)))
    elif how == "swap":
        mutations.swapped(model, data.draw(st.sampled_from(SWAPS)), artefacts / "claim" / "cohort.csv")
    else:
        with zipfile.ZipFile(model) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        names = sorted(files)
        chosen = names[int(data.draw(positions) * len(names))]
        if how == "names":
            files[data.draw(st.sampled_from(("../evil", "units/../../evil", "/abs", "units/x/unit.json", "units/" + "k" * 99 + "/done.json", "units/a\x1b[2J/done.json")))] = files.pop(chosen)  # fmt: skip
        else:
            files[chosen] = change_unit(chosen, files[chosen], data)
            if data.draw(st.integers(0, 3)):
                files = fitting(files)
        with zipfile.ZipFile(model, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    command = data.draw(st.sampled_from(("models", "models", "predict", "run", "export")))
    recipes = artefacts / "recipes"
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    (scratch / "again.zip").unlink(missing_ok=True)
    if command == "models":
        ends_well("models", model)
    elif command == "export":
        ends_well("models", model, "--export", scratch / "again.zip")
    elif command == "predict":
        ends_well("predict", model, recipes / "cohort", "--out", out, "--device", "cpu")
    else:
        ends_well("run", recipes / "tiny.toml", "--data", recipes / "world", "--out", out, "--import", model, "--minutes", 0, "--no-report", "--device", "cpu")  # fmt: skip


def fuzz_stores(artefacts: Path, scratch: Path, data: st.DataObject) -> None:
    store = copied(artefacts / "recipes" / "out" / "store", scratch / "store")
    units = sorted((store / "units").iterdir())
    unit = units[int(data.draw(positions) * len(units))]
    files = sorted(unit.iterdir())
    file = files[int(data.draw(positions) * len(files))]
    if data.draw(st.integers(0, 3)) == 0:
        mutations.swapped(file, data.draw(st.sampled_from(SWAPS)), artefacts / "claim" / "cohort.csv")
    else:
        file.write_bytes(change_unit(file.name, file.read_bytes(), data))
        if data.draw(st.integers(0, 3)):
            for name, content in fitting({f.name: f.read_bytes() for f in files}).items():
                (unit / name).write_bytes(content)
    ends_well("models", store)


def run_fuzz(kind: str, artefacts: Path, scratch: Path, examples: int, *, seeded: bool) -> None:
    one = globals()[f"fuzz_{kind}"]

    @settings(max_examples=max(5, round(SHARE[kind] * examples)), deadline=None, derandomize=seeded, suppress_health_check=WITHIN, database=None)  # fmt: skip
    @given(data=st.data())
    def example(data: st.DataObject) -> None:
        one(artefacts, scratch, data)

    example()


@pytest.mark.parametrize("kind", KINDS)
def test_files_from_elsewhere_are_answered_or_refused(kind, artefacts, tmp_path):
    """Some fifty mutations, the same each time; the slow test below draws ten thousand."""
    run_fuzz(kind, artefacts, tmp_path, QUICK, seeded=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_files_from_elsewhere_are_answered_or_refused(kind, artefacts, tmp_path):
    """Ten thousand mutations, others each time."""
    run_fuzz(kind, artefacts, tmp_path, MANY, seeded=False)
