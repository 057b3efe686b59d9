"""Running a study: nothing lost, nothing doubled, whatever ends it; and what a person is told."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import study_world
from study_world import edit, train

from elsewhere.commands.plan import plan_study
from elsewhere.commands.run import run_study
from elsewhere.engine.store import Store
from elsewhere.errors import EXIT_BAD_INPUT, EXIT_NOT_ASSESSED, EXIT_OK, UserError


def run_tiny(study, out, **options):
    """The study with the fake trainer and without a report."""
    return run_study(study, out=out, **{"trainer": train, "report": False, "seeds": [1]} | options)


def test_a_study_runs_once(world, tmp_path, trainings):
    out = tmp_path / "out"
    first = run_tiny(world, out)
    told = first.to_dict()
    assert first.exit_code == EXIT_OK
    assert told["runs"] == {"planned": 64, "done": 64, "failed": 0, "skipped": 0}
    assert told["trainings"]["trained"] == 32 == len(set(trainings()))
    again = run_tiny(world, out)
    assert again.to_dict()["trainings"] | {"trained": 0, "reused": 32} == again.to_dict()["trainings"]
    assert len(trainings()) == 32
    json.dumps(told)


def test_files_beside_the_store(world, tmp_path):
    out = tmp_path / "out"
    done = run_tiny(world, out).run
    assert {p.name for p in out.iterdir()} == {
        "store",
        "splits",
        "study.json",
        "manifest.csv",
        "runs.csv",
        "trainings.csv",
        "predictions.parquet",
    }
    held = json.loads((out / "study.json").read_text())
    assert held["study"]["models"]["cnn"]["epochs"] == 3
    assert held["audit"]["cohorts"]["Alder"]["patients"] == 19
    predictions = pd.read_parquet(out / "predictions.parquet")
    assert predictions["run"].nunique() == 64
    assert str(tmp_path) not in (out / "manifest.csv").read_text()
    assert len(pd.read_csv(out / "manifest.csv")) == len(done.plan.table.frame)


def test_outputs_are_those_of_the_store_by_case(world, tmp_path):
    results = run_tiny(world, tmp_path / "out").run.results
    plan = plan_study(world, out=tmp_path / "out", seeds=[1]).plan
    store = Store(tmp_path / "out" / "store")
    for run in ("Alder|cnn|roi|1", "Alder>Birch|vit|whole|1"):
        row = results.runs.set_index("run").loc[run]
        made = plan.partitions[row["scenario"], 1]
        held = store.load(row["unit"])
        place = {name: at for at, name in enumerate(held.case)}
        parts = results.outputs(run)
        assert list(parts) == ["test", "validation", "normal"]
        for part, frame in parts.items():
            assert tuple(frame["case"]) == getattr(made, part)
            rows = [place[name] for name in frame["case"]]
            np.testing.assert_allclose(
                frame[["logit_benign", "logit_malignant"]], held.answers["classification"].logits[rows]
            )
        assert set(parts["test"]["label"]) == {0, 1} and set(parts["normal"]["label"]) == {-1}
        truth = dict(zip(plan.table.frame["case"], plan.table.frame["label"], strict=True))
        words = {0: "benign", 1: "malignant", -1: "normal"}
        assert all(
            truth[c] == words[y] for c, y in zip(parts["test"]["case"], parts["test"]["label"], strict=True)
        )
    with pytest.raises(UserError, match="has no run"):
        results.outputs("nothing")


def test_a_changed_study_trains_only_what_changed(world, tmp_path, trainings):
    out = tmp_path / "out"
    run_tiny(world, out)
    run_tiny(world, out, changes=["models.cnn.epochs=4"])
    fresh = trainings()[32:]
    assert len(fresh) == 16 and all("| cnn |" in name for name in fresh)
    run_tiny(world, out, seeds=[1, 2])
    assert len(trainings()) == 48 + 32
    assert max(Counter(line.split()[0] for line in trainings()).values()) == 1


def test_two_studies_share_a_store(world, tmp_path, trainings):
    """The margin study: what the main study trained is not trained again."""
    store = tmp_path / "shared"
    run_tiny(world, tmp_path / "main", store=store)
    other = world.with_name("margins.toml")
    other.write_text(world.read_text() + '\n[inputs.wide]\nkind = "roi"\nmargin = 0.3\n')
    done = run_tiny(
        other, tmp_path / "margins", store=store, only=["Alder>Birch"], only_inputs=["roi", "wide"]
    )
    assert done.to_dict()["trainings"] | {"trained": 2, "reused": 2} == done.to_dict()["trainings"]
    assert len(trainings()) == 34


def test_a_failed_training_is_shown_and_tried_again(world, tmp_path, trainings, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setenv("FAIL_NAMED", "Alder>* | cnn | roi")
    done = run_tiny(world, out)
    told = done.to_dict()
    assert done.exit_code == EXIT_NOT_ASSESSED
    assert told["runs"] == {"planned": 64, "done": 61, "failed": 3, "skipped": 0}
    assert told["failures"][0]["reason"] == "the loss is not a number"
    text = "\n".join(done.lines())
    assert "failed: Alder>* | cnn | roi | seed 1: the loss is not a number" in text
    assert "The same command tries the failed trainings again" in text
    runs = done.run.results.runs
    failed = runs[runs["status"] == "failed"]
    assert set(failed["reason"]) == {"the loss is not a number"}
    with pytest.raises(UserError, match="not a number"):
        done.run.results.outputs(failed["run"].iloc[0])
    planned = plan_study(world, out=out, seeds=[1])
    assert len(planned.status.failed) == 1 and "failed before" in "\n".join(planned.lines())
    monkeypatch.delenv("FAIL_NAMED")
    again = run_tiny(world, out)
    assert again.exit_code == EXIT_OK and again.to_dict()["trainings"]["trained"] == 1
    assert len(trainings()) == 32


def test_a_skipped_scenario_is_recorded_and_shown(world, tmp_path):
    edit(world, "Cedar", lambda t: t.__setitem__("label", t["label"].replace("malignant", "benign")))
    done = run_tiny(world, tmp_path / "out")
    assert done.exit_code == EXIT_OK
    assert done.to_dict()["runs"] == {"planned": 36, "done": 36, "failed": 0, "skipped": 28}
    assert "skipped: Cedar (1 seeds)" in "\n".join(done.lines())
    assert set(done.run.results.skipped.columns) >= {"scenario", "seed", "reason"}
    assert "Cedar" in (tmp_path / "out" / "splits" / "index.json").read_text()


def test_no_scenario_at_all_is_an_error(world, tmp_path):
    for name in ("Alder", "Birch", "Cedar", "Dogwood"):
        edit(world, name, lambda t: t.__setitem__("label", t["label"].replace("malignant", "benign")))
    with pytest.raises(UserError, match="no scenario of the study can be split"):
        run_tiny(world, tmp_path / "out")


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(world, tmp_path, trainings):
    def interrupted(units, work, *, finished, **options):
        def once(unit, outcome):
            finished(unit, outcome)
            if len(trainings()) >= 3:
                raise KeyboardInterrupt

        train(units, work, finished=once, **options)

    out = tmp_path / "out"
    stopped = run_tiny(world, out, trainer=interrupted)
    assert stopped.exit_code == 130
    text = "\n".join(stopped.lines())
    assert "3 trainings are finished and kept" in text and "same command" in text
    assert stopped.to_dict()["stopped"] is True
    assert run_tiny(world, out).to_dict()["trainings"]["reused"] == 3
    assert len(trainings()) == 32


def test_no_space_left_while_training(world, tmp_path, trainings, monkeypatch):
    """Nothing half-written counts as done, and the run goes on when there is space again."""
    import elsewhere.engine.store as stores

    write, calls = stores.write_synced, []

    def full(path, content):
        calls.append(path)
        if len(calls) > 10:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, content)

    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(stores, "write_synced", full)
        with pytest.raises(UserError, match="no space left") as caught:
            run_tiny(world, out)
    assert "again" in (caught.value.fix or "")
    held = len(Store(out / "store").keys())
    assert 0 < held < 32
    done = run_tiny(world, out)
    assert done.to_dict()["trainings"] | {"trained": 32 - held, "reused": held} == done.to_dict()["trainings"]


def test_no_space_left_while_writing_the_results(world, tmp_path, monkeypatch):
    import elsewhere.study.run as runs

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runs, "write_results", full)
    with pytest.raises(UserError, match="no space left"):
        run_tiny(world, tmp_path / "out")
    monkeypatch.undo()
    assert run_tiny(world, tmp_path / "out").to_dict()["trainings"]["trained"] == 0


def test_a_folder_of_other_things_is_left_alone(world, tmp_path):
    out = tmp_path / "mine"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="left alone"):
        run_tiny(world, out)
    assert [p.name for p in out.iterdir()] == ["thesis.txt"]


def test_a_folder_with_files_of_the_names_of_ours_is_left_alone(world, tmp_path):
    """A folder counted as a study because something in it was called `study.json`, `store` or `splits`: its
    manifest.csv and runs.csv were overwritten."""
    for mark in ("study.json", "store", "splits"):
        out = tmp_path / mark.replace(".", "-")
        out.mkdir()
        if mark.endswith("json"):
            (out / mark).write_text('{"title": "my studies"}')
        else:
            (out / mark).mkdir()
        (out / "manifest.csv").write_text("of a hospital's own")
        with pytest.raises(UserError, match="left alone"):
            run_tiny(world, out)
        assert (out / "manifest.csv").read_text() == "of a hospital's own"
        assert {p.name for p in out.iterdir()} == {mark, "manifest.csv"}


def test_trainings_from_another_machine(world, tmp_path, trainings):
    plan_study(world, out=tmp_path / "out", seeds=[1], export=tmp_path / "work")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "elsewhere.engine", "work", "--store", "there"),
            *("--zip", "done.zip", "--trainer", "study_world:train"),
        ],
        cwd=tmp_path,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(trainings()) == 32
    told = run_tiny(world, tmp_path / "out", imports=[tmp_path / "done.zip"]).to_dict()
    assert told["trainings"] | {"imported": 32, "trained": 0, "reused": 32} == told["trainings"]
    assert len(trainings()) == 32


def child_environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(study_world.__file__).parent), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, **more}


def command(study, out, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "elsewhere", "run", str(study), "--out", str(out), "--seeds", "1"),
        *("--trainer", "study_world:train", "--no-report", "--json", *more),
    ]


def test_killed_at_any_moment_it_goes_on_with_nothing_lost_or_doubled(world, tmp_path):
    """kill -9, five times, each a little later; then to the end."""
    out, log = tmp_path / "out", tmp_path / "log.txt"
    environment = child_environment(TRAININGS=str(log), TRAINING_SECONDS="0.02")
    finished = 0
    for wait in (0.0, 0.03, 0.06, 0.09, 0.12):
        child = subprocess.Popen(command(world, out), env=environment, stdout=subprocess.PIPE)
        begun = log.stat().st_size if log.exists() else 0
        end = time.monotonic() + 120
        while child.poll() is None and time.monotonic() < end:
            if log.exists() and log.stat().st_size > begun:
                break
            time.sleep(0.005)
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
        child.wait()
        done = len(Store(out / "store").keys())
        assert done >= finished
        finished = done
    last = subprocess.run(command(world, out), env=environment, capture_output=True, text=True, check=False)
    assert last.returncode == EXIT_OK, last.stderr
    told = json.loads(last.stdout)
    assert told["runs"] == {"planned": 64, "done": 64, "failed": 0, "skipped": 0}
    assert told["trainings"]["reused"] >= finished
    counts = Counter(line.split()[0] for line in log.read_text().splitlines())
    assert len(counts) == 32
    assert max(counts.values()) <= 2, "only a training that was cut off is done twice"
    assert sum(counts.values()) <= 32 + 5
    leftovers = [p.name for p in (out / "store" / "units").iterdir() if p.name.startswith(".")]
    assert leftovers == []
    plain = subprocess.run(
        command(world, tmp_path / "plain"), env=environment, capture_output=True, text=True, check=False
    )
    assert plain.returncode == EXIT_OK
    one, two = (pd.read_parquet(folder / "predictions.parquet") for folder in (out, tmp_path / "plain"))
    pd.testing.assert_frame_equal(one, two)


def test_json_is_one_object_also_for_a_mistake(world, tmp_path):
    done = subprocess.run(
        command(world, tmp_path / "out"), env=child_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == EXIT_OK and done.stdout.count("\n") == 1
    assert json.loads(done.stdout)["trainings"]["trained"] == 32
    bad = subprocess.run(
        command(world, tmp_path / "out", "--set", "models.cnn.epoch=2"),
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert bad.returncode == EXIT_BAD_INPUT
    assert "unknown key" in json.loads(bad.stdout)["error"]
    assert "Traceback" not in bad.stderr


def test_an_ensemble_is_the_mean_probability_of_the_seeds(world, tmp_path):
    results = run_tiny(world, tmp_path / "out", seeds=[1, 2], only_models=["cnn"]).run.results
    both = results.ensemble()
    made = both.runs[both.runs["ensemble"]]
    assert len(made) == 12 * 2 and set(made["kind"]) == {"external"} and set(made["seed"]) == {-1}
    one = both.outputs("Alder>Birch|cnn|roi|ensemble")
    members = [results.outputs(f"Alder>Birch|cnn|roi|{seed}")["test"] for seed in (1, 2)]

    def malignant(frame):
        logits = frame[["logit_benign", "logit_malignant"]].to_numpy()
        return np.exp(logits[:, 1]) / np.exp(logits).sum(axis=1)

    np.testing.assert_allclose(malignant(one["test"]), np.mean([malignant(m) for m in members], axis=0))
    assert len(one["validation"]) == 0
    pd.testing.assert_frame_equal(
        both.outputs("Alder|cnn|roi|1")["test"], results.outputs("Alder|cnn|roi|1")["test"]
    )
    assert len(results.runs) == len(both.runs) - len(made)


def test_found_boxes_run_after_their_finder_and_are_judged(world, tmp_path, trainings):
    """US-33."""
    done = run_tiny(
        world,
        tmp_path / "out",
        changes=["inputs.found={kind='roi', boxes='found'}", "scenarios.kinds=['external']"],
        only_inputs=["roi", "found"],
        only_models=["cnn"],
        report=True,
    )
    assert done.exit_code == EXIT_OK
    names = [line.partition(" ")[2] for line in trainings()]
    assert len(names) == 4 + 4 + 4
    for source in ("Alder", "Birch"):
        finder = names.index(f"{source}>* | finder | boxes | seed 1")
        assert finder < names.index(f"{source}>* | cnn | found | seed 1")
    told = done.run.results.audit["found_boxes"]
    assert len(told) == 12 and all(row["mean_iou"] == 1.0 and row["without_box"] == 0 for row in told)
    table = pd.read_csv(tmp_path / "out" / "report" / "tables" / "found_boxes.csv")
    assert len(table) == 12 and set(table["seeds"]) == {1}
    assert set(table["mean_iou"]) == {1.0} and set(table["none"]) == {0.0}
    page = (tmp_path / "out" / "report" / "report.html").read_text()
    assert "How the found boxes lie on the annotated ones" in page


def test_time_that_is_up_leaves_the_rest(world, tmp_path):
    done = run_tiny(world, tmp_path / "out", minutes=0)
    assert done.exit_code == EXIT_NOT_ASSESSED
    assert done.to_dict()["trainings"]["left"] == 32
    assert "the same command goes on" in "\n".join(done.lines())
