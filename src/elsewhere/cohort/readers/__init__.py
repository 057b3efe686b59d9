"""Readers: one file per public dataset, from its published layout to the cohort table.

A reader is a function `(source, **options) -> Cohort`, registered by name. The docstring of its module is the
data sheet: licence, citation, what a label means, how many patients, known defects. Other packages add
readers by the entry point group `elsewhere.readers`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError, near_matches
from elsewhere.registry import Registry, function
from elsewhere.tables.bytes_in import neighbours

Reader = Callable[..., Cohort]

readers: Registry[Reader] = Registry(
    "reader",
    group="elsewhere.readers",
    builtin_modules=(
        "elsewhere.cohort.readers.csv_table",
        "elsewhere.cohort.readers.mama_mia",
        "elsewhere.cohort.readers.breast_dcedl",
        "elsewhere.cohort.readers.camelyon16",
        "elsewhere.cohort.readers.camelyon17",
        "elsewhere.cohort.readers.pcam",
        "elsewhere.cohort.readers.slides",
        "elsewhere.cohort.readers.bcs_dbt",
        "elsewhere.cohort.readers.busi",
        "elsewhere.cohort.readers.bus_bra",
        "elsewhere.cohort.readers.breast",
        "elsewhere.cohort.readers.bus_uclm",
    ),
    list_command="elsewhere readers",
    check=function,
)


def read_cohort(reader: str, source: str | Path, **options: Any) -> Cohort:
    r"""Read a cohort from a source with the reader of this name.

    Args:
        reader: The name of the reader; `elsewhere readers` lists them.
        source: The file or folder to read.
        options: Options of the reader, such as `ids` or `column_map`.

    Returns:
        The cohort.

    Raises:
        UserError: There is no such reader or source, or the reader does not have one of the options; the
            message lists those that it has.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "cases.csv"
        >>> written = path.write_text("ID,patient_id\na,p\nb,p\n")
        >>> read_cohort("csv", path, column_map="case_id=ID").counts["cases"]
        2
    """
    function = readers.get(reader)
    parameters = inspect.signature(function).parameters
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        known = list(parameters)[1:]
        for name in options:
            if name not in known:
                near = near_matches(name, known)
                hint = (
                    f"Did you mean {' or '.join(near)}?"
                    if near
                    else f"It takes: {', '.join(known) or 'none'}."
                )
                raise UserError(f"reader '{reader}' has no option '{name}'", fix=hint)
    source = Path(source)
    if not source.exists():
        raise UserError("there is no such file or folder", where=str(source), fix=neighbours(source))
    return function(source, **options)


def takes(reader: str, option: str) -> bool:
    """Check whether a reader has an option.

    Args:
        reader: The name of the reader.
        option: The name of the option.

    Returns:
        Whether it has.

    Example:
        >>> takes("csv", "column_map"), takes("busi", "column_map")
        (True, False)
    """
    return option in inspect.signature(readers.get(reader)).parameters


def data_sheet(reader: str) -> str:
    """Return the data sheet of a reader: the docstring of its module.

    Args:
        reader: The name of the reader.

    Returns:
        Licence, citation, layout, labels, patients and known defects of the dataset.

    Example:
        >>> data_sheet("camelyon17").splitlines()[2]
        'licence: CC0.'
    """
    module = inspect.getmodule(readers.get(reader))
    return inspect.cleandoc((module.__doc__ if module else None) or "")


def one_file(folder: Path, *patterns: str, what: str) -> Path:
    """Find the only file of a folder whose name matches; hidden files are left out.

    Args:
        folder: The folder, not searched below.
        patterns: Glob patterns; a file may match any of them.
        what: What the file is, for the message, such as 'clinical table'.

    Returns:
        The file.

    Raises:
        UserError: No file matches, or several do.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and not path.name.startswith((".", "~$")):
                found[path] = None
    if len(found) == 1:
        return next(iter(found))
    if not found:
        raise UserError(
            f"no {what} here ({' or '.join(patterns)})", where=str(folder), fix="Give the file itself."
        )
    names = ", ".join(path.name for path in found)
    raise UserError(
        f"{len(found)} files could be the {what}: {names}", where=str(folder), fix="Give the one you mean."
    )
