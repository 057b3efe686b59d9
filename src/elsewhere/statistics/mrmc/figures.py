"""The figures of merit of a reader study, and how they vary with the cases.

The analysis knows neither ratings nor marks. It takes one figure of merit per treatment and reader, and the
covariance of their errors over samples of cases. The jackknife gives that covariance for any figure of merit:
each is computed once more without each case in turn, or without each patient where patients have several
cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, name_rows

FloatArray = npt.NDArray[np.float64]


def jackknife_covariance(left_out: npt.ArrayLike) -> FloatArray:
    """Estimate the covariance of statistics from their values without each case in turn.

    (K - 1) / K times the sum of products of deviations from the mean over the K cases.

    Args:
        left_out: One row per statistic, one column per case (or patient) that was left out.

    Returns:
        The covariance matrix, statistics x statistics.

    Raises:
        UserError: There are fewer than two columns, or a value is not finite.

    Example:
        >>> values = np.array([1.0, 2.0, 4.0])
        >>> without = (values.sum() - values) / 2
        >>> bool(np.isclose(jackknife_covariance([without])[0, 0], values.var(ddof=1) / 3))
        True
    """
    values = np.atleast_2d(np.asarray(left_out, dtype=np.float64))
    units = values.shape[1]
    if units < 2:
        raise UserError(
            f"the jackknife has {units} cases to leave out", fix="It needs at least two cases or patients."
        )
    if not np.isfinite(values).all():
        rows = np.flatnonzero(~np.isfinite(values).all(axis=1)).tolist()
        raise UserError(
            f"a figure of merit is undefined without one of the cases (statistics {name_rows(rows)})",
            fix="Each kind of case that it needs must be there at least twice, in two patients.",
        )
    away = values - values.mean(axis=1, keepdims=True)
    covariance: FloatArray = (units - 1) / units * (away @ away.T)
    return covariance


@dataclass(frozen=True, kw_only=True)
class FigureMatrix:
    """One figure of merit per treatment and reader, with the covariance of their errors over the cases.

    Args:
        values: Treatments x readers.
        covariance: (treatments x readers)^2, in the order of `values.ravel()`.
        treatments: The names of the treatments: modalities, or methods.
        readers: The names of the readers of each treatment. In a crossed study they are the same for all.
        nested: Whether each treatment has readers of its own, such as the trainings of a method.

    Raises:
        UserError: A figure of merit is missing, a name occurs twice, or the shapes do not fit together.

    Example:
        >>> values = [[0.8, 0.7], [0.9, 0.8]]
        >>> study = FigureMatrix.crossed(values, np.eye(4) * 0.001, treatments=("A", "B"), readers=("1", "2"))
        >>> study.shape
        (2, 2)
    """

    values: FloatArray
    covariance: FloatArray
    treatments: tuple[str, ...]
    readers: tuple[tuple[str, ...], ...]
    nested: bool = False

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or 0 in self.values.shape:
            raise UserError(
                f"the figures of merit have the shape {self.values.shape}",
                fix="Give one row per treatment and one column per reader.",
            )
        treatments, readers = self.values.shape
        if len(self.treatments) != treatments or any(len(names) != readers for names in self.readers):
            raise UserError(
                f"{treatments} x {readers} figures of merit have other numbers of names",
                fix="Name each treatment and each of its readers.",
            )
        if len(self.readers) != treatments or self.covariance.shape != (self.values.size,) * 2:
            raise UserError(
                f"the covariance has the shape {self.covariance.shape}",
                fix=f"Give a square matrix of {self.values.size} rows.",
            )
        for names, what in ((self.treatments, "treatment"), *((row, "reader") for row in self.readers)):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise UserError(f"the {what} '{twice[0]}' is there twice", fix="Give each one name.")
        if not self.nested and len(set(self.readers)) > 1:
            raise UserError(
                "the treatments have other readers, or the same readers in another order",
                fix="Name the readers in one order, or say that readers are nested within treatments.",
            )
        missing = [
            f"{self.readers[i][j]} with {self.treatments[i]}"
            for i, j in np.argwhere(~np.isfinite(self.values))
        ]
        if missing:
            raise UserError(
                f"{len(missing)} figures of merit are missing: {name_rows(missing)}",
                fix="Every reader needs a figure of merit with every treatment; leave the reader or the treatment out.",
            )
        if not np.isfinite(self.covariance).all():
            raise UserError("the covariance of the figures of merit has values that are not finite")

    @classmethod
    def crossed(
        cls,
        values: npt.ArrayLike,
        covariance: npt.ArrayLike,
        *,
        treatments: Sequence[str],
        readers: Sequence[str],
    ) -> FigureMatrix:
        """Make the figures of a study in which every reader reads with every treatment.

        Args:
            values: Treatments x readers.
            covariance: The covariance of their errors, in the order of the flattened values.
            treatments: The names of the treatments.
            readers: The names of the readers.

        Returns:
            The matrix.

        Raises:
            UserError: A figure of merit is missing, or the shapes do not fit together.
        """
        return cls(
            values=np.array(values, dtype=np.float64, ndmin=2),
            covariance=np.asarray(covariance, dtype=np.float64),
            treatments=tuple(treatments),
            readers=(tuple(readers),) * len(treatments),
        )

    @classmethod
    def from_left_out(
        cls,
        values: npt.ArrayLike,
        left_out: npt.ArrayLike,
        *,
        treatments: Sequence[str],
        readers: Sequence[str] | Sequence[Sequence[str]],
        nested: bool = False,
    ) -> FigureMatrix:
        """Make the figures with the jackknife covariance of their errors.

        Args:
            values: Treatments x readers.
            left_out: Treatments x readers x cases (or patients): the figure of merit without each of them.
            treatments: The names of the treatments.
            readers: The names of the readers; of a nested study, those of each treatment.
            nested: Whether each treatment has readers of its own.

        Returns:
            The matrix.

        Raises:
            UserError: A figure of merit is missing or undefined without a case, or the shapes do not fit.

        Example:
            >>> left_out = np.array([[[0.7, 0.8, 0.9]], [[0.6, 0.8, 0.7]]])
            >>> made = FigureMatrix.from_left_out(
            ...     [[0.8], [0.7]], left_out, treatments=("A", "B"), readers=("1",)
            ... )
            >>> made.covariance.round(4).tolist()
            [[0.0133, 0.0067], [0.0067, 0.0133]]
        """
        matrix = np.array(values, dtype=np.float64, ndmin=2)
        cube = np.asarray(left_out, dtype=np.float64)
        if cube.ndim != 3 or cube.shape[:2] != matrix.shape:
            raise UserError(
                f"figures of merit of shape {matrix.shape} have values without each case of shape {cube.shape}",
                fix="Give treatments x readers, and treatments x readers x cases.",
            )
        rows = [tuple(names) for names in readers] if nested else [tuple(map(str, readers))] * len(matrix)
        empty = np.zeros((matrix.size, matrix.size))
        made = cls(
            values=matrix,
            covariance=empty,
            treatments=tuple(treatments),
            readers=tuple(rows),
            nested=nested,
        )
        return replace(made, covariance=jackknife_covariance(cube.reshape(matrix.size, -1)))

    @property
    def shape(self) -> tuple[int, int]:
        """The number of treatments and of readers per treatment."""
        treatments, readers = self.values.shape
        return treatments, readers

    @property
    def blocks(self) -> FloatArray:
        """The covariance as treatments x readers x treatments x readers."""
        treatments, readers = self.shape
        blocks: FloatArray = self.covariance.reshape(treatments, readers, treatments, readers)
        return blocks
