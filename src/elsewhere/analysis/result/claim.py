"""The claim: the vendor's numbers, the fixed threshold, the margin and the subgroups, written down
beforehand.

A claim is a TOML file. Its content when a verdict is shown is recorded in a lock file beside it
(`claim_lock.py`). A claim that changes afterwards is still judged, and the console and the report list what
changed. A claim that was not filled in is not judged.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from elsewhere.errors import UserError, near_matches
from elsewhere.tables import write_text
from elsewhere.untrusted import read_toml

TEMPLATE = """\
# What is claimed, written down before the outcomes are read. Every line can be edited;
# lines that start with # are explanations or optional.
# Until value, margin and margin_source of every block are filled in, the verdict is NOT ASSESSED.

model = ""                             # what was tested: the vendor's model, and its version
task = "classification"                # `elsewhere tasks` lists them
# protocol = "plain"                   # `elsewhere protocols` lists them
# threshold = 0.5                      # the vendor's fixed threshold: positive at or above it
alpha = 0.05                           # level of each one-sided test; the interval is 1 - 2 alpha
aim = "equivalence"                    # or "non-inferiority"
# where = { site = "Main hospital" }   # only these cases are judged

[predictions]                          # how to read the vendor's file
# map = { case_id = "Accession", score = "AI score" }
scale = "0-1"                          # 0-1, 0-100, MIN-MAX, logit or birads
# unit = "exam"                        # views brought together ...
# combine = "max"                      # ... by their highest score
# normalise_ids = ["zeros", "case", "blanks"]
# failed_status = ["released"]         # further status words that mean 'could not be analysed'
# encoding = "latin-1"                 # where the csv is not UTF-8 ...
# delimiter = ";"                      # ... or not separated by commas ...
# decimal = ","                        # ... or has decimal commas

[outcomes]
verified_by = ""                       # e.g. "biopsy of every recalled case, two years of follow-up of the rest"
only_biopsied = false                  # true: cases without biopsy are absent, so sensitivity is flattered
follow_up_months = 0

[population]
# prevalence_of_use = 0.006            # of the hospital's own patients: for PPV, NPV, recall rate, net benefit
# prevalence_of_source = 0.20          # of the claim's data: needed for metrics that move with prevalence

# One block per primary claim. All of them must pass.
[[primary]]
metric = "auroc"
value = ""                             # what is claimed, such as 0.90
# lo = 0.87                            # its interval, or ...
# hi = 0.93
# n = 1000                             # ... its number of cases (and positives); without either, it is a constant
# positives = 200
margin = ""                            # the largest difference that would not matter, such as 0.05
margin_source = ""                     # who set the margin, and why

# [[primary]]
# metric = "sensitivity"
# value = 0.90
# margin = 0.05
# margin_source = ""

[subgroups]
describe = []                          # columns to show separately, e.g. ["site", "breast_density"]

