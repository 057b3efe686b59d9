"""Mean squares of a reader study, and the averages of the covariance of its errors.

Obuchowski and Rockette (1995) describe the errors of the figures of merit by four numbers: Var (one reader,
one treatment), Cov1 (one reader, two treatments), Cov2 (two readers, one treatment) and Cov3 (two readers, two
treatments). Each is the average of the entries of the covariance matrix that it describes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from elsewhere.statistics.mrmc.figures import FigureMatrix, FloatArray


@dataclass(frozen=True, kw_only=True)
class MeanSquares:
    """The analysis of variance of the figures of merit.

    Args:
        treatment: MS(T); None with one treatment.
        reader: MS(R); None with one reader, and where readers are nested within treatments.
        interaction: MS(TR); None with one treatment or one reader. Where readers are nested within treatments
            it is MS(R within T), the mean square of the readers of a treatment.
        df_treatment: Degrees of freedom of MS(T).
        df_reader: Degrees of freedom of MS(R).
        df_interaction: Degrees of freedom of MS(TR), or of MS(R within T).
    """

    treatment: float | None
    reader: float | None
    interaction: float | None
    df_treatment: int
    df_reader: int
    df_interaction: int


@dataclass(frozen=True, kw_only=True)
class ErrorCovariances:
    """Averages of the covariance of the errors.

    Args:
        var: Of one reader with one treatment.
        cov1: Of one reader with two treatments; None where there is none.
        cov2: Of two readers with one treatment; None likewise.
        cov3: Of two readers with two treatments; None likewise.
    """

    var: float
    cov1: float | None
    cov2: float | None
    cov3: float | None

    @property
    def shared_by_readers(self) -> float:
        """Cov2 - Cov3, or 0 where it is negative: what the cases add to every reader's difference."""
        return max((self.cov2 or 0.0) - (self.cov3 or 0.0), 0.0)

    def to_dict(self) -> dict[str, float | None]:
        """Return the numbers by name, with the three correlations Cov / Var.

        Returns:
            `var`, `cov1`, `cov2`, `cov3`, and `correlation1` to `correlation3`; None where there is none.
        """
        made: dict[str, float | None] = asdict(self)
        for number in (1, 2, 3):
            covariance = made[f"cov{number}"]
            made[f"correlation{number}"] = (
                None if covariance is None or not self.var > 0 else covariance / self.var
            )
        return made


def mean_squares(study: FigureMatrix) -> MeanSquares:
    """Compute the mean squares of the treatments, the readers and their interaction.

    Args:
        study: The figures of merit.

    Returns:
        The mean squares. Where readers are nested within treatments there is none of the readers alone.

    Example:
        >>> values = np.array([[0.8, 0.7], [0.9, 0.8]])
        >>> study = FigureMatrix.crossed(values, np.eye(4), treatments=("A", "B"), readers=("1", "2"))
        >>> made = mean_squares(study)
        >>> round(made.treatment, 3), round(made.reader, 3), abs(round(made.interaction, 3))
        (0.01, 0.01, 0.0)
    """
    values = study.values
    treatments, readers = study.shape
    of_treatment, of_reader, mean = values.mean(axis=1), values.mean(axis=0), values.mean()
    df_treatment, df_reader = treatments - 1, readers - 1
    ms_treatment = None
    if df_treatment:
        ms_treatment = float(readers * np.sum((of_treatment - mean) ** 2) / df_treatment)
    if study.nested:
        df_within = treatments * df_reader
        spread = float(np.sum((values - of_treatment[:, None]) ** 2))
        within = spread / df_within if df_within else None
        return MeanSquares(
            treatment=ms_treatment,
            reader=None,
            interaction=within,
            df_treatment=df_treatment,
            df_reader=0,
            df_interaction=df_within,
        )
    df_interaction = df_treatment * df_reader
    left = values - of_treatment[:, None] - of_reader[None, :] + mean
    return MeanSquares(
        treatment=ms_treatment,
        reader=float(treatments * np.sum((of_reader - mean) ** 2) / df_reader) if df_reader else None,
        interaction=float(np.sum(left**2) / df_interaction) if df_interaction else None,
        df_treatment=df_treatment,
        df_reader=df_reader,
        df_interaction=df_interaction,
    )


def error_covariances(study: FigureMatrix) -> ErrorCovariances:
    """Average the covariance of the errors over all treatments and readers.

    Args:
        study: The figures of merit with their covariance.

    Returns:
        Var, Cov1, Cov2 and Cov3. Readers who are nested within treatments have no Cov1.

    Example:
        >>> covariance = 0.001 * (np.eye(4) + np.ones((4, 4)))
        >>> study = FigureMatrix.crossed(
        ...     [[0.8, 0.7], [0.9, 0.8]], covariance, treatments=("A", "B"), readers=("1", "2")
        ... )
        >>> made = error_covariances(study)
        >>> made.var, made.cov1, made.cov2, made.cov3
        (0.002, 0.001, 0.001, 0.001)
    """
    treatments, readers = study.shape
    treatment, reader = (at.ravel() for at in np.indices((treatments, readers)))
    same_treatment = treatment[:, None] == treatment[None, :]
    same_reader = reader[:, None] == reader[None, :]
    diagonal = same_treatment & same_reader
    cov1 = same_reader & ~same_treatment
    cov3 = ~same_reader & ~same_treatment
    if study.nested:
        cov1, cov3 = np.zeros_like(cov1), ~same_treatment
    return ErrorCovariances(
        var=float(study.covariance[diagonal].mean()),
        cov1=_mean(study.covariance, cov1),
        cov2=_mean(study.covariance, same_treatment & ~same_reader),
        cov3=_mean(study.covariance, cov3),
    )


def treatment_covariances(study: FigureMatrix) -> list[ErrorCovariances]:
    """Average the covariance of the errors within each treatment.

    Args:
        study: The figures of merit with their covariance.

    Returns:
        Var and Cov2 of each treatment; Cov1 and Cov3 are None.
    """
    blocks = study.blocks
    off_diagonal = ~np.eye(study.shape[1], dtype=bool)
    return [
        ErrorCovariances(
            var=float(np.diag(blocks[i, :, i, :]).mean()),
            cov1=None,
            cov2=_mean(blocks[i, :, i, :], off_diagonal),
            cov3=None,
        )
        for i in range(study.shape[0])
    ]


def _mean(covariance: FloatArray, where: np.ndarray) -> float | None:
    return float(covariance[where].mean()) if where.any() else None
