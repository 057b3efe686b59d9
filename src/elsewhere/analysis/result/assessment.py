"""What was found about one model on one cohort: the summary, and the scores it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from elsewhere.analysis.result.pictured import PicturedDetections
from elsewhere.analysis.result.pictured_slides import PicturedSlides
from elsewhere.errors import EXIT_OK
from elsewhere.privacy import Redactor
from elsewhere.scoring.task import Scores
from elsewhere.tables.identifiers import read_folders, read_ids

ID_COLUMNS = ("case_id", "patient_id", "exam_id")


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """What was found about one model on one cohort.

    Attributes:
        summary: The content of summary.json for this machine: its texts may name cases and files.
        scores: The scores that it was made from.
        case_key: The case ids behind the hashes of the worst cases; None where there are none.
        path: The folder that it was read from or written to; None for neither.
        exit_code: The exit code of its verdict.
        redact: Every id that must not be shared.
        folders: Folders of the inputs, which must not be shared either.
        pictured: Lesions and false positives in their slices, or slides with contours; None where they were not asked for.
    """

    summary: dict[str, Any]
    scores: Scores
    case_key: pd.DataFrame | None = None
    path: Path | None = None
    exit_code: int = EXIT_OK
    redact: tuple[str, ...] = field(default=(), repr=False)
    folders: tuple[str, ...] = field(default_factory=read_folders, repr=False)
    pictured: PicturedDetections | PicturedSlides | None = field(default=None, repr=False)

    def redactor(self) -> Redactor:
        """Make a redactor, which takes the ids and the folders of every input out of texts that are shared.

        Returns:
            A redactor that has replaced nothing yet.
        """
        return Redactor(self.redact, folders=self.folders)

    def shared(self) -> dict[str, Any]:
        """Make the content of summary.json as it may be shared: it names no case and no folder.

        Returns:
            A copy of the summary in which marks replace the ids.
        """
        return self.redactor().summary(self.summary)

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """The estimates by the name of their metric."""
        found: dict[str, dict[str, Any]] = self.summary["metrics"]
        return found

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Hashes, protocol, seed and version behind every number."""
        found: Mapping[str, Any] = self.summary["provenance"]
        return found


def ids_of(scores: Scores) -> tuple[str, ...]:
    """List every id that a report must not show.

    Args:
        scores: The scores of one model.

    Returns:
        The ids of its cases, and all that this command has read.
    """
    tables = [scores.cases, *([] if scores.events is None else [scores.events])]
    columns = [table[name] for table in tables for name in ID_COLUMNS if name in table.columns]
    texts = (pa.array(column.dropna().drop_duplicates().astype("str")).to_pylist() for column in columns)
    return tuple(dict.fromkeys(chain.from_iterable((*texts, read_ids()))))


def ids_of_result(result: Assessment) -> tuple[str, ...]:
    """List every id that a report on this result must not show.

    Args:
        result: A result of another command; its key file names the ids that it has taken out.

    Returns:
        Ids of its cases, of its own redaction and of its key file.
    """
    key = [] if result.case_key is None else result.case_key["case_id"].astype("str").tolist()
    return tuple(dict.fromkeys((*ids_of(result.scores), *result.redact, *key)))