# A subgroup that is part of the claim is judged like a primary claim:
# [[subgroup]]
# variable = "breast_density"
# group = "D"
# metric = "auroc"
# value = 0.85
# margin = 0.07
# margin_source = ""
"""


@dataclass(frozen=True, kw_only=True)
class ClaimedMetric:
    """One line of the claim: a number that the vendor claims, for all cases or for a subgroup.

    Args:
        metric: Name of the metric.
        value: The claimed value; None where the claim was not filled in.
        margin: The largest difference that would not matter, above 0; None where the claim was not filled in.
        margin_source: Who set the margin, and why; empty where the claim was not filled in.
        lo: Lower end of the published 95 % interval; None where none was published.
        hi: Upper end of that interval; None where none was published.
        n: Number of cases behind the claimed value; None where it is not known.
        positives: How many of these cases are positive; None where it is not known.
        variable: Column that defines the subgroup; None where the claim is about all cases.
        group: Value of that column for the cases of the subgroup; None where the claim is about all cases.

    Example:
        >>> ClaimedMetric(metric="auroc", value=0.9, margin=None).missing
        ('margin', 'margin_source')
    """

    metric: str
    value: float | None
    margin: float | None
    margin_source: str = ""
    lo: float | None = None
    hi: float | None = None
    n: int | None = None
    positives: int | None = None
    variable: str | None = None
    group: str | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the fields that must be filled in before the line can be judged: value, margin and
        margin_source.
        """
        empty = {"value": self.value is None, "margin": self.margin is None}
        empty["margin_source"] = not self.margin_source.strip()
        return tuple(name for name, is_empty in empty.items() if is_empty)

    @property
    def name(self) -> str:
        """Name of this line in errors and changes."""
        return f"subgroup {self.variable} = {self.group} {self.metric}" if self.variable else self.metric


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A parsed claim, with the digest of what it claims.

    Args:
        model: The vendor's model and its version, as the claim names them.
        task: Name of the task.
        digest: SHA-256 of everything that decides the verdict (`claimed`).
        source: File that the claim was read from.
        primary: The primary claims, all of which must pass.
        subgroup_claims: Claims about subgroups, judged like primary ones.
        protocol: Name of the protocol; None for the one that belongs to the cohort's reader.
        threshold: The vendor's fixed threshold, positive at or above it; None for the protocol's.
        alpha: Level of each one-sided test, between 0 and 0.5; the interval is the 1 - 2 alpha one.
        aim: What must be proved: `equivalence` or `non-inferiority`.
        predictions: Section [predictions]: how the vendor's file is read.
        outcomes: Section [outcomes]: how outcomes were verified.
        population: Section [population]: `prevalence_of_use` and `prevalence_of_source`, as far as given.
        describe: Columns whose groups the report shows without judging them.
        where: Columns with the values that choose the cases to judge; empty for all cases.
    """

    model: str
    task: str
    digest: str
    source: Path
    primary: tuple[ClaimedMetric, ...]
    subgroup_claims: tuple[ClaimedMetric, ...] = ()
    protocol: str | None = None
    threshold: float | None = None
    alpha: float = 0.05
    aim: Literal["equivalence", "non-inferiority"] = "equivalence"
    predictions: Mapping[str, Any] = field(default_factory=dict)
    outcomes: Mapping[str, Any] = field(default_factory=dict)
    population: Mapping[str, Any] = field(default_factory=dict)
    describe: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)

    def claimed(self) -> dict[str, Any]:
        """List what decides the verdict, field by field, with defaults filled in: the digest is made of this.

        Returns:
            The fields by name, without empty ones.
        """
        out: dict[str, Any] = {
            "task": self.task,
            "protocol": self.protocol,
            "threshold": self.threshold,
            "alpha": self.alpha,
            "aim": self.aim,
            "prevalence_of_source": self.population.get("prevalence_of_source"),
        }
        out |= {f"where {column}": wanted for column, wanted in sorted(self.where.items())}
        times: dict[str, int] = {}
        for line in (*self.primary, *self.subgroup_claims):
            times[line.name] = times.get(line.name, 0) + 1
            name = line.name if times[line.name] == 1 else f"{line.name} ({times[line.name]})"
            for key in ("value", "lo", "hi", "n", "positives", "margin", "margin_source"):
                out[f"{name} {key}"] = getattr(line, key)
        return {key: value for key, value in out.items() if value not in (None, "")}

    def described(self) -> dict[str, Any]:
        """List what the report prints and the verdict does not depend on.

        Returns:
            The fields by name, without empty ones.
        """
        out: dict[str, Any] = {"model": self.model}
        plain = (str, int, bool)
        out |= {
            key: value if isinstance(value, plain) else f"{value}"
            for key, value in sorted(self.outcomes.items())
        }
        out["prevalence_of_use"] = self.population.get("prevalence_of_use")
        out["describe"] = ", ".join(self.describe)
        return {key: value for key, value in out.items() if value not in (None, "")}

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `model`, `task`, `digest`, `threshold`, `alpha`, `aim`, `primary`, `subgroups`,
            `outcomes`, `population`, `describe` and `where`.
        """

        def line(c: ClaimedMetric) -> dict[str, Any]:
            kept = {k: v for k, v in c.__dict__.items() if v is not None}
            return kept | ({"not_filled_in": list(c.missing)} if c.missing else {})

        return {
            "model": self.model,
            "task": self.task,
            "digest": self.digest,
            "threshold": self.threshold,
            "alpha": self.alpha,
            "aim": self.aim,
            "primary": [line(c) for c in self.primary],
            "subgroups": [line(c) for c in self.subgroup_claims],
            "outcomes": dict(self.outcomes),
            "population": dict(self.population),
            "describe": list(self.describe),
            "where": dict(self.where),
        }


def write_claim_template(path: Path) -> Path:
    """Write a commented claim to fill in; an existing file is never overwritten.

    Args:
        path: The file to write.

    Returns:
        The same path.

    Raises:
        UserError: The file exists.
    """
    if path.exists():
        raise UserError(
            "the file exists already", where=str(path), fix="Name another with --claim, or remove it."
        )
    write_text(TEMPLATE, path)
    return path


