"""Files that somebody else wrote: only plain ones of bounded size are read, and control characters escaped.

A result folder, a claim, a study file or a model may come from somebody unknown by mail. Opening one must not
hang (a pipe), fill the memory (a device, a gigabyte of brackets), end in a traceback (depth, numbers of a
thousand digits), write a file outside of the folder that was asked for, or send commands to the terminal.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
import tomllib
import unicodedata
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any

from elsewhere.errors import UserError

MIB = 1 << 20
MAX_JSON_BYTES = 256 * MIB
MAX_JSON_VALUES = 5_000_000
MAX_TOML_BYTES = MIB
MAX_DEPTH = 40
MAX_WHOLE = 2**64
"""Whole numbers must be below this, as a seed, a size in bytes or a fingerprint is."""
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_MANY_PARTS = re.compile(rf"""(?<![A-Za-z0-9_"'-])(?:{_PART}\.[ \t]*+){{{MAX_DEPTH},}}+""")
_END_OF_KEY = re.compile(rf"{_PART}[=\]]")
_UNSAFE_IN_NAMES = re.compile(r"[^\w.+=,@ -]")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


def as_float(value: object) -> float | None:
    """Read a finite number: summaries hold null, and careless ones NaN, for what is undefined.

    Args:
        value: Any value of a summary or a table.

    Returns:
        The number as a float; None for text, truth values, NaN and infinities.

    Example:
        >>> as_float(3), as_float(float("nan")), as_float("3")
        (3.0, None, None)
    """
    if value is None or isinstance(value, bool | str) or not isinstance(value, Real):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def check_plain_file(path: Path, *, what: str = "file", fix: str | None = None) -> os.stat_result:
    """Refuse a folder, a pipe, a device, a socket and a name with nothing behind it, without opening it.

    Args:
        path: The file. A link is followed.
        what: What the file is, for messages.
        fix: What a user can do about it; None for a general hint, or for none where the file does not exist.

    Returns:
        The status of the file, as `Path.stat` gives it.

    Raises:
        UserError: There is no such file, it is not a plain file, or the path cannot be the name of a file.
        OSError: The operating system refuses to look at it, for example for lack of permission.
    """
    try:
        found = path.stat()
    except ValueError as error:
        raise UserError(f"this cannot be the name of a {what} ({error})", where=printable(path)) from error
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        raise UserError(f"there is no such {what}", where=str(path), fix=fix) from error
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for test, name in _KINDS if test(found.st_mode)), "not a plain file")
        raise UserError(
            f"the {what} must be a plain file, and this is {kind}",
            where=str(path),
            fix=fix or "Save it to a file first.",
        )
    return found


def read_plain_file(path: str | Path, *, most: int, what: str = "file", fix: str | None = None) -> bytes:
    """Read the bytes of a plain file that holds at most `most` of them.

    Args:
        path: The file. A link is followed; what it leads to must be a plain file.
        most: The largest size in bytes; a larger file is refused before it is read.
        what: What the file is, for messages.
        fix: What a user can do where the file does not exist.

    Returns:
        The content.

    Raises:
        UserError: The file does not exist, is not a plain file, or is too large.
        OSError: The operating system refuses to read it.
    """
    path = Path(path)
    check_plain_file(path, what=what, fix=fix)
    # Between the check and the opening somebody may put a pipe there: opening must not wait for a writer.
    flags = os.O_RDONLY
    for name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY"):  # each where the system has it
        flags |= getattr(os, name, 0)
    handle = os.open(path, flags)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"the {what} must be a plain file", where=str(path))
        content = file.read(most + 1) if found.st_size <= most else b""
    if found.st_size > most or len(content) > most:
        raise UserError(
            f"the {what} has {max(found.st_size, len(content)):,} bytes; at most {most:,} are read",
            where=str(path),
            fix="Check that this is the file you mean.",
        )
    return content


def read_text(path: str | Path, *, most: int, what: str = "file", fix: str | None = None) -> str:
    """Read the text of a plain file in UTF-8 of at most `most` bytes.

    Args:
        path: The file. A link is followed.
        most: The largest size in bytes.
        what: What the file is, for messages.
        fix: What a user can do where the file does not exist.

    Returns:
        The text.

    Raises:
        UserError: The file cannot be read by the rules of `read_plain_file`, or it is not UTF-8.
    """
    content = read_plain_file(path, most=most, what=what, fix=fix)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"the {what} is not text in UTF-8 ({error})", where=str(path)) from error


def read_json(
    path: str | Path,
    *,
    what: str = "file",
    most: int = MAX_JSON_BYTES,
    fix: str | None = None,
    any_name: bool = False,
) -> dict[str, Any]:
    """Read the JSON object in a plain file, by the rules of `parse_json`.

    Args:
        path: The file. A link is followed.
        what: What the file is, for messages.
        most: The largest size in bytes.
        fix: What a user can do where the file cannot be used.
        any_name: Whether texts may hold half characters; see `parse_json`.

    Returns:
        The object.

    Raises:
        UserError: The file cannot be read, is not JSON within the bounds of `parse_json`, or holds no object.
    """
    text = read_text(path, most=most, what=what, fix=fix)
    return json_object(text, where=str(path), what=what, fix=fix, any_name=any_name)


