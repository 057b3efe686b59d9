"""Prepare a summary for print: shortened, small cells suppressed, ids removed.

Page, figures and tables all read what `prepare` returns, so that a number withheld in one place cannot be
read in another. What was cut is listed, and the page shows the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elsewhere.privacy import (
    SMALLEST_CELL,
    SUPPRESSED,
    Redactor,
    hash_ids,
    is_withheld,
    looks_hashed,
    marks_in,
    patients_of_row,
    suppress,
    suppress_counts,
    suppress_rows,
)
from elsewhere.report.page.labels import label
from elsewhere.report.page.numbers import as_float, count
from elsewhere.report.page.sanitise import sanitise, thin_curve
from elsewhere.report.result.normalise import normalise

MOST_GROUPS = 40
MOST_SITES = 60
MOST_WORST_CASES = 25
MOST_MODELS = 60
MOST_ROWS = 100
MOST_TEXT = 1200
MOST_ITEMS = 2000
_CAPS = {"worst_cases": MOST_WORST_CASES, "audit": MOST_ROWS, "warnings": MOST_ROWS, "flow": MOST_ROWS}

_WORST_CASE_TEXT = ("case", "site", "status", "dataset", "label", "reason", "kind")


@dataclass
class Prepared:
    """A summary that may be printed, with a list of what was removed from it.

    Args:
        data: The printable content of summary.json.
        cuts: What was shortened or left out, in words; the page lists it.
        suppressed: How many cells of one to four people were suppressed.
        removed_ids: How many ids were taken out of texts.
    """

    data: dict[str, Any]
    cuts: list[str] = field(default_factory=list)
    suppressed: int = 0
    removed_ids: int = 0

    def part(self, name: str) -> dict[str, Any]:
        """Return a mapping of the summary.

        Args:
            name: The key in the summary, such as 'metrics'.

        Returns:
            The mapping; an empty one where the summary has none of this name.
        """
        value = self.data.get(name)
        return value if isinstance(value, dict) else {}

    def rows(self, name: str) -> list[Any]:
        """Return a list of the summary.

        Args:
            name: The key in the summary, such as 'audit'.

        Returns:
            The list; an empty one where the summary has none of this name.
        """
        value = self.data.get(name)
        return value if isinstance(value, list) else []


def prepare(summary: Mapping[str, Any] | Prepared, *, redact: Iterable[Any] | Redactor = ()) -> Prepared:
    """Make a summary fit to be printed.

    Curves are thinned to 500 points, rows are capped, cells under five are suppressed, and ids and folders
    are taken out.

    Args:
        summary: The content of summary.json; what `prepare` returned is returned unchanged.
        redact: Ids of all inputs, which are taken out of every text that names one.

    Returns:
        The printable summary, and what was removed.

    Example:
        >>> prepare({"task": "response", "metrics": {}}).data["task"]
        'response'
    """
    if isinstance(summary, Prepared):
        return summary
    out = Prepared(data={})
    redactor = redact if isinstance(redact, Redactor) else Redactor(redact)
    raw = normalise(summary)
    _lists(raw, out)
    curves = _curves(raw.pop("curves", None), out)
    out.data = sanitise({key: _bounded(value, key, out) for key, value in raw.items()})
    if curves:
        out.data["curves"] = sanitise(curves)
    _worst_cases(out, redactor)
    out.data = redactor.summary(out.data)
    out.removed_ids = marks_in(out.data)
    _groups(out)
    _fairness(out)
    _sites(out)
    _strata(out)
    _carried(out)
    _matrices(out)
    return out


def _is_column(value: Any) -> bool:
    """Check whether a value is the points of a curve; a group or a site may be called x as well."""
    return hasattr(value, "__len__") and not isinstance(value, str | Mapping)


def _bounded(value: Any, where: str, out: Prepared, depth: int = 0) -> Any:
    """Shorten any list in the summary, at any depth, so that the page stays below 2 MB."""
    if isinstance(value, Mapping):
        if depth and all(_is_column(value.get(name)) for name in "xy"):
            return thin_curve(value)[0]
        if len(value) > MOST_ITEMS:
            out.cuts.append(f"{where}: the first {MOST_ITEMS} of {count(len(value))} entries")
            value = dict(list(value.items())[:MOST_ITEMS])
        return {k: _bounded(v, f"{where}.{k}", out, depth + 1) for k, v in value.items()}
    if isinstance(value, str):
        return value if len(value) <= MOST_TEXT * 4 else value[: MOST_TEXT * 4] + " …"
    if hasattr(value, "__len__") and hasattr(value, "__getitem__") and len(value) > MOST_ITEMS:
        out.cuts.append(f"{where}: the first {MOST_ITEMS} of {count(len(value))} entries")
        return [_bounded(v, where, out, depth + 1) for v in value[:MOST_ITEMS]]
    if isinstance(value, list | tuple):
        return [_bounded(v, where, out, depth + 1) for v in value]
    return value


def _curves(curves: Any, out: Prepared) -> dict[str, Any]:
    """Thin curves; leave out reliability bins of one to four cases, since each is a person's outcome."""
    if not isinstance(curves, Mapping):
        return {}
    kept: dict[str, Any] = {}
    for name, curve in curves.items():
        if not isinstance(curve, Mapping) or curve.get("x") is None or curve.get("y") is None:
            continue
        if len(curve["x"]) == 0 or len(curve["y"]) == 0:
            continue
        thinned, had = thin_curve(curve)
        if had > len(thinned["x"]):
            out.cuts.append(f"curve {name}: {len(thinned['x'])} of {count(had)} points drawn")
        sizes = next((thinned[k] for k in ("n", "count", "counts") if thinned.get(k) is not None), None)
        if str(name).startswith("reliability") and sizes is not None and len(sizes) == len(thinned["x"]):
            small = [0 < (as_float(float(n)) or 0) < SMALLEST_CELL for n in sizes]
            if any(small):
                keep = [i for i, is_small in enumerate(small) if not is_small]
                for key, values in thinned.items():
                    if (
                        hasattr(values, "__len__")
                        and not isinstance(values, str)
                        and len(values) == len(small)
                    ):
                        thinned[key] = [values[i] for i in keep]
                out.cuts.append(
                    f"curve {name}: {sum(small)} bins with fewer than {SMALLEST_CELL} cases not drawn"
                )
                out.suppressed += sum(small)
        kept[str(name)] = thinned
    return kept


