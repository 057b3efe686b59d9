"""`protocols`, `readers`, `metrics`, `recipes`: what can be named."""

from __future__ import annotations

from worlds.task_files import METRICS


def test_every_name_of_the_contract_is_listed(run):
    names = {row["name"] for row in run("metrics", "--json").json["metrics"]}
    for task, wanted in METRICS.items():
        assert {f"{task}.{name}" for name in wanted} <= names
    protocols = {row["name"] for row in run("protocols", "--json").json["protocols"]}
    assert {
        "plain",
        "dbtex-paper",
        "dbtex-code",
        "mamamia-paper",
        "mamamia-code",
        "camelyon16",
        "camelyon17",
    } <= protocols
    readers = {row["name"] for row in run("readers", "--json").json["readers"]}
    assert {"csv", "bcs-dbt", "mama-mia", "camelyon17"} <= readers


def test_as_text(run):
    for command, word in (
        ("protocols", "plain"),
        ("readers", "bcs-dbt"),
        ("metrics", "classification.auroc"),
        ("recipes", "residual-unet"),
    ):
        done = run(command)
        assert done.code == 0
        assert word in done.out
        assert max(map(len, done.out.splitlines())) < 200
