"""ST-15, ST-13: the test of a reader study keeps its level, and a test that forgets what is random does not."""

from __future__ import annotations

import dataclasses

import pytest

from elsewhere.simulation.readers import CELLS, reader_promises


def test_a_cell_is_the_same_in_one_process_and_in_two():
    cells = [cell for cell in CELLS if cell.world.readers == 3 and not cell.nested][:2]
    assert reader_promises(replicates=8, cells=cells) == reader_promises(
        replicates=8, cells=cells, processes=2
    )


def test_the_settings_are_all_different():
    names = [(cell.event, cell.setting) for cell in CELLS]
    assert len(set(names)) == len(names)


def test_the_level_of_two_plain_cells():
    cells = [
        next(c for c in CELLS if c.figure == figure and c.world.readers == 5 and c.promised and not c.nested)
        for figure in ("auroc", "wafroc")
    ]
    for row in reader_promises(replicates=250, cells=cells):
        assert row.holds, row
        assert row.rate > 0.005, "a test that never rejects keeps no level"


def test_a_test_that_takes_the_cases_as_fixed_rejects_too_often():
    cell = next(cell for cell in CELLS if cell.random.value == "readers")
    row = reader_promises(replicates=200, cells=[dataclasses.replace(cell, promised=True)])[0]
    assert not row.holds and row.rate > 0.1


@pytest.mark.slow
def test_every_promised_level_holds():
    broken = [row for row in reader_promises(replicates=1000) if not row.holds]
    again = [
        cell for cell in CELLS for row in broken if (cell.event, cell.setting) == (row.event, row.setting)
    ]
    assert [row for row in reader_promises(replicates=10_000, cells=again) if not row.holds] == []