_TOP = {
    "model",
    "task",
    "protocol",
    "threshold",
    "alpha",
    "aim",
    "predictions",
    "outcomes",
    "population",
    "primary",
    "subgroups",
    "subgroup",
    "where",
}
_METRIC = {"metric", "value", "margin", "margin_source", "lo", "hi", "n", "positives", "variable", "group"}
_SECTIONS = {
    "predictions": {
        "map",
        "scale",
        "unit",
        "combine",
        "normalise_ids",
        "failed_status",
        "encoding",
        "delimiter",
        "decimal",
    },
    "outcomes": {"verified_by", "only_biopsied", "follow_up_months", "notes"},
    "population": {"prevalence_of_use", "prevalence_of_source"},
    "subgroups": {"describe"},
}


def read_claim(path: Path) -> Claim:
    """Parse and check a claim; an unknown key offers its neighbours.

    Args:
        path: A TOML file.

    Returns:
        The claim.

    Raises:
        UserError: If the file is not readable TOML, a key is unknown or missing, or a value has the wrong
            type or is out of its range; the message names the block.
    """
    content = read_toml(
        path, what="claim", fix=f"elsewhere accept --init --claim {path} writes one to fill in."
    )
    where = str(path)
    _known(content, _TOP, where)
    for section, keys in _SECTIONS.items():
        part = content.get(section, {})
        if not isinstance(part, dict):
            raise UserError(f"[{section}] must be a table", where=where)
        _known(part, keys, f"{where} [{section}]")
    _check_sections(content, where)
    primary = _metrics(content, "primary", where)
    if not primary:
        raise UserError(
            "the claim has no [[primary]] block", where=where, fix="Add one with metric, value, margin."
        )
    aim = content.get("aim", "equivalence")
    if aim not in ("equivalence", "non-inferiority"):
        raise UserError(
            f"aim '{aim}' is not known", where=where, fix='Use "equivalence" or "non-inferiority".'
        )
    alpha = _number(content, "alpha", where, default=0.05)
    if not 0 < alpha < 0.5:
        raise UserError(f"alpha is {alpha}", where=where, fix="Use a level between 0 and 0.5, such as 0.05.")
    subgroup_claims = _metrics(content, "subgroup", where)
    for line in subgroup_claims:
        if line.variable is None or line.group is None:
            raise UserError("a [[subgroup]] block needs variable and group", where=where)
    describe = content.get("subgroups", {}).get("describe", [])
    if not isinstance(describe, list) or not all(isinstance(name, str) for name in describe):
        raise UserError("describe must be a list of column names", where=f"{where} [subgroups]")
    claim = Claim(
        model=str(content.get("model", "")),
        task=str(content.get("task", "classification")),
        digest="",
        source=path,
        primary=primary,
        subgroup_claims=subgroup_claims,
        protocol=_text(content, "protocol", where),
        threshold=_number(content, "threshold", where, default=None),
        alpha=alpha,
        aim=aim,
        predictions=content.get("predictions", {}),
        outcomes=content.get("outcomes", {}),
        population=content.get("population", {}),
        describe=tuple(describe),
        where=_where(content.get("where", {}), where),
    )
    return replace(claim, digest=_digest(claim))


def _where(value: Any, place: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str | int | float) for v in value.values()):
        raise UserError(
            'where must name columns and their values, like { site = "Main hospital" }', where=place
        )
    return {str(column): str(wanted) for column, wanted in value.items()}


def _digest(claim: Claim) -> str:
    """Digest of what decides the verdict: reading options and descriptions can be corrected without changing
    it.
    """
    text = json.dumps(claim.claimed(), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _known(content: Mapping[str, Any], keys: set[str], where: str) -> None:
    for key in content:
        if key not in keys:
            near = near_matches(key, keys)
            raise UserError(
                f"unknown key '{key}'",
                where=where,
                fix=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(sorted(keys))}.",
            )


