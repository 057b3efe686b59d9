"""Running a study: nothing lost, nothing doubled, whatever ends it; and what a person is told."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from elsewhere.analysis.study.summary import analyse
from elsewhere.cli import main
from elsewhere.commands.plan import plan_study
from elsewhere.engine.store import Store
from elsewhere.errors import EXIT_BAD_INPUT, EXIT_NOT_ASSESSED, EXIT_OK, UserError
from worlds import child_environment
from worlds.picture_study import edit, run_tiny, train

ROI: dict[str, object] = {"only_inputs": ["roi"]}
"""Half of the study: 32 runs of 16 trainings."""


def test_a_study_runs_once(world, tmp_path, trainings):
    out = tmp_path / "out"
    first = run_tiny(world, out, **ROI)
    told = first.to_dict()
    assert first.exit_code == EXIT_OK
    assert told["runs"] == {"planned": 32, "done": 32, "failed": 0, "skipped": 0, "invalid": 0}
    assert told["trainings"]["trained"] == 16 == len(set(trainings()))
    again = run_tiny(world, out, **ROI)
    assert again.to_dict()["trainings"] | {"trained": 0, "reused": 16} == again.to_dict()["trainings"]
    assert len(trainings()) == 16
    json.dumps(told)


def test_files_beside_the_store(world, tmp_path):
    out = tmp_path / "out"
    done = run_tiny(world, out, **ROI).run
    assert {p.name for p in out.iterdir()} == {
        "store",
        "splits",
        "study.json",
        "manifest.csv",
        "runs.csv",
        "trainings.csv",
        "costs.csv",
        "scores.csv",
        "scores_classification.parquet",
        "predictions.parquet",
        "predictions",
    }
    held = json.loads((out / "study.json").read_text())
    assert held["study"]["models"]["cnn"]["epochs"] == 3
    assert held["audit"]["cohorts"]["Alder"]["patients"] == 19
    predictions = pd.read_parquet(out / "predictions.parquet")
    assert predictions["run"].nunique() == 32
    assert str(tmp_path) not in (out / "manifest.csv").read_text()
    assert len(pd.read_csv(out / "manifest.csv")) == len(done.plan.table.frame)


def test_outputs_are_those_of_the_store_by_case(world, tmp_path):
    results = run_tiny(world, tmp_path / "out").run.results
    plan = plan_study(world, out=tmp_path / "out", seeds=[1]).plan
    store = Store(tmp_path / "out" / "store")
    for run in ("Alder|cnn-roi|classification|1", "Alder>Birch|vit-whole|classification|1"):
        row = results.runs.set_index("run").loc[run]
        made = plan.partitions[row["scenario"], 1]
        held = store.load(row["training"])
        place = {name: at for at, name in enumerate(held.case)}
        parts = results.answers(run)
        assert list(parts) == ["test", "validation", "normal"]
        for part, frame in parts.items():
            assert tuple(frame["case"]) == getattr(made, part)
            rows = [place[name] for name in frame["case"]]
            logits = frame[["logit_negative", "logit_positive"]].to_numpy()
            np.testing.assert_allclose(logits, held.answers["classification"].logits[rows])
            np.testing.assert_allclose(frame["probability"], 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])))
        assert set(parts["test"]["label"]) == {0, 1} and set(parts["normal"]["label"]) == {-1}
        truth = dict(zip(plan.table.frame["case"], plan.table.frame["label"], strict=True))
        words = {0: "benign", 1: "malignant", -1: "normal"}
        assert all(
            truth[c] == words[y] for c, y in zip(parts["test"]["case"], parts["test"]["label"], strict=True)
        )
    with pytest.raises(UserError, match="has no run"):
        results.answers("nothing")


def test_a_changed_study_trains_only_what_changed(world, tmp_path, trainings):
    out = tmp_path / "out"
    run_tiny(world, out, **ROI)
    run_tiny(world, out, changes=["models.cnn.epochs=4"], **ROI)
    fresh = trainings()[16:]
    assert len(fresh) == 8 and all("| cnn |" in name for name in fresh)
    run_tiny(world, out, seeds=[1, 2], **ROI)
    assert len(trainings()) == 24 + 16
    assert max(Counter(line.split()[0] for line in trainings()).values()) == 1


def test_two_studies_share_a_store(world, tmp_path, trainings):
    """The margin study: what the main study trained is not trained again."""
    store = tmp_path / "shared"
    run_tiny(world, tmp_path / "main", store=store, only=["Alder>Birch"], **ROI)
    other = world.with_name("margins.toml")
    other.write_text(world.read_text() + '\n[inputs.wide]\nkind = "roi"\nmargin = 0.3\n')
    done = run_tiny(
        other, tmp_path / "margins", store=store, only=["Alder>Birch"], only_inputs=["roi", "wide"]
    )
    assert done.to_dict()["trainings"] | {"trained": 2, "reused": 2} == done.to_dict()["trainings"]
    assert len(trainings()) == 4


def test_a_failed_training_is_shown_and_tried_again(world, tmp_path, trainings, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setenv("FAIL_NAMED", "Alder>* | cnn | roi")
    done = run_tiny(world, out, **ROI)
    told = done.to_dict()
    assert done.exit_code == EXIT_NOT_ASSESSED
    assert told["runs"] == {"planned": 32, "done": 29, "failed": 3, "skipped": 0, "invalid": 0}
    assert told["failures"][0]["reason"] == "the loss is not a number"
    text = "\n".join(done.lines())
    assert "failed: Alder>* | cnn | roi | seed 1: the loss is not a number" in text
    assert "The same command tries the failed trainings again" in text
    runs = done.run.results.runs
    failed = runs[runs["status"] == "failed"]
    assert set(failed["reason"]) == {"the loss is not a number"}
    with pytest.raises(UserError, match="not a number"):
        done.run.results.answers(failed["run"].iloc[0])
    planned = plan_study(world, out=out, seeds=[1], **ROI)
    assert len(planned.status.failed) == 1 and "failed before" in "\n".join(planned.lines())
    monkeypatch.delenv("FAIL_NAMED")
    again = run_tiny(world, out, **ROI)
    assert again.exit_code == EXIT_OK and again.to_dict()["trainings"]["trained"] == 1
    assert len(trainings()) == 16


def test_a_skipped_scenario_is_recorded_and_shown(world, tmp_path):
    edit(world, "Cedar", lambda t: t.__setitem__("label", t["label"].replace("malignant", "benign")))
    done = run_tiny(world, tmp_path / "out", **ROI)
    assert done.exit_code == EXIT_OK
    assert done.to_dict()["runs"] == {"planned": 18, "done": 18, "failed": 0, "skipped": 14, "invalid": 0}
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
    stopped = run_tiny(world, out, trainer=interrupted, **ROI)
    assert stopped.exit_code == 130
    text = "\n".join(stopped.lines())
    assert "3 trainings are finished and saved" in text and "same command" in text
    assert stopped.to_dict()["stopped"] is True
    assert run_tiny(world, out, **ROI).to_dict()["trainings"]["reused"] == 3
    assert len(trainings()) == 16


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
            run_tiny(world, out, **ROI)
    assert "again" in (caught.value.fix or "")
    held = len(Store(out / "store").keys())
    assert 0 < held < 16
    done = run_tiny(world, out, **ROI)
    assert done.to_dict()["trainings"] | {"trained": 16 - held, "reused": held} == done.to_dict()["trainings"]


def test_no_space_left_while_writing_the_results(world, tmp_path, monkeypatch):
    import elsewhere.study.run as runs

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runs, "write_results", full)
    with pytest.raises(UserError, match="no space left"):
        run_tiny(world, tmp_path / "out", **ROI)
    monkeypatch.undo()
    assert run_tiny(world, tmp_path / "out", **ROI).to_dict()["trainings"]["trained"] == 0


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
    plan_study(world, out=tmp_path / "out", seeds=[1], export=tmp_path / "work", **ROI)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "elsewhere.engine", "work", "--store", "there"),
            *("--zip", "done.zip", "--trainer", "worlds.picture_study:train"),
        ],
        cwd=tmp_path,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(trainings()) == 16
    told = run_tiny(world, tmp_path / "out", imports=[tmp_path / "done.zip"], **ROI).to_dict()
    assert told["trainings"] | {"imported": 16, "trained": 0, "reused": 16} == told["trainings"]
    assert len(trainings()) == 16


def command(study, out, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "elsewhere", "run", str(study), "--out", str(out), "--seeds", "1"),
        *("--only-input", "roi", "--trainer", "worlds.picture_study:train", "--no-report", "--json", *more),
    ]


@pytest.mark.parametrize(
    "waits", [(0.06,), pytest.param((0.0, 0.03, 0.06, 0.09, 0.12), marks=pytest.mark.slow)]
)
def test_killed_at_any_moment_it_goes_on_with_nothing_lost_or_doubled(world, tmp_path, waits):
    """kill -9, in the slow form again and again, each time a little later; then to the end."""
    out, log = tmp_path / "out", tmp_path / "log.txt"
    environment = child_environment(TRAININGS=str(log), TRAINING_SECONDS="0.04")
    finished = 0
    for wait in waits:
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
    assert told["runs"] == {"planned": 32, "done": 32, "failed": 0, "skipped": 0, "invalid": 0}
    assert told["trainings"]["reused"] >= finished
    counts = Counter(line.split()[0] for line in log.read_text().splitlines())
    assert len(counts) == 16
    assert max(counts.values()) <= 2, "only a training that was cut off is done twice"
    assert sum(counts.values()) <= 16 + len(waits)
    leftovers = [p.name for p in (out / "store" / "units").iterdir() if p.name.startswith(".")]
    assert leftovers == []
    assert run_tiny(world, tmp_path / "plain", **ROI).exit_code == EXIT_OK
    one, two = (pd.read_parquet(folder / "predictions.parquet") for folder in (out, tmp_path / "plain"))
    pd.testing.assert_frame_equal(one, two)


def test_json_is_one_object_also_for_a_mistake(world, tmp_path, capfd):
    def called(*more: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(command(world, tmp_path / "out", *more)[3:])
        return (int(end.value.code or 0), *capfd.readouterr())

    code, out, _ = called()
    assert code == EXIT_OK and out.count("\n") == 1
    assert json.loads(out)["trainings"]["trained"] == 16
    code, out, err = called("--set", "models.cnn.epoch=2")
    assert code == EXIT_BAD_INPUT
    assert "unknown key" in json.loads(out)["error"]
    assert "Traceback" not in err


def test_an_ensemble_is_the_mean_probability_of_the_seeds(world, tmp_path):
    changes = ["analyses.resamples=0"]
    results = run_tiny(
        world, tmp_path / "out", seeds=[1, 2], only_models=["cnn"], changes=changes
    ).run.results
    ensembles = analyse(results).of("ensembles")
    assert (
        len(ensembles) == 12 * 2 and set(ensembles["kind"]) == {"external"} and set(ensembles["seeds"]) == {2}
    )
    row = ensembles[(ensembles["scenario"] == "Alder>Birch") & (ensembles["input"] == "roi")].iloc[0]
    members = [results.answers(f"Alder>Birch|cnn-roi|classification|{seed}")["test"] for seed in (1, 2)]
    assert list(members[0]["case"]) == list(members[1]["case"])
    label = members[0]["label"].to_numpy()

    def auroc(probability):
        difference = probability[label == 1][:, None] - probability[label == 0][None, :]
        return np.mean((difference > 0) + 0.5 * (difference == 0))

    each = [member["probability"].to_numpy() for member in members]
    assert row["auroc"] == pytest.approx(auroc(np.mean(each, axis=0)))
    assert row["mean_of_seeds"] == pytest.approx(np.mean([auroc(one) for one in each]))


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
    assert "Overlap of the found boxes with the annotated ones" in page


def test_time_that_is_up_leaves_the_rest(world, tmp_path):
    done = run_tiny(world, tmp_path / "out", minutes=0)
    assert done.exit_code == EXIT_NOT_ASSESSED
    assert done.to_dict()["trainings"]["left"] == 32
    assert "the same command resumes" in "\n".join(done.lines())
