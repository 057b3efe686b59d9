"""The levels of the tests of a reader study (ST-15, judged by ST-13).

Studies are drawn in which the treatments do not differ: ratings by the model of Roe and Metz for the ROC AUC,
and marks by a search model with non-lesion marks for wAFROC. Both have a variance of readers and of their
interaction with the treatments, so that only the test with random readers and cases promises its level for other
readers and cases. For the comparison of a model with readers, the model's expected figure of merit is that of
the readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context

import numpy as np

from elsewhere.phantom.reader_study import ReaderWorld, draw_reader_study
from elsewhere.scoring.reader_study import ReaderStudy, figure_matrix, find_figure, panel_matrices
from elsewhere.scoring.reader_study.figures import LeftOut
from elsewhere.simulation.fairness import ALPHA, Promise, judge_rate
from elsewhere.statistics.bootstrap_weights import generator_for
from elsewhere.statistics.mrmc import RandomFactors, analyse_readers, compare_with_panel
from elsewhere.statistics.mrmc.analysis import FEWEST_DF

LOW, HIGH = (0.1, 0.1, 0.2), (0.3, 0.3, 0.2)
"""Shares of case, case x treatment and case x reader: low and high correlation (Roe and Metz 1997)."""
_NAMES = {LOW: "low correlation", HIGH: "high correlation"}


@dataclass(frozen=True, kw_only=True)
class ReaderCell:
    """One row of the table: studies without a difference.

    Args:
        figure: The figure of merit.
        world: What the studies are drawn from, with an effect of 0.
        random: What is random in the test.
        against_panel: Whether the test compares a model with the readers.
        leave_out: What the jackknife leaves out.
        nested: Whether each treatment has readers of its own, as many as the world has in all.
        promised: Whether the level is promised; other rows are shown alone.
    """

    figure: str
    world: ReaderWorld = field(default_factory=ReaderWorld)
    random: RandomFactors = RandomFactors.READERS_AND_CASES
    against_panel: bool = False
    leave_out: LeftOut = "patient"
    nested: bool = False
    promised: bool = True

    @property
    def event(self) -> str:
        """What is counted, in words."""
        return (
            "model differs from the readers" if self.against_panel else "treatments differ"
        ) + f", random {self.random.value.replace(',', ' and ')}"

    @property
    def setting(self) -> str:
        """The simulated setting, in words."""
        world = self.world
        treatments = "" if self.against_panel else f"{len(world.treatments)} treatments, "
        per_patient = (
            f" ({world.cases_per_patient} per patient, jackknife over {self.leave_out}s)"
            if world.cases_per_patient > 1
            else ""
        )
        usual = ReaderWorld().reader_sd
        same = ", readers alike" if not world.reader_sd else ""
        if world.reader_sd not in (0.0, usual):
            same = f", reader SD {world.reader_sd:g} in place of {usual:g}"
        each = " each" if self.nested else ""
        return (
            f"{find_figure(self.figure, world.paradigm).title}, {treatments}{world.readers} readers{each}, "
            f"{world.normal} + {world.diseased} cases{per_patient}, {_NAMES[world.case_shares]}{same}"
        )


def _world(
    figure: str, readers: int, cases: int, shares: tuple[float, float, float], **more: object
) -> ReaderWorld:
    base = ReaderWorld(
        paradigm="ROC" if figure == "auroc" else "FROC",
        readers=readers,
        normal=cases // 2,
        diseased=cases // 2,
        case_shares=shares,
    )
    return ReaderWorld(**{**vars(base), **more})


_UNITS: tuple[LeftOut, ...] = ("patient", "case")
_EXPECTED = 1.5 / math.sqrt(1.0 + 0.15**2)
"""The separation at which a model's ROC AUC is the mean of readers whose separations vary around 1.5."""
CELLS: tuple[ReaderCell, ...] = (
    *(
        ReaderCell(
            figure=figure,
            world=_world(figure, readers, cases, shares),
            promised=readers > FEWEST_DF,
        )
        for figure in ("auroc", "wafroc")
        for readers, cases in ((2, 100), (3, 50), (3, 200), (4, 100), (5, 50), (5, 200), (10, 50), (10, 200))
        for shares in (LOW, HIGH)
    ),
    *(
        ReaderCell(figure=figure, world=_world(figure, readers, 100, HIGH), nested=True)
        for figure in ("auroc", "wafroc")
        for readers in (3, 5)
    ),
    ReaderCell(figure="wafroc", world=_world("wafroc", 5, 100, HIGH, treatments=("A", "B", "C"))),
    ReaderCell(figure="auroc", world=_world("auroc", 5, 100, HIGH, treatments=("A", "B", "C"))),
    *(
        ReaderCell(
            figure=figure,
            world=_world(figure, 5, 200, HIGH, cases_per_patient=4, patient_share=0.8),
            leave_out=leave_out,
            promised=leave_out == "patient",
        )
        for figure in ("auroc", "wafroc")
        for leave_out in _UNITS
    ),
    ReaderCell(figure="wafroc", world=_world("wafroc", 5, 100, HIGH, reader_sd=0.0)),
    ReaderCell(
        figure="wafroc",
        world=_world("wafroc", 5, 100, HIGH, reader_sd=0.0),
        random=RandomFactors.CASES,
    ),
    ReaderCell(
        figure="auroc",
        world=_world("auroc", 5, 200, HIGH, reader_sd=0.4),
        random=RandomFactors.CASES,
        promised=False,
    ),
    ReaderCell(
        figure="auroc",
        world=_world("auroc", 10, 50, HIGH, reader_sd=0.05),
        random=RandomFactors.READERS,
        promised=False,
    ),
    *(
        ReaderCell(
            figure="auroc",
            world=_world(
                "auroc", readers, cases, LOW, treatments=("A",), model=True, model_separation=_EXPECTED
            ),
            against_panel=True,
        )
        for readers, cases in ((5, 100), (10, 200))
    ),
    *(
        ReaderCell(
            figure="wafroc",
            world=_world("wafroc", readers, 100, LOW, treatments=("A",), model=True, reader_sd=0.0),
            against_panel=True,
        )
        for readers in (5, 10)
    ),
)


