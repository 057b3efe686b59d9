"""Removal of ids, file names and folders from whatever is shared.

An id is found as a run of letters and digits, or several with something between them, whatever stands around
it: `ISPY2-000100` is found in `mask_ISPY2-000100.nii.gz`, `ispy2_100` and `'ISPY2-000100'`. Letter case,
leading zeros and what parts the runs do not count. Each id gets a mark of its own (`[id 1]`), so that two
messages about one case can be recognised as such, and the key file, which stays with the data, says who it
is.

Short ids look like ordinary words and counts: `12` in a sentence is nearly always a number of cases. They are
taken out where the text itself says that an id follows: in quotation marks, or after a word such as 'case' or
'id'.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

_SILENT = "\u00ad\u0300-\u036f\u061c\u115f\u1160\u180e\u200b-\u200f\u2060-\u206f\ufe00-\ufe0f\ufeff"
_RUN = rf"[^\W_](?:[{_SILENT}]*[^\W_]|[{_SILENT}]+(?=[^\W_]))*[{_SILENT}]*"
_ATOM = re.compile(rf"%[0-9A-Fa-f]{{2}}(?=[^\W_])|(?P<atom>{_RUN})")
_SILENT_RUN = re.compile(f"[{_SILENT}]+")
_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_PART_ASCII = re.compile(r"(?:%[0-9a-f]{2}(?=[0-9a-z])|[^0-9a-z\n])+")
_MARK = re.compile(r"\[id ([0-9]+)\]")
_PLAIN_KEY = re.compile(r"[a-z][a-z0-9_]*")
_ID_WORD = re.compile(
    r"(?:\b(?:(?:case|patient|exam|lesion|study)(?:[ _-]?id)?|ids?|volume|slide|mask|file|image|named|called)"
    r"[\s:=]*|(?<!\w)['\"`‘“«])$",
    re.IGNORECASE,
)
_AFTER_COMMA = re.compile(r"['\"`’”»]?,\s*['\"`‘“«]?$")
_COUNTED = re.compile(
    r"\s*%|\s+(?:of|to|more|other|times|resamples?|cases?|patients?|exams?|ids?|rows?|lines?|files?|masks?|images?"
    r"|volumes?|slides?|boxes|lesions?|sites?|points?|columns?|models?|entries|draws|permutations|bootstrap"
    r"|positives?|negatives?|have|are|were|had|do)\b",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"(?<![\w.:/\\~%\u0300-\u036f])(?:~[\w.-]*(?=[/\\])|[A-Za-z]:(?=\\))?"
    r"(?:[/\\]+[^\s/\\'\"`<>|:;,()\[\]{}]+){2,}[/\\]?|(?<![\w.:/\\~%\u0300-\u036f])~[/\\][^\s'\"`<>|:;,()\[\]{}]+"
)
_HOME = re.compile(r"(?:/home|/Users|[A-Za-z]:\\Users)[/\\][^/\\]+[/\\]?", re.IGNORECASE)
_FOLDER = "[folder]"
_FEWEST = 4
_BETWEEN = "-_./\\ :#+~@&\u2010\u2011\u2012\u2013\u2014"
_WIDEST_GAP = 8

CLOSED_VALUES = frozenset(
    {"aim", "code_version", "cohort_hash", "cohort_reader", "command", "created", "digest", "elsewhere"}
    | {"headline", "interval", "matching", "method", "metric", "numpy", "p_method", "predictions_digest"}
    | {"protocol", "protocol_digest", "protocol_version", "python", "severity", "split_hash", "task", "word"}
    | {"label", "x_label", "y_label", "band"}
)
"""Fields whose text the program itself chooses, whatever the input is called."""
NAMED_BY_DATA = frozenset(
    {"case_mix", "confusion", "fairness", "frequencies", "groups", "levels", "predictions_digest"}
    | {"ranks", "sites", "size_strata", "strata", "thresholds"}
)
"""Parts whose keys come from the data or from file names."""


@dataclass(frozen=True)
class _Atom:
    """A run of letters and digits: its place, and how it is compared, with and without its letter case."""

    start: int
    end: int
    cased: str
    form: str


def _cased(text: str) -> str:
    if not text.isascii():
        text = _SILENT_RUN.sub("", unicodedata.normalize("NFKC", text))
    return _ZEROS.sub("", text)


def _atoms(text: str) -> list[_Atom]:
    found = (m for m in _ATOM.finditer(text) if m.group("atom"))
    runs = ((m, _cased(m.group("atom"))) for m in found)
    return [_Atom(m.start("atom"), m.end("atom"), cased, cased.casefold()) for m, cased in runs]


def _forms(ids: Sequence[str]) -> list[str]:
    """Return each id's runs as they are compared, with one blank between them; ASCII ids all at once."""
    joined = "\n".join(ids)
    if joined.isascii() and joined.count("\n") == len(ids) - 1:
        return [form.strip() for form in _PART_ASCII.sub(" ", _ZEROS.sub("", joined.casefold())).split("\n")]
    return [" ".join(atom.form for atom in _atoms(one)) for one in ids]


