"""Translate the advice of a message into the options of the command that shows it.

Readers and scoring are used by several commands and recommend options, such as `--threshold 0.02` or
`--unit exam`. Not every command has each of them: in `accept` they are set in the claim, and some commands
have nothing of the kind. Here a recommendation is translated, and a sentence that recommends a missing
option is left out. A complete command line (`elsewhere cohort read csv ...`) is never changed: it has its
own options.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from elsewhere.errors import UserError

_IN_CLAIM = {
    "--threshold": "threshold = {} in the claim",
    "--protocol": 'protocol = "{}" in the claim',
    "--unit": 'unit = "{}" under [predictions] in the claim',
    "--combine": 'combine = "{}" under [predictions] in the claim',
}
_IN_STUDY = ("--scale", "--threshold", "--unit", "--combine", "--normalise-ids", "--on-invalid", "--protocol")
_OF_TABLES = ("--encoding", "--delimiter", "--decimal")
_NO_TABLES = dict.fromkeys((*_IN_STUDY, "--map"), "")
_NOTHING = _NO_TABLES | dict.fromkeys(_OF_TABLES, "")
INSTEAD: dict[str, dict[str, str]] = {
    "accept": _IN_CLAIM,
    "check": dict.fromkeys(("--threshold",), ""),
    "rank": dict.fromkeys(("--threshold", "--unit", "--combine"), ""),
    "merge": dict.fromkeys(("--threshold", "--unit", "--combine", "--scale", "--failed-status"), ""),
    "summarise": dict.fromkeys(("--scale", "--unit", "--combine", "--normalise-ids"), ""),
    "compare": _NOTHING,
    "equivalence": _NO_TABLES,
    "diff": _NOTHING,
    "report": _NOTHING,
    "explain": _NOTHING,
    "plan": _NOTHING,
    "run": _NOTHING,
    "models": _NOTHING,
    "predict": _NOTHING,
    "cohort read": dict.fromkeys(_IN_STUDY, ""),
    "cohort check": _NO_TABLES,
    "cohort describe": _NO_TABLES,
    "cohort duplicates": _NO_TABLES,
}
"""By command: the options that it lacks, and what replaces each; empty where nothing does."""
_OPTION = re.compile(r"(?<![\w-])(?P<name>--[a-z][a-z-]*)(?:[ =](?P<value>'[^']*'|[^\s`;]*[^\s`;.,:?)]))?")
_COMMAND = re.compile(r"elsewhere [a-z][^`]*?(?=`|(?<!\.)\. |\.$|; |$)")
_SENTENCE = re.compile(r"(?<!\.\.\.)(?<=[.;?])\s+")


def fit_advice(text: str, command: str) -> str:
    """Translate what a message recommends into the options of the command that shows it.

    Args:
        text: The message or its advice.
        command: The command that shows it, such as 'accept' or 'cohort read'.

    Returns:
        The text with every recommended option that the command lacks translated, or its sentence left out.

    Example:
        >>> fit_advice("Choose one. Give --threshold 0.02.", "accept")
        'Choose one. Give threshold = 0.02 in the claim.'
        >>> fit_advice("Choose one. Give --threshold 0.02.", "compare")
        'Choose one.'
    """
    instead = INSTEAD.get(command)
    if not instead or "--" not in text:
        return text
    kept = []
    for sentence in _SENTENCE.split(text):
        spared = [match.span() for match in _COMMAND.finditer(sentence)]
        lost = False

        def one(match: re.Match[str], spared: list[tuple[int, int]] = spared) -> str:
            nonlocal lost
            name, value = match.group("name"), match.group("value")
            if name not in instead or any(start <= match.start() < stop for start, stop in spared):
                return match.group(0)
            if not instead[name] or not value:
                lost = True
                return match.group(0)
            return instead[name].format(value.strip("'"))

        made = _OPTION.sub(one, sentence)
        if not lost:
            kept.append(made)
    out = " ".join(kept)
    return f"{out[:-1]}." if out.endswith(";") else out


def fit_error(error: UserError, command: str) -> UserError:
    """Translate the advice of an error into the options of the command that shows it.

    Args:
        error: The error.
        command: The command that shows it.

    Returns:
        The same error where its advice fits; otherwise a copy with advice that works in the command.
    """
    if not error.fix:
        return error
    fix = fit_advice(error.fix, command) or None
    return error if fix == error.fix else type(error)(error.what, where=error.where, fix=fix)


def fit_finding(finding: Any, command: str) -> Any:
    """Translate the advice of a finding into the options of the command that shows it.

    Args:
        finding: A dataclass with `message` and `fix`.
        command: The command that shows it.

    Returns:
        A copy whose message and advice work in the command.
    """
    fix = fit_advice(finding.fix, command) or None if finding.fix else finding.fix
    return replace(finding, message=fit_advice(finding.message, command) or finding.message, fix=fix)
