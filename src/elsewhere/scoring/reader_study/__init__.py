"""Reader studies: several readers mark or rate the same cases with several treatments.

- `study`: the truth and the marks of every reader (`ReaderStudy`);
- `workbook`: reads the workbook of a JAFROC study, in both published forms;
- `figures`: computes the figures of merit with and without each case, for `elsewhere.statistics.mrmc`.
"""

from elsewhere.scoring.reader_study.figures import (
    FIGURES_OF_MERIT,
    FigureOfMerit,
    figure_matrix,
    find_figure,
    panel_matrices,
)
from elsewhere.scoring.reader_study.marks import study_of_tables
from elsewhere.scoring.reader_study.study import ReaderStudy
from elsewhere.scoring.reader_study.tables import StudyTables
from elsewhere.scoring.reader_study.workbook import read_study_workbook

__all__ = [
    "FIGURES_OF_MERIT",
    "FigureOfMerit",
    "ReaderStudy",
    "StudyTables",
    "figure_matrix",
    "find_figure",
    "panel_matrices",
    "read_study_workbook",
    "study_of_tables",
]