class _Index:
    """Ids by how certain it is that a piece of text that looks like one is one."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.sure: set[str] = set()
        """Found whatever the letter case and the leading zeros."""
        self.cased: set[str] = set()
        """Short ones of letters (and digits): found in the same letter case."""
        self.exact: set[str] = set()
        """Found exactly as they are: numbers with leading zeros, and short ids that are long with them."""
        self.counts: set[str] = set()
        """Numbers of four digits and more, which may also be a count."""
        self.doubtful: set[str] = set()
        """Found only where the text says that an id follows."""
        self._between = frozenset("".join(ids)) | frozenset(_BETWEEN)
        blanks = {0}
        for one, form in zip(ids, _forms(ids), strict=True):
            if " " in form:
                blanks.add(form.count(" "))
                self._add(one, form)
            elif len(form) >= _FEWEST and not form.isdigit():
                self.sure.add(form)
            elif form:
                self._add(one, form)
        self.lengths = [count + 1 for count in sorted(blanks, reverse=True)]

    def _add(self, one: str, form: str) -> None:
        length = len(form) - form.count(" ")
        if form.replace(" ", "").isdigit():
            if length >= _FEWEST:
                (self.sure if " " in form else self.counts).add(form)
                return
            self.doubtful.add(form)
            if len(one) >= _FEWEST - 1 and one.startswith("0"):
                self.exact.add(one)
        elif length >= _FEWEST:
            self.sure.add(form)
        else:
            self.doubtful.add(form)
            atoms = _atoms(one)
            if length == _FEWEST - 1 or not form.replace(" ", "").isalpha():
                self.cased.add(" ".join(atom.cased for atom in atoms))
            bare = one[atoms[0].start : atoms[-1].end].casefold()
            if len(bare) >= _FEWEST:
                self.exact.add(bare)

    def joins(self, gap: str) -> bool:
        """Whether what stands between two runs of letters and digits may stand inside an id."""
        return len(gap) <= _WIDEST_GAP and (self._between.issuperset(gap) or gap[:1] == "%")

    def is_one(self, form: str, cased: str, raw: str) -> bool:
        """Whether this can be nothing but an id."""
        return form in self.sure or cased in self.cased or raw.casefold() in self.exact


class Redactor:
    """Replaces known ids, and folders of inputs, in text that is shared; remembers what it replaced.

    Args:
        ids: Everything that is an id: of cases, patients, exams, and names of files.
        folders: Folders of the inputs; a path that begins with one keeps its last part alone.

    Example:
        >>> redactor = Redactor(["ISPY2-000100"])
        >>> redactor.text("mask_ISPY2-000100.nii.gz is empty"), redactor.originals
        ('mask_[id 1].nii.gz is empty', {'[id 1]': 'ISPY2-000100'})
    """

    def __init__(self, ids: Iterable[Any] = (), *, folders: Iterable[str | Path] = ()) -> None:
        self._ids = tuple(dict.fromkeys(filter(None, map(str.strip, map(str, ids)))))
        self._folders = tuple(sorted({str(f) for f in folders} - {"", ".", "/"}, key=len, reverse=True))
        self.originals: dict[str, str] = {}
        self._marks: dict[str, str] = {}
        self._first = 1
        self.removed = 0

    @cached_property
    def _index(self) -> _Index:
        return _Index(self._ids)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._ids)

    def __contains__(self, text: str) -> bool:
        """Whether a whole text is an id that could be nothing else."""
        atoms = _atoms(text)
        if not atoms:
            return False
        form, cased = " ".join(atom.form for atom in atoms), " ".join(atom.cased for atom in atoms)
        raw = text[atoms[0].start : atoms[-1].end]
        index = self._index
        return (
            index.is_one(form, cased, raw)
            or form in index.counts
            or (text in self._known and not form.isdigit())
        )

    def knowing(self, ids: Iterable[Any]) -> Redactor:
        """Make a redactor that knows further ids.

        Args:
            ids: The further ids.

        Returns:
            A redactor that knows more ids and shares its marks with this one.
        """
        more = Redactor([*self._ids, *ids], folders=self._folders)
        more.originals, more._marks, more._first = self.originals, self._marks, self._first
        return more

    def text(self, text: str) -> str:
        """Take ids and folders out of a text.

        Args:
            text: Any text.

        Returns:
            The text with marks in place of ids and without folders.
        """
        if not text:
            return text
        text = _without_folders(text, self._folders)
        return self._without_ids(text) if self._ids else text

    def _without_ids(self, text: str) -> str:
        atoms = _atoms(text)
        out: list[str] = []
        done = at = 0
        last_id = -1
        while at < len(atoms):
            end = self._match(text, atoms, at, last_id)
            if end:
                start, stop = atoms[at].start, atoms[end - 1].end
                out += [text[done:start], self._mark(text[start:stop])]
                done = last_id = stop
                at = end
            else:
                at += 1
        return "".join([*out, text[done:]]) if out else text

    def _match(self, text: str, atoms: list[_Atom], at: int, last_id: int) -> int:
        """The number after the last atom of the longest id that begins at atom `at`, or 0."""
        for length in self._index.lengths:
            end = at + length
            if end > len(atoms) or not all(
                self._index.joins(text[atoms[i].end : atoms[i + 1].start]) for i in range(at, end - 1)
            ):
                continue
            if self._is_id(text, atoms[at:end], last_id):
                return end
        return 0

    def _is_id(self, text: str, run: Sequence[_Atom], last_id: int) -> bool:
        index, start, stop = self._index, run[0].start, run[-1].end
        form = " ".join(atom.form for atom in run)
        if _MARK.match(text, max(0, start - 4)) or _MARK.match(text, max(0, start - 1)):
            return False
        if index.is_one(form, " ".join(atom.cased for atom in run), text[start:stop]):
            return True
        if form not in index.doubtful and form not in index.counts:
            return False
        if re.search(r"[0-9][.,]$", text[max(0, start - 2) : start]) or re.match(
            r"[.,][0-9]", text[stop : stop + 2]
        ):
            return False
        before = text[max(0, start - 40) : start]
        if _ID_WORD.search(before):
            return True
        if last_id >= 0 and _AFTER_COMMA.fullmatch(text[last_id:start]):
            return True
        return form in index.counts and not _COUNTED.match(text, stop) and not before.endswith("of ")

    def _mark(self, raw: str) -> str:
        self.removed += 1
        if raw not in self._marks:
            self._marks[raw] = f"[id {self._first + len(self._marks)}]"
            self.originals[self._marks[raw]] = raw
        return self._marks[raw]

    def tree(self, value: Any, *, _above: tuple[str, ...] = ()) -> Any:
        """Take ids out of every text below a value, and out of every key that comes from the data.

        Keys count too, because somebody may group by an id.

        Args:
            value: Mappings, lists and texts, nested; anything else stays as it is.
            _above: The keys above the value.

        Returns:
            The same shape with marks in place of ids; tuples become lists.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            out: dict[str, Any] = {}
            for name, item in value.items():
                key = self._key(str(name), _above)
                closed = isinstance(item, str) and key in CLOSED_VALUES
                out[key] = item if closed else self.tree(item, _above=(*_above, str(name)))
            return out
        if isinstance(value, list | tuple):
            return [self.tree(item, _above=_above) for item in value]
        return value

    def _key(self, name: str, above: tuple[str, ...]) -> str:
        if _PLAIN_KEY.fullmatch(name) and not NAMED_BY_DATA & set(above[-2:]):
            return name
        return self.text(name)

    def summary(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Take ids out of a summary. Marks that it has already stay, and new ones get higher numbers.

        Args:
            summary: The content of a summary.json.

        Returns:
            The summary as it may be shared.
        """
        taken = [int(number) for text in _texts(summary) for number in _MARK.findall(text)]
        if not self._marks:
            self._first = max(taken, default=0) + 1
        made: dict[str, Any] = self.tree(dict(summary))
        return made


def marks_in(value: Any) -> int:
    """Count the different ids that were taken out of texts.

    Args:
        value: Mappings, lists and texts, nested.

    Returns:
        How many different marks the texts below `value` have.

    Example:
        >>> marks_in({"note": "[id 1] and [id 2]", "why": "[id 1]"})
        2
    """
    return len({mark for text in _texts(value) for mark in _MARK.findall(text)})


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield str(name)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _without_folders(text: str, folders: Sequence[str]) -> str:
    """Shorten paths to their last part, and remove home directories: they contain the user's name."""
    if "/" not in text and "\\" not in text:
        return text
    for folder in folders:
        if folder in text:
            text = re.sub(rf"(?<![\w.-]){re.escape(folder)}(?![\w.-])[/\\]?", _last_or_nothing, text)
    return _PATH.sub(_last_part, text)


def _last_or_nothing(match: re.Match[str]) -> str:
    return "" if match.group(0).endswith(("/", "\\")) else _FOLDER


def _last_part(match: re.Match[str]) -> str:
    path = match.group(0)
    if _HOME.fullmatch(path):
        return _FOLDER
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1] or _FOLDER
