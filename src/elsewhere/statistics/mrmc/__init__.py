"""Multi-reader multi-case analysis: several readers (or trainings) under several treatments, on the same cases.

- `figures`: a matrix of figures of merit with the covariance of its errors (`FigureMatrix`);
- `components`: mean squares, and the averages Var, Cov1, Cov2 and Cov3 of that covariance;
- `analysis`: the analyses of Obuchowski and Rockette (1995) with the degrees of freedom of Hillis (2007),
  with readers, cases or both as the random factor;
- `panel`: one model against a panel of readers.
"""

from elsewhere.statistics.mrmc.analysis import (
    FactorialAnalysis,
    OverallTest,
    RandomFactors,
    ReaderDifference,
    ReaderStudyAnalysis,
    TreatmentDifference,
    TreatmentMean,
    analyse_readers,
    few_readers,
)
from elsewhere.statistics.mrmc.components import ErrorCovariances, MeanSquares
from elsewhere.statistics.mrmc.figures import FigureMatrix, jackknife_covariance
from elsewhere.statistics.mrmc.panel import PanelComparison, compare_with_panel

__all__ = [
    "ErrorCovariances",
    "FactorialAnalysis",
    "FigureMatrix",
    "MeanSquares",
    "OverallTest",
    "PanelComparison",
    "RandomFactors",
    "ReaderDifference",
    "ReaderStudyAnalysis",
    "TreatmentDifference",
    "TreatmentMean",
    "analyse_readers",
    "compare_with_panel",
    "few_readers",
    "jackknife_covariance",
]
