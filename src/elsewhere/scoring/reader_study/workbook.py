"""Reading the workbook of a JAFROC study: the truth, lesion marks and non-lesion marks on three sheets.

Both published forms are read:

| sheet | older form | newer form |
|---|---|---|
| `Truth` (or `TRUTH`) | CaseID, LesionID, Weight | and ReaderID, ModalityID (lists such as `0,1,2`), Paradigm |
| `TP` (or `LL`) | ReaderID, ModalityID, CaseID, LesionID, TP_Rating (or LLRating) | the same |
| `FP` (or `NL`) | ReaderID, ModalityID, CaseID, FP_Rating (or NLRating) | the same |

A case without a lesion has one row with LesionID 0. A case with lesions has one row per lesion, whose weights add
up to 1; weights that are all 0 or empty stand for equal ones. A lesion or a case without a row on the sheets of
marks was not marked. In a ROC study each case has one rating: on `TP` where it has a lesion, on `FP` where it has
none. `Truth` may have a column PatientID: the jackknife then leaves out patients.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from elsewhere.errors import UserError, near_matches
from elsewhere.scoring.reader_study.marks import Chosen, OnInvalid, study_of_tables
from elsewhere.scoring.reader_study.study import Paradigm, ReaderStudy
from elsewhere.scoring.reader_study.tables import StudyTables
from elsewhere.tables import TableOptions, read_table
from elsewhere.tables.options import DEFAULT
from elsewhere.tables.workbook import sheet_titles

_SHEETS = {"truth": ("truth",), "lesion": ("tp", "ll"), "non_lesion": ("fp", "nl")}
_SHEET_OF = {
    "truth": "the truth (Truth)",
    "lesion": "lesion marks (TP or LL)",
    "non_lesion": "non-lesion marks (FP or NL)",
}


def read_study_workbook(
    path: str | Path,
    *,
    paradigm: Paradigm | None = None,
    model: str | None = None,
    chosen: Chosen = ((), ()),
    on_invalid: OnInvalid = "error",
    options: TableOptions = DEFAULT,
) -> ReaderStudy:
    """Read the workbook of a JAFROC study, in either published form.

    Args:
        path: The workbook (.xlsx).
        paradigm: 'ROC' or 'FROC'; None for what the workbook states, else for what its marks look like.
        model: The ReaderID (or ModalityID) of a model, which is compared with the readers; None for none.
        chosen: The treatments and the readers to take; empty for all.
        on_invalid: 'error' to stop at a mark that cannot be used, 'skip' to leave it out and count it.
        options: The limits of size.

    Returns:
        The study.

    Raises:
        UserError: A sheet or column is missing, or the truth or the marks cannot be used; the message names the
            sheet and the rows, counted from 1 without the header.
    """
    path = Path(path)
    if path.suffix.lower() not in (".xlsx", ".xlsm"):
        raise UserError(
            f"a reader study is read from an .xlsx workbook, not from '{path.suffix or path.name}'",
            where=str(path),
            fix="Save it as .xlsx with the sheets Truth, TP and FP.",
        )
    titles = sheet_titles(path, options)
    sheets = {kind: _find_sheet(kind, titles, path) for kind in _SHEETS}
    tables = {
        kind: read_table(path, sheet=title, options=options, allow_empty=kind != "truth")
        for kind, title in sheets.items()
    }
    made = StudyTables(
        truth=tables["truth"],
        lesion_marks=tables["lesion"],
        non_lesion_marks=tables["non_lesion"],
        source=str(path),
        sheets=(sheets["truth"], sheets["lesion"], sheets["non_lesion"]),
    )
    return study_of_tables(made, paradigm=paradigm, model=model, chosen=chosen, on_invalid=on_invalid)


def _find_sheet(kind: str, titles: Sequence[str], path: Path) -> str:
    names = _SHEETS[kind]
    found = [title for title in titles if title.strip().casefold() in names]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(
            f"there are several sheets for {_SHEET_OF[kind]}: {', '.join(found)}",
            where=str(path),
            fix="Keep one of them.",
        )
    known = {name for forms in _SHEETS.values() for name in forms}
    others = [title for title in titles if title.strip().casefold() not in known]
    near = [title for title in others if set(re.split(r"[^a-z]+", title.casefold())) & set(names)]
    near = near or [title for name in names for title in near_matches(name, others)]
    hint = f"Did you mean {' or '.join(repr(n) for n in dict.fromkeys(near))}? Rename it. " if near else ""
    raise UserError(
        f"there is no sheet for {_SHEET_OF[kind]}",
        where=str(path),
        fix=f"{hint}The sheets are: {', '.join(titles)}.",
    )
