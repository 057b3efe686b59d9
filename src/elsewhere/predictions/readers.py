"""Which function reads the files of an answer kind. A task names its kind; packages add kinds by entry point.

[project.entry-points."elsewhere.answer_readers"]
signal = "my_package.signals:READER"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elsewhere.errors import UserError
from elsewhere.predictions.table import Predictions, ReadOptions
from elsewhere.registry import Registry, object_of

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

Read = Callable[[Path, ReadOptions, "Cohort | None"], Predictions]


@dataclass(frozen=True, kw_only=True)
class AnswerReader:
    """How the files of one answer kind are read.

    Args:
        read: Reads predictions, from a path, the options of reading and the cohort (or None).
        reads_status: Whether its tables have a status column, which `--failed-status` is about.
        row: What a row of the table is called in messages.

    Example:
        >>> answer_readers.get("masks").row
        'mask'
    """

    read: Read
    reads_status: bool = False
    row: str = "prediction"


answer_readers: Registry[AnswerReader] = Registry(
    "answer kind", group="elsewhere.answer_readers", check=object_of(AnswerReader)
)


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
    reader = answer_readers.get(kind)
    options = options or ReadOptions()
    if options.failed_status and not reader.reads_status:
        raise UserError(
            f"--failed-status is about the status column of a table of scores, which {kind} do not have",
            fix="Leave it out.",
        )
    return reader.read(Path(path), options, cohort)


def _read_probability(path: Path, options: ReadOptions, cohort: Cohort | None) -> Predictions:
    from elsewhere.predictions.probability import read_probabilities

    return read_probabilities(path, options, cohort)


def _read_boxes(path: Path, options: ReadOptions, cohort: Cohort | None) -> Predictions:
    from elsewhere.predictions.boxes import read_boxes

    return read_boxes(path, options, cohort)


def _read_masks(path: Path, options: ReadOptions, cohort: Cohort | None) -> Predictions:
    from elsewhere.predictions.masks import read_masks

    return read_masks(path, options, cohort)


def _read_slides(path: Path, options: ReadOptions, cohort: Cohort | None) -> Predictions:
    from elsewhere.predictions.slides import read_slides

    return read_slides(path, options, cohort)


answer_readers.add("probability", AnswerReader(read=_read_probability, reads_status=True))
answer_readers.add("boxes", AnswerReader(read=_read_boxes, row="volume"))
answer_readers.add("masks", AnswerReader(read=_read_masks, row="mask"))
answer_readers.add("slides", AnswerReader(read=_read_slides))