def _worst_cases(out: Prepared, redactor: Redactor) -> None:
    """Cap the rows, remove columns that could name somebody, and hash a case that is no hash.

    The second hash uses the cohort's hash as its salt: it hides an id from a reader of the page, and it is
    stable, but no key file resolves it. Whoever wrote the row should have hashed the case.
    """
    rows = [row for row in out.rows("worst_cases") if isinstance(row, dict)]
    if not rows:
        return
    salt = str(out.part("provenance").get("cohort_hash") or "") + "worst-case"
    unhashed = 0
    safe: list[dict[str, Any]] = []
    for row in rows:
        case = str(row.get("case", row.get("hash", "")))
        if not looks_hashed(case) or case in redactor:
            case = hash_ids([case], salt)[0]
            unhashed += 1
        kept: dict[str, Any] = {"case": case}
        for key, value in row.items():
            if key in ("case", "hash") or key.endswith("_id") or key == "id":
                continue
            if key in _WORST_CASE_TEXT or as_float(value) is not None or isinstance(value, bool):
                kept[key] = value
        kept.pop("age", None)
        safe.append(kept)
    if unhashed:
        out.cuts.append(f"worst cases: {unhashed} names were not salted hashes and were hashed for this page")
    out.data["worst_cases"] = safe


def _withhold_small(rows: dict[str, Any], out: Prepared) -> dict[str, Any]:
    safe, withheld = suppress_rows(rows)
    out.suppressed += withheld
    return safe


def _capped(rows: dict[str, Any], most: int, what: str, out: Prepared) -> dict[str, Any]:
    if len(rows) <= most:
        return rows
    ordered = sorted(
        rows, key=lambda name: -(patients_of_row(rows[name]) or 0) if isinstance(rows[name], dict) else 0
    )[:most]
    out.cuts.append(f"{what}: the {most} largest of {count(len(rows))} rows")
    return {name: row for name, row in rows.items() if name in set(ordered)}


def _groups(out: Prepared) -> None:
    groups = out.part("groups")
    for variable, rows in groups.items():
        if isinstance(rows, dict):
            groups[variable] = _withhold_small(_capped(rows, MOST_GROUPS, f"groups of {variable}", out), out)


def _fairness(out: Prepared) -> None:
    """Suppress sizes as in the groups; a pair with a withheld group shows no difference."""
    for variable, entry in out.part("fairness").items():
        if not isinstance(entry, dict) or not isinstance(entry.get("sizes"), dict):
            continue
        people = entry.get("patients")
        few = (
            {name for name, n in people.items() if 0 < (as_float(n) or 0) < SMALLEST_CELL}
            if isinstance(people, dict)
            else set()
        )
        shown = suppress_counts({name: 1 if name in few else n for name, n in entry["sizes"].items()})
        rows = out.part("groups").get(variable)
        for name, row in rows.items() if isinstance(rows, dict) else ():
            if name in shown and is_withheld(row.get("cases")):
                shown[name] = row["cases"]
        small = {name for name, value in shown.items() if value == SUPPRESSED}
        entry["sizes"] = shown
        if small and isinstance(entry.get("pairwise"), list):
            entry["pairwise"] = [
                {**pair, "difference": None, "lo": None, "hi": None, "note": "a group under 5"}
                if isinstance(pair, dict) and {pair.get("a"), pair.get("b")} & small
                else pair
                for pair in entry["pairwise"]
            ]
        for key in ("smallest_group", "missing"):
            if as_float(entry.get(key)) is not None:
                entry[key] = SUPPRESSED if key == "smallest_group" and small else suppress(entry[key])


