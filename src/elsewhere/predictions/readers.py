"""Read the files of an answer kind, for a task that names it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from elsewhere.errors import UserError
from elsewhere.predictions.answers.base import answer_kinds
from elsewhere.predictions.table import Predictions, ReadOptions

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort


def read_answers(
    kind: str, path: str | Path, options: ReadOptions | None = None, cohort: Cohort | None = None
) -> Predictions:
    r"""Read a file or folder of answers of one kind.

    Args:
        kind: The answer kind, such as probability, boxes, masks or slides.
        path: The file or folder.
        options: How it is to be read; None: the defaults of ReadOptions.
        cohort: The cases that ids are compared with, where a format needs them.

    Returns:
        The prediction table.

    Raises:
        UserError: No package provides this kind, or the file is not what the kind expects.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "scores.csv"
        >>> written = path.write_text("case_id,probability\na,0.2\nb,0.9\n")
        >>> read_answers("probability", path).table["probability"].tolist()
        [0.2, 0.9]
    """
    reader = answer_kinds.get(kind)
    options = options or ReadOptions()
    if options.failed_status and not reader.reads_status:
        raise UserError(
            f"--failed-status is about the status column of a table of scores, which {kind} do not have",
            fix="Leave it out.",
        )
    return reader.read(Path(path), options, cohort)
