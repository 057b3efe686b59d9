"""`phantom patch-scores`: a synthetic table of patch scores with a known truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.errors import UserError, check_seed
from elsewhere.tables import check_out_file, write_table


@dataclass(frozen=True, kw_only=True)
class PatchScoresPhantom:
    """A synthetic table of patch scores that was written.

    Args:
        path: The file.
        rows: How many rows it has.
        truth: The true means of a model of average quality.
    """

    path: Path
    rows: int
    truth: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `path`, `rows` and `truth`.
        """
        return {"path": str(self.path), "rows": self.rows, "truth": self.truth}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        true = self.truth
        yield f"{self.rows:,} rows of slide, model and fold"
        yield (
            f"true Dice: internal {true['dice_internal']:.3f}, external {true['dice_external']:.3f}; true false-positive rate: "
            f"internal {true['fpr_internal']:.4f}, external {true['fpr_external']:.4f}"
        )
        yield f"written: {self.path}"
        yield f"next: elsewhere generalise {self.path} --margin dice=0.05 --margin fpr=0.005"


def patch_scores(
    out: str | Path,
    *,
    replace: bool = False,
    seed: int = 1,
    thresholds: Sequence[str | float] = (),
    **world: Any,
) -> PatchScoresPhantom:
    """Make a synthetic table of patch scores.

    Args:
        out: The file to write: .csv or .parquet.
        replace: Whether a file that exists may be replaced.
        seed: The seed of every draw.
        thresholds: Pixel thresholds between 0 and 1, each with rows of its own; empty for none.
        **world: Fields of `PatchWorld`, such as `internal`, `models` and `drop`.

    Returns:
        The file, and the truth.

    Raises:
        UserError: A value is not allowed, or the file may not be replaced.

    Example:
        Make a table of three models::

            patch_scores("scores.csv", models=3, drop=0.5)
    """
    import numpy as np

    from elsewhere.phantom.patch_scores import PatchWorld, draw_patch_scores

    check_seed(seed)
    check_out_file(out, replace=replace)
    try:
        points = tuple(float(one) for one in thresholds)
    except ValueError as problem:
        raise UserError(
            f"a threshold is no number ({problem})", where="--thresholds", fix="Such as 0.3,0.5."
        ) from None
    if not all(0 < one < 1 for one in points):
        raise UserError(
            "a threshold is not between 0 and 1", where="--thresholds", fix="Such as 0.3,0.5,0.7."
        )
    spec = PatchWorld(thresholds=points, **world)
    table = draw_patch_scores(spec, np.random.default_rng(seed))
    write_table(table.round(6), Path(out))
    truth = {
        "dice_internal": spec.true_dice(external=False),
        "dice_external": spec.true_dice(external=True),
        "fpr_internal": spec.true_fpr(external=False),
        "fpr_external": spec.true_fpr(external=True),
    }
    return PatchScoresPhantom(path=Path(out), rows=len(table), truth=truth)