def _own_readers(world: ReaderWorld, rng: np.random.Generator) -> ReaderStudy:
    """Draw twice as many readers, of whom the first half reads with one treatment and the others with the other."""
    study = draw_reader_study(replace(world, readers=2 * world.readers), rng)
    names = study.readers[0]
    rows = (names[: world.readers], names[world.readers :])
    halves = dict(zip(study.treatments, rows, strict=True))
    marks = {pair: study.marks[pair] for pair in study.pairs() if pair[1] in halves[pair[0]]}
    return replace(study, readers=rows, marks=marks, nested=True)


def rejections(cell: ReaderCell, replicates: int) -> tuple[int, int]:
    """Count in how many simulated studies the test says that there is a difference.

    Args:
        cell: The setting.
        replicates: Number of studies.

    Returns:
        The number of rejections, and of studies whose test is defined.
    """
    rng = generator_for(f"promises/readers/{cell.event}/{cell.setting}", 0)
    figure = find_figure(cell.figure, cell.world.paradigm)
    hits = runs = 0
    for _ in range(replicates):
        study = _own_readers(cell.world, rng) if cell.nested else draw_reader_study(cell.world, rng)
        if cell.against_panel:
            matrix = panel_matrices(study, figure, leave_out=cell.leave_out)[0]
            p = compare_with_panel(matrix, model=str(study.model)).differences[cell.random].p
        else:
            made = figure_matrix(study, figure, leave_out=cell.leave_out)
            p = analyse_readers(made).analyses[cell.random].test.p
        if p is not None:
            runs += 1
            hits += p <= ALPHA
    return hits, runs


def reader_promises(
    *,
    replicates: int = 1000,
    cells: Sequence[ReaderCell] = CELLS,
    processes: int = 1,
    progress: Callable[[ReaderCell], None] | None = None,
) -> list[Promise]:
    """Simulate the levels of the tests of reader studies.

    Args:
        replicates: Number of studies per cell.
        cells: The settings.
        processes: How many processes.
        progress: Called after each cell; None for silence.

    Returns:
        One row per cell.

    Example:
        >>> reader_promises(replicates=10, cells=[cell for cell in CELLS if cell.promised][:1])[0].nominal
        0.05
    """
    count = partial(rejections, replicates=replicates)
    rows = []
    with ProcessPoolExecutor(max(processes, 1), mp_context=get_context("forkserver")) as pool:
        found = map(count, cells) if processes < 2 else pool.map(count, cells)
        for cell, (hits, runs) in zip(cells, found, strict=True):
            rows.append(
                judge_rate(
                    cell.event,
                    cell.setting,
                    kind="level",
                    nominal=ALPHA if cell.promised else None,
                    hits=hits,
                    runs=max(runs, 1),
                )
            )
            if progress:
                progress(cell)
    return rows