def json_object(
    text: str, *, where: str, what: str = "file", fix: str | None = None, any_name: bool = False
) -> dict[str, Any]:
    """Parse a text that holds a JSON object; any other JSON value is refused.

    Args:
        text: The JSON text.
        where: The file or place that messages name.
        what: What the text is, for messages.
        fix: What a user can do where the text cannot be used.
        any_name: Whether texts may hold half characters; see `parse_json`.

    Returns:
        The object.

    Raises:
        UserError: The text is not JSON within the bounds of `parse_json`, or it holds no object.

    Example:
        >>> json_object('{"seed": 42}', where="job.json")
        {'seed': 42}
    """
    found = parse_json(text, where=where, what=what, fix=fix, any_name=any_name)
    if not isinstance(found, dict):
        raise UserError(f"the {what} does not hold a JSON object", where=where, fix=fix)
    return found


def parse_json(
    text: str,
    *,
    where: str,
    what: str = "file",
    fix: str | None = None,
    most_depth: int = MAX_DEPTH,
    any_name: bool = False,
) -> Any:
    """Parse JSON of bounded depth, length and numbers, with each key once and only valid text.

    Args:
        text: The JSON text.
        where: The file or place that messages name.
        what: What the text is, for messages.
        fix: What a user can do where the text cannot be used.
        most_depth: The largest number of levels of nesting.
        any_name: Whether texts may hold half characters (lone surrogates): Python represents the names of
            files that are not UTF-8 in this way.

    Returns:
        The value, in Python's types.

    Raises:
        UserError: The text is not JSON, or it is outside of these bounds.

    Example:
        >>> parse_json("[1, 2.5, null]", where="job.json")
        [1, 2.5, None]
    """
    if text.count(",") + text.count("[") + text.count("{") > MAX_JSON_VALUES:
        raise UserError(f"the {what} holds more than {MAX_JSON_VALUES:,} values", where=where, fix=fix)

    def each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            seen: set[str] = set()
            name = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise ValueError(f"the key '{name[:80]}' appears twice")
        return made

    def whole(digits: str) -> int:
        if len(digits) > 21 or abs(int(digits)) >= MAX_WHOLE:
            raise ValueError(f"the number {digits[:12]}... has {len(digits)} digits")
        return int(digits)

    def decimal(digits: str) -> float:
        number = float(digits)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"the number {digits[:20]} is too large")
        return number

    def no_number(word: str) -> Any:
        raise ValueError(f"{word} is not a number in JSON")

    try:
        found = json.loads(
            text,
            object_pairs_hook=each_key_once,
            parse_int=whole,
            parse_float=decimal,
            parse_constant=no_number,
        )
    except RecursionError as error:
        raise UserError(f"the {what} is nested too deeply", where=where, fix=fix) from error
    except ValueError as error:
        raise UserError(f"the {what} cannot be understood ({error})", where=where, fix=fix) from error
    check_values(found, where=where, what=what, fix=fix, most_depth=most_depth, any_name=any_name)
    return found


def read_toml(path: str | Path, *, what: str = "file", fix: str | None = None) -> dict[str, Any]:
    """Read the TOML in a plain file, by the rules of `parse_toml`.

    Args:
        path: The file of at most 1 MiB. A link is followed.
        what: What the file is, for messages.
        fix: What a user can do where the file does not exist.

    Returns:
        The tables and values of the file.

    Raises:
        UserError: The file cannot be read, or is not TOML within the bounds of `parse_toml`.
    """
    return parse_toml(read_text(path, most=MAX_TOML_BYTES, what=what, fix=fix), where=str(path), what=what)


def parse_toml(text: str, *, where: str, what: str = "file") -> dict[str, Any]:
    """Parse TOML of bounded depth and numbers, every number finite.

    Args:
        text: The TOML text.
        where: The file or place that messages name.
        what: What the text is, for messages.

    Returns:
        The tables and values.

    Raises:
        UserError: The text is not TOML, or it is outside of these bounds.

    Example:
        >>> parse_toml("seed = 42", where="study.toml")
        {'seed': 42}
    """
    if len(text) > MAX_TOML_BYTES:
        raise UserError(f"the {what} has over {MAX_TOML_BYTES:,} characters", where=where)
    # The standard library's reader takes time that grows with the square of a key's parts.
    if any(_END_OF_KEY.match(text, run.end()) for run in _MANY_PARTS.finditer(text)):
        raise UserError(f"the {what} has a key of over {MAX_DEPTH} parts", where=where)
    try:
        found = tomllib.loads(text)
    except RecursionError as error:
        raise UserError(f"the {what} is nested too deeply", where=where) from error
    except ValueError as error:
        raise UserError(f"the {what} is not valid TOML: {error}", where=where) from error
    check_values(found, where=where, what=what)
    return found