def _number(content: Mapping[str, Any], key: str, where: str, *, default: Any) -> Any:
    value = content.get(key, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{key} must be a number, got {value!r}", where=where)
    return float(value)


def _to_fill_in(content: Mapping[str, Any], key: str, where: str) -> float | None:
    """A number, or None where the template's empty text still stands."""
    value = content.get(key)
    if isinstance(value, str) and not value.strip():
        return None
    number: float | None = _number(content, key, where, default=None)
    if number is not None and not math.isfinite(number):
        raise UserError(f"{key} is {number}", where=where, fix="Give a finite number.")
    return number


def _text(content: Mapping[str, Any], key: str, where: str) -> str | None:
    value = content.get(key)
    if value is not None and not isinstance(value, str):
        raise UserError(f"{key} must be text, got {value!r}", where=where, fix=f'Write {key} = "..."')
    return value


def _check_sections(content: Mapping[str, Any], where: str) -> None:
    """Refuse values of the wrong type in [predictions], [outcomes] and [population]."""
    how, here = content.get("predictions", {}), f"{where} [predictions]"
    for key in ("scale", "unit", "combine", "encoding", "delimiter", "decimal"):
        _text(how, key, here)
    if how.get("decimal", ".") not in (".", ","):
        raise UserError(f"decimal '{how['decimal']}' is not known", where=here, fix='Use "." or ",".')
    columns = how.get("map", {})
    if not isinstance(columns, dict) or not all(isinstance(value, str) for value in columns.values()):
        raise UserError("map must name columns", where=here, fix='map = { score = "AI score" }')
    for key, example in (("normalise_ids", '["zeros", "case", "blanks"]'), ("failed_status", '["released"]')):
        words = how.get(key, [])
        if not isinstance(words, list) or not all(isinstance(value, str) for value in words):
            raise UserError(f"{key} must be a list", where=here, fix=example)
    outcomes = content.get("outcomes", {})
    _text(outcomes, "verified_by", f"{where} [outcomes]")
    if not isinstance(outcomes.get("only_biopsied", False), bool):
        raise UserError("only_biopsied must be true or false", where=f"{where} [outcomes]")
    _number(outcomes, "follow_up_months", f"{where} [outcomes]", default=None)
    population = content.get("population", {})
    for key in ("prevalence_of_use", "prevalence_of_source"):
        share = _number(population, key, f"{where} [population]", default=None)
        if share is not None and not 0 < share < 1:
            raise UserError(
                f"{key} is {share:g}",
                where=f"{where} [population]",
                fix="Give a share between 0 and 1, such as 0.006.",
            )


def _count(block: Mapping[str, Any], key: str, where: str) -> int | None:
    value = block.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{key} must be a whole number above 0, got {value!r}", where=where)
    return value


def _metrics(content: Mapping[str, Any], section: str, where: str) -> tuple[ClaimedMetric, ...]:
    blocks = content.get(section, [])
    if not isinstance(blocks, list):
        raise UserError(f"write [[{section}]] with double brackets", where=where)
    lines = []
    for number, block in enumerate(blocks, start=1):
        here = f"{where} [[{section}]] {number}"
        if not isinstance(block, dict):
            raise UserError(f"write [[{section}]] with double brackets", where=here)
        _known(block, _METRIC, here)
        for key in ("metric", "value", "margin"):
            if key not in block:
                raise UserError(f"{key} is missing", where=here)
        margin = _to_fill_in(block, "margin", here)
        if margin is not None and margin <= 0:
            raise UserError(
                f"margin is {margin}",
                where=here,
                fix="Give the largest difference that would not matter, above 0.",
            )
        value = _to_fill_in(block, "value", here)
        lo, hi = _number(block, "lo", here, default=None), _number(block, "hi", here, default=None)
        if (lo is None) != (hi is None) or (lo is not None and value is not None and not lo <= value <= hi):
            raise UserError("lo and hi must both be given, around the value", where=here)
        if lo is not None and lo == hi:
            raise UserError(
                f"lo and hi are both {lo:g}: an interval without any width",
                where=here,
                fix="Give the interval that was published, or leave lo and hi out: the value is then a constant.",
            )
        n = _count(block, "n", here)
        if n is not None and n < 2:
            raise UserError(
                "n is 1: one case cannot show how certain the claimed value is",
                where=here,
                fix="Give the number of cases of the vendor's study, or leave n out: the value is then a constant.",
            )
        lines.append(
            ClaimedMetric(
                metric=str(block["metric"]),
                value=value,
                margin=margin,
                margin_source=_text(block, "margin_source", here) or "",
                lo=lo,
                hi=hi,
                n=n,
                positives=_count(block, "positives", here),
                variable=_text(block, "variable", here),
                group=None if block.get("group") is None else str(block["group"]),
            )
        )
    return tuple(lines)
