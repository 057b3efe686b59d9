"""From a path to bytes in memory, with the size-bomb guard; from bytes to checked UTF-8."""

from __future__ import annotations

import codecs
import gzip
import zlib
from pathlib import Path

from elsewhere.errors import UserError, near_matches
from elsewhere.files.limits import SizeLimitError, check_size, how_to_raise, human_bytes
from elsewhere.files.refusals import file_system_error
from elsewhere.tables.options import MIB, TableOptions

_MAGIC = (
    (b"PK\x03\x04", "a zip archive (an .xlsx workbook is one)", ".xlsx"),
    (b"PAR1", "a parquet file", ".parquet"),
    (b"\x1f\x8b", "a gzip file", ".csv.gz"),
    (b"\xd0\xcf\x11\xe0", "an old .xls workbook; save it as .xlsx", ".xlsx"),
    (b"\x89PNG", "a PNG picture", ".png"),
    (b"%PDF", "a PDF document", ".pdf"),
)


def neighbours(path: Path) -> str:
    """Say what a path that is not there may have meant.

    Args:
        path: The file.

    Returns:
        What a path that is not there may have meant, or that its folder is not there either.
    """
    if not path.parent.is_dir():
        return (
            f"There is no folder {path.parent} either: a relative path starts where you are ({Path.cwd()})."
        )
    near = near_matches(path.name, [p.name for p in path.parent.iterdir()])
    return f"Did you mean {' or '.join(near)}?" if near else f"Look into {path.parent.resolve()}."


def check_regular_file(path: Path) -> None:
    """Refuse what is no regular file.

    Args:
        path: The file.

    Raises:
        UserError: What was given cannot be used; the message says what, where and what to do.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError("there is no such file", where=str(path), fix=neighbours(path)) from error
    except OSError as error:
        raise file_system_error(error, "the file cannot be reached", where=str(path)[:200]) from error
    except ValueError as error:
        raise UserError(f"this cannot be a path ({error})", where=repr(str(path))[:200]) from error
    if path.is_dir():
        tables = sorted(
            p.name for p in path.iterdir() if p.is_file() and p.suffix in (".csv", ".parquet", ".xlsx")
        )
        raise UserError(
            "this is a folder; a table file is needed",
            where=str(path),
            fix=f"Name the file: {' or '.join(tables[:3])}{' or another' if len(tables) > 3 else ''}."
            if tables
            else "Name a csv, parquet or xlsx file.",
        )
    if not path.is_file():
        raise UserError(
            "this is not a regular file (a device or a pipe)", where=str(path), fix="Save it to a file first."
        )


def read_bytes(path: Path, options: TableOptions) -> bytes:
    """Read a file within the stated limits, unpacked if its name ends in .gz.

    Args:
        path: The file.
        options: How it is read or scored.

    Returns:
        Its bytes.

    Raises:
        UserError: The path is not a regular file, or its content is damaged.
        SizeLimitError: The file, or what it unpacks to, is larger than the limit.
        FileSystemError: The file cannot be read.
    """
    check_regular_file(path)
    try:
        if path.suffix.lower() == ".gz":
            return _gunzip(path, options)
        check_size(
            path.stat().st_size,
            "the file has",
            where=path,
            limit=options.limit,
            fix="Convert it to parquet with the columns that are needed, or split it.",
        )
        return path.read_bytes()
    except OSError as error:
        raise file_system_error(error, "the file cannot be read", where=path) from error


def _gunzip(path: Path, options: TableOptions) -> bytes:
    packed = path.stat().st_size
    total = 0
    parts: list[bytes] = []
    try:
        with gzip.open(path, "rb") as stream:
            while chunk := stream.read(4 * MIB):
                total += len(chunk)
                ratio = total / max(packed, 1)
                if total > options.limit or (total > options.ratio_from_bytes and ratio > options.max_ratio):
                    raise SizeLimitError(
                        f"the gzip file ({human_bytes(packed)}) unpacks to over {human_bytes(total)}",
                        where=str(path),
                        fix=f"The limit is {human_bytes(options.limit)} in all, and {options.max_ratio:g} times "
                        f"the packed size beyond {human_bytes(options.ratio_from_bytes)}. "
                        f"If the table is real, unpack it, or use parquet. {how_to_raise(total)}",
                    )
                parts.append(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"the gzip file is damaged ({error})", where=str(path), fix="Pack or fetch it again."
        ) from error
    return b"".join(parts)


def decode(data: bytes, path: Path, options: TableOptions) -> bytes:
    """Decode text to UTF-8.

    Args:
        data: The bytes.
        path: The file.
        options: How it is read or scored.

    Returns:
        Checked UTF-8 bytes. UTF-8 and UTF-16 with its mark are recognised; anything else is declared.

    Raises:
        UserError: What was given cannot be used; the message says what, where and what to do.
    """
    where = str(path)
    for magic, what, ending in _MAGIC:
        if data.startswith(magic):
            raise UserError(
                f"this is {what}, not a text table",
                where=where,
                fix=f"Give the file its true ending ({ending}) or export it as csv.",
            )
    encoding = options.encoding
    if encoding is None:
        if data.startswith(codecs.BOM_UTF8):
            data, encoding = data[3:], "utf-8"
        elif data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
            encoding = "utf-32"
        elif data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        else:
            encoding = "utf-8"
    try:
        codec = codecs.lookup(encoding).name
        text = data.decode(codec)
    except UnicodeError as error:
        at = getattr(error, "start", 0)
        line = data.count(b"\n", 0, at) + 1
        byte = data[at] if at < len(data) else 0
        named = "latin-1 (cp1252, ...)"
        if encoding == "utf-8" and (zeros := data[:2000].count(b"\0")) > min(len(data), 2000) // 4:
            named = "utf-16-be" if data[:2000:2].count(b"\0") * 2 > zeros else "utf-16-le"
        raise UserError(
            f"the text is not {encoding.upper()}: byte 0x{byte:02x} at position {at}, line {line}",
            where=where,
            fix=f"Save it as UTF-8. If you know its encoding, name it: --encoding {named}.",
        ) from error
    except (LookupError, ValueError) as error:
        raise UserError(
            f"unknown text encoding '{encoding}'",
            where=where,
            fix="For example: utf-8, utf-16, latin-1, cp1252.",
        ) from error
    if codec != "utf-8":
        data = text.lstrip("\ufeff").encode("utf-8", errors="replace")
    elif data.startswith(codecs.BOM_UTF8):
        data = data[3:]
    nul = data.find(b"\0")
    if nul >= 0:
        line = data.count(b"\n", 0, nul) + 1
        named = "utf-16-be" if data[:2000:2].count(b"\0") > data[1:2000:2].count(b"\0") else "utf-16-le"
        raise UserError(
            f"there is a NUL byte in line {line}: this is not a text table, or UTF-16 without its mark",
            where=where,
            fix=f"Export it as UTF-8 csv. For UTF-16 without mark: --encoding {named}.",
        )
    return data
