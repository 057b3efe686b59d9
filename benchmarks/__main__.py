"""Run the benchmarks and rewrite benchmarks/README.md: `python -m benchmarks [--quick] [NAME...]`.

Every row is measured beside its peer in the same run on the same machine; ratios are the point. Results
are kept as json under benchmarks/results/, with the command and the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
HEAD = """# Benchmarks

Each job beside the tool a user would pick instead, both measured in the same run on the same machine: the ratios
are the point, the seconds belong to the machine named below. `make bench` runs them all and rewrites this page;
`python -m benchmarks NAME` runs one. A peer's time that was scaled from fewer repetitions says so.

"""


def names() -> list[str]:
    return sorted(file.stem.removeprefix("bench_") for file in HERE.glob("bench_*.py"))


def flat(rows: dict[str, Any] | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A benchmark gives a row, a list of rows, or a row with others under `also`."""
    out = []
    for row in rows if isinstance(rows, list) else [rows]:
        also = row.pop("also", None) or []
        out.append(row)
        out += flat(also)
    return out


def met(row: dict[str, Any]) -> str:
    if "bar_met" in row:
        return {True: "yes", False: "no", None: ""}[row["bar_met"]]
    bar = row.get("bar")
    if not isinstance(bar, int | float):
        return ""
    return (
        "yes"
        if (row["ours_seconds"] <= bar if row.get("bar_kind") == "seconds" else row["ratio"] >= bar)
        else "no"
    )


def bar_text(row: dict[str, Any]) -> str:
    bar = row.get("bar")
    if bar is None:
        return ""
    if not isinstance(bar, int | float):
        return str(bar)
    return f"{bar:g} s" if row.get("bar_kind") == "seconds" else f"{bar:g}x"


def seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value * 1000:.2g} ms" if value < 0.1 else f"{value:.3g} s"


def page() -> str:
    lines = ["| job | peer | peer | ours | ratio | bar | met | notes |", "|---|---|---|---|---|---|---|---|"]
    machines = set()
    for file in sorted((HERE / "results").glob("*.json")):
        content = json.loads(file.read_text())
        if not isinstance(content, dict) or "rows" not in content:
            continue
        machines.add(f"{content['machine']} ({content['measured'][:10]})")
        for row in content["rows"]:
            ratio = "" if row.get("ratio") is None else f"{row['ratio']:.3g}x"
            cells = [
                row["job"],
                row["peer"],
                seconds(row.get("peer_seconds")),
                seconds(row.get("ours_seconds")),
                ratio,
                bar_text(row),
                met(row),
                str(row.get("notes", "")),
            ]
            lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return HEAD + "\n".join(lines) + "\n\nMachines: " + "; ".join(sorted(machines)) + ".\n"


def machine() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = next(
            (
                line.split(":", 1)[1].strip()
                for line in cpuinfo.read_text().splitlines()
                if line.startswith("model name")
            ),
            model,
        )
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f} at the start"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which: {', '.join(names())}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument(
        "--page-only", action="store_true", help="rewrite the page from the results that are there"
    )
    given = parser.parse_args()
    for name in [] if given.page_only else given.names or names():
        print(f"{name} ...", file=sys.stderr, flush=True)
        where = machine()
        rows = flat(importlib.import_module(f"benchmarks.bench_{name}").run(quick=given.quick))
        result = {
            "measured": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": f"python -m benchmarks {name}" + (" --quick" if given.quick else ""),
            "machine": where,
            "rows": rows,
        }
        (HERE / "results").mkdir(exist_ok=True)
        (HERE / "results" / f"{name}.json").write_text(json.dumps(result, indent=1, default=str) + "\n")
        for row in rows:
            print(
                f"  {row['job']}: {seconds(row['ours_seconds'])}, peer {seconds(row.get('peer_seconds'))}, bar {bar_text(row)} {met(row)}",
                file=sys.stderr,
            )
    (HERE / "README.md").write_text(page())


if __name__ == "__main__":
    main()
