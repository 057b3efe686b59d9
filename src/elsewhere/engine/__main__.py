"""`python -m elsewhere.engine WORKDIR --store DIR`: train a work folder on a bare GPU machine.

The machine needs torch, numpy and Pillow. Copy this package's folder and the work folder to that machine;
bring the zip of finished units back (`Store.add`).
"""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from elsewhere.engine.run import EngineReport, run_units
from elsewhere.engine.store import Store
from elsewhere.engine.threads import let_threads_sleep
from elsewhere.engine.training import Outcome, Training
from elsewhere.engine.work import load_work
from elsewhere.errors import UserError, unknown_name

EXIT_UNITS_FAILED = 1


class _TermError(BaseException):
    """SIGTERM arrived: the run ends as if its time were up."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `python -m elsewhere.engine`.

    Args:
        arguments: The command-line arguments without the program's name; None: those of this process.

    Returns:
        The exit code: 0 where every training succeeded, 1 where one failed or the run was interrupted, and
        the code of the error where the input was wrong.
    """
    let_threads_sleep()
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m elsewhere.engine",
        description="Train the units of a work folder that the store lacks. Started again, it resumes.",
    )
    parser.add_argument("workdir", help="folder that `save_work` wrote")
    parser.add_argument(
        "--store", required=True, help="folder of finished units; it is created if it does not exist"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, or several with commas")
    parser.add_argument("--lanes", type=int, default=0, help="trainings side by side; 0: the trainer chooses")
    parser.add_argument(
        "--threads", type=int, default=0, help="threads of a process that trains on a CPU; 0: one per core"
    )
    parser.add_argument(
        "--only", default="", metavar="PREFIX", help="only units whose name or key starts with PREFIX"
    )
    parser.add_argument(
        "--only-recipe", default="", metavar="NAMES", help="only units of these recipes, comma-separated"
    )
    parser.add_argument("--zip", metavar="FILE", help="write the work's finished units there at the end")
    parser.add_argument(
        "--limit-seconds", type=float, metavar="S", help="begin no unit that would probably end later"
    )
    parser.add_argument("--trainer", help="package.module:function instead of Elsewhere's own")
    return parser


def _run(options: argparse.Namespace) -> int:
    begin = time.time()
    deadline = None if options.limit_seconds is None else begin + options.limit_seconds
    units, work = load_work(options.workdir)
    recipes = _recipes(options.only_recipe, units)
    wanted = [unit for unit in units if _starts(unit, options.only) and unit.recipe.name in recipes]
    if not wanted:
        raise UserError(f"no unit's name or key starts with '{options.only}'", where=options.workdir)
    store = Store(options.store)
    seen = ", ".join(
        f"{sum(name in source for name in work.cases.case)} {source.noun}" for source in work.sources.values()
    )
    print(f"{len(wanted)} units, {seen or 'no pixels'}, device {options.device}", flush=True)
    clock = _Clock(len(wanted))
    report: EngineReport | None = None
    with _term_is_an_exception():
        try:
            report = run_units(
                wanted,
                work,
                store,
                device=options.device,
                lanes=options.lanes,
                threads=options.threads,
                trainer=options.trainer,
                deadline=deadline,
                progress=clock.heard,
                each=clock.line,
            )
        except (_TermError, KeyboardInterrupt):
            print("interrupted; finished units are saved", flush=True)
    _summary(report, clock, time.time() - begin)
    if options.zip:
        keys = [unit.key for unit in units if unit.key in store]
        store.export(keys, options.zip)
        print(f"zip: {options.zip} ({len(keys)} units)")
    return EXIT_UNITS_FAILED if report is None or report.failed else 0


def _recipes(names: str, units: Sequence[Training]) -> set[str]:
    """The recipes that are asked for; all of them where none is named."""
    known = {unit.recipe.name for unit in units}
    asked = [name.strip() for name in names.split(",") if name.strip()]
    for name in asked:
        if name not in known:
            raise unknown_name("recipe", name, sorted(known))
    return set(asked) or known


def _starts(unit: Training, prefix: str) -> bool:
    return unit.name.startswith(prefix) or unit.key.startswith(prefix)


class _Clock:
    """Prints one line per training, and counts where the time went.

    Args:
        total: How many trainings the run has.
    """

    def __init__(self, total: int) -> None:
        self.total, self.ended = total, 0
        self.begin = time.monotonic()
        self.first = math.inf
        """When the first training began. Until then, pictures are decoded and weights are read."""
        self.training = self.whole = 0.0

    def heard(self, what: str, done: int, total: int) -> None:
        if what == "units":
            self.ended = done

    def line(self, unit: Training, result: Outcome | str) -> None:
        head = f"[{self.ended}/{self.total}] {unit.name or unit.key}"
        if isinstance(result, str):
            print(f"{head}: FAILED: {result}", flush=True)
            return
        self.first = min(self.first, time.monotonic() - result.seconds)
        self.whole += result.seconds
        self.training += sum(epoch.get("seconds", 0.0) for epoch in result.history)
        epochs = f"{len(result.history)} epochs, best {result.best_epoch}"
        print(f"{head}: {result.seconds:.1f} s, {epochs}, {len(result.case)} predicted", flush=True)

    def stages(self) -> str:
        if math.isinf(self.first):
            return ""
        parts = (
            ("decode", self.first - self.begin),
            ("train", self.training),
            ("predict", self.whole - self.training),
        )
        shown = ", ".join(f"{name} {max(0.0, spent):.1f} s" for name, spent in parts)
        return f": {shown} (summed over lanes)"


def _summary(report: EngineReport | None, clock: _Clock, seconds: float) -> None:
    if report is not None:
        print(
            f"{len(report.done)} trained, {len(report.reused)} already in the store, {len(report.failed)} failed,"
            f" {len(report.left)} left for another run"
        )
        for key, why in report.damaged.items():
            print(f"damaged, set aside and trained again: {key}: {why}")
    print(f"{seconds:.1f} s{clock.stages()}", flush=True)


@contextlib.contextmanager
def _term_is_an_exception() -> Iterator[None]:
    def raise_it(number: int, frame: FrameType | None) -> None:
        raise _TermError

    before = signal.signal(signal.SIGTERM, raise_it)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
