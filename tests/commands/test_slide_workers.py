"""Many slides in several processes: one that ends its process does not end the others."""

from __future__ import annotations

from elsewhere.commands.slide_patches.workers import run_each
from worlds.slide_sets import dies_on_b


def test_a_process_that_dies_takes_only_its_task_with_it():
    found = dict(run_each(dies_on_b, ["a", "b", "c", "d", "e"], workers=2))
    assert sorted(found) == ["a", "b", "c", "d", "e"]
    assert "process that read this slide ended" in found["b"]["error"]
    assert found["c"]["error"] == "bad"
    assert [found[name] for name in "ade"] == [None, None, None]


def test_in_this_process_every_task_is_run_in_order():
    assert list(run_each(lambda task, progress: {"error": task}, ["x", "y"])) == [
        ("x", {"error": "x"}),
        ("y", {"error": "y"}),
    ]