def check_values(
    tree: Any,
    *,
    where: str,
    what: str = "file",
    fix: str | None = None,
    most_depth: int = MAX_DEPTH,
    any_name: bool = False,
) -> None:
    """Refuse values that no later step should have to expect, and name the key that holds them.

    These are nesting beyond `most_depth`, numbers that are infinite, NaN or of too many digits, and texts or
    keys with half characters.

    Args:
        tree: Nested mappings and lists, as a parser returned them.
        where: The file or place that messages name.
        what: What the tree was read from, for messages.
        fix: What a user can do where a value is refused.
        most_depth: The largest number of levels of nesting.
        any_name: Whether texts and keys may hold half characters; see `parse_json`.

    Raises:
        UserError: A value is refused; the message names its key.

    Example:
        >>> check_values({"margin": [0.1, 0.2]}, where="study.toml")
    """
    for keys, value in _leaves(tree, most_depth):
        wrong = ""
        if len(keys) > most_depth:
            raise UserError(f"the {what} is nested more than {most_depth} levels deep", where=where, fix=fix)
        if isinstance(value, float) and not abs(value) < float("inf"):
            wrong = f"is {value}, which is not a finite number"
        elif isinstance(value, int) and abs(value) >= MAX_WHOLE:
            wrong = "is a whole number of too many digits"
        elif not any_name and isinstance(value, str) and not _is_text(value):
            wrong = "holds half a character, which is not text"
        elif not any_name and any(isinstance(key, str) and not _is_text(key) for key in keys[-1:]):
            wrong = "is not text"
        if wrong:
            name = ".".join(map(str, keys))
            raise UserError(f"{printable(name)[:200]} {wrong}", where=where, fix=fix)


def _leaves(tree: Any, most_depth: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every value with the keys that lead to it, containers included, without recursion."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), tree)]
    while waiting:
        keys, value = waiting.pop()
        yield keys, value
        if len(keys) > most_depth:
            continue
        if isinstance(value, dict):
            waiting.extend(((*keys, key), part) for key, part in value.items())
        elif isinstance(value, list | tuple):
            waiting.extend(((*keys, at), part) for at, part in enumerate(value))


def _is_text(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def printable(text: object, *, lines: bool = False) -> str:
    r"""Return a text as a terminal may show it.

    Control characters, direction marks and half characters become escapes. A name in a file can hold the
    escape sequences by which a program clears the screen or renames the window; a right-to-left mark lets
    'gpj.exe' look like 'exe.jpg'.

    Args:
        text: Any object; its `str` is used.
        lines: Whether line feeds stay as they are. Tabs always do.

    Returns:
        The text, safe to print.

    Example:
        >>> printable("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    shown = str(text)
    if shown.isascii() and shown.isprintable():
        return shown
    keep = "\t\n" if lines else "\t"
    return "".join(c if c in keep or _shows(c) else _escaped(c) for c in shown)


def printable_json(text: str) -> str:
    r"""Escape JSON text so that a terminal may show it: the same characters, as JSON's own escapes.

    Args:
        text: JSON text.

    Returns:
        JSON text of the same value.

    Example:
        >>> printable_json('"\u202e"') == '"' + chr(92) + 'u202e"'
        True
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c == "\n" or _shows(c) else _escaped_json(c) for c in text)


def _escaped_json(character: str) -> str:
    return (
        json.dumps(character)[1:-1]
        if ord(character) > 126 and character != "\x7f"
        else f"\\u{ord(character):04x}"
    )


def _shows(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def is_plain_name(name: str, *, most: int = 100) -> bool:
    """Say whether a name that a user gives can be the name of a folder, such as 'BUS-BRA'.

    It may hold letters, digits, `-` and `_`, and dots inside. A name of dots alone is the folder itself or
    the one above it, and a name that begins with a dot is hidden.

    Args:
        name: The name.
        most: The largest number of characters.

    Returns:
        True where the name can be used.

    Example:
        >>> is_plain_name("BUS-BRA"), is_plain_name("../x")
        (True, False)
    """
    inside = all(c.isalnum() or c in "-_." for c in name)
    return 0 < len(name) <= most and inside and not name.startswith(".") and not name.endswith(".")


def file_name(name: object, *, most: int = 120) -> str:
    """Make a name for a file in the folder that was asked for, whatever the given name holds.

    A name that is safe stays as it is. A name that is changed also gets a digest of the original, so that two
    names stay two files.

    Args:
        name: Any object; its `str` is used.
        most: The largest number of bytes before the digest is added.

    Returns:
        A name without folders, control characters or names that Windows reserves.

    Example:
        >>> file_name("scan 1.csv"), file_name("../../x")[:7]
        ('scan 1.csv', '_._.._x')
    """
    text = str(name)
    safe = _UNSAFE_IN_NAMES.sub("_", text).strip(" ")
    if safe.startswith("."):
        safe = "_" + safe[1:]
    if len(safe.encode("utf-8", "replace")) > most:
        safe = safe.encode("utf-8", "replace")[: most - 12].decode("utf-8", "ignore")
    if not safe or safe.endswith(".") or _RESERVED.fullmatch(safe):
        safe = f"_{safe}_"
    if safe == text:
        return safe
    return f"{safe}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