def _sites(out: Prepared) -> None:
    sites = out.part("sites")
    if sites:
        out.data["sites"] = _withhold_small(_capped(sites, MOST_SITES, "sites", out), out)
        small = {name for name, row in out.data["sites"].items() if row.get("cases") == SUPPRESSED}
        for row in out.rows("worst_cases"):
            if row.get("site") in small:
                row["site"] = "a site under 5"


def _strata(out: Prepared) -> None:
    strata = out.part("size_strata")
    rows = strata.get("strata") if isinstance(strata.get("strata"), dict) else strata
    if isinstance(rows, dict) and rows and all(isinstance(v, dict) and "metrics" in v for v in rows.values()):
        safe = _withhold_small(rows, out)
        if rows is strata:
            out.data["size_strata"] = safe
        else:
            strata["strata"] = safe


def _carried(out: Prepared) -> None:
    """Suppress the parts of a carried threshold with one to four people, with their words and units."""
    part = out.part("carried_threshold")
    rows = part.get("rows")
    if not isinstance(rows, dict) or not rows:
        return
    part["rows"] = _withhold_small(_capped(rows, MOST_SITES, "parts of the carried threshold", out), out)
    home = part["rows"].get(str(part.get("reference")), {})
    for row in part["rows"].values():
        if home.get("cases") == SUPPRESSED:  # a difference from a withheld part would tell its value
            row.pop("words", None)
            metrics = row.get("metrics")
            row["metrics"] = {
                name: entry
                for name, entry in (metrics.items() if isinstance(metrics, dict) else ())
                if not name.endswith(("_difference", "_ratio"))
            }
        if row.get("cases") == SUPPRESSED:
            row.pop("words", None)
        if is_withheld(row.get("cases")):
            row.pop("units", None)
        elif isinstance(row.get("units"), dict):
            row["units"] = {name: suppress(n) for name, n in row["units"].items()}
    units = out.part("thresholds").get("units")
    if isinstance(units, dict):
        out.part("thresholds")["units"] = {name: suppress(n) for name, n in units.items()}


def _matrices(out: Prepared) -> None:
    """Suppress cells of confusion matrices and levels of the case mix: they count people too."""
    for name, entry in out.part("confusion").items():
        matrix = (
            (entry.get("matrix") or entry.get("rows_truth_columns_prediction"))
            if isinstance(entry, dict)
            else None
        )
        if isinstance(matrix, list) and all(isinstance(row, list) for row in matrix):
            shown = [[suppress(v) for v in row] for row in matrix]
            out.suppressed += sum(v == SUPPRESSED for row in shown for v in row)
            out.part("confusion")[name] = {"labels": entry.get("labels"), "matrix": shown}
    cells = out.part("operating_point").get("confusion")
    if isinstance(cells, dict):
        out.part("operating_point")["confusion"] = {key: suppress(v) for key, v in cells.items()}
    for variable, entry in out.part("case_mix").items():
        levels = entry.get("levels") if isinstance(entry, dict) else None
        if not isinstance(levels, dict) or not all(isinstance(level, dict) for level in levels.values()):
            continue
        for side in sorted({key for level in levels.values() for key in level}):
            counts = {name: level.get(side) for name, level in levels.items()}
            if all(v is None or float(v).is_integer() for v in counts.values() if as_float(v) is not None):
                for name, value in suppress_counts(counts).items():
                    out.suppressed += is_withheld(value)
                    levels[name][side] = value
        rows = out.part("groups").get(variable)
        for name, row in rows.items() if isinstance(rows, dict) else ():
            if name in levels and "here" in levels[name] and is_withheld(row.get("cases")):
                levels[name]["here"] = row["cases"]


def _lists(raw: dict[str, Any], out: Prepared) -> None:
    for name, most in _CAPS.items():
        rows = raw.get(name)
        if isinstance(rows, list | tuple) and len(rows) > most:
            out.cuts.append(f"{label(name).lower()}: {most} of {count(len(rows))} rows")
            raw[name] = list(rows[:most])
    ranking = raw.get("ranking")
    table = ranking.get("table") if isinstance(ranking, Mapping) else None
    if isinstance(ranking, Mapping) and isinstance(table, list) and len(table) > MOST_MODELS:
        out.cuts.append(f"ranking: the first {MOST_MODELS} of {count(len(table))} models")
        raw["ranking"] = {**ranking, "table": table[:MOST_MODELS]}
