"""A result: the summary, the scores that it was made from, and the folder that holds both.

The folder has `scores.parquet` (and `events.parquet`), `summary.json`, `report.html`, and `case_key.csv`,
which resolves the hashed cases of the report and the ids that were taken out of texts, and stays with the
hospital. `SHARING.txt` says which files name nobody. `.elsewhere-result.json` lists what was written, so that
only these files are ever replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.result.assessment import Assessment
from elsewhere.analysis.result.pictured import PicturedDetections
from elsewhere.analysis.result.storage import (
    SUMMARY,
    load_assessment,
    seal_of,
    sealed,
    write_key,
    write_scores,
)
from elsewhere.privacy import KEY_FILE, Redactor, write_sharing_note
from elsewhere.tables import staged_directory, write_json, write_table


@dataclass(frozen=True, kw_only=True)
class Result(Assessment):
    """The result of a scoring, and how it is written, tabulated and printed.

    `summary` is for this machine: its texts may name cases and files. `to_dict` is the content of
    summary.json (the contract of other programs), which names nobody.
    """

    @classmethod
    def of(cls, assessment: Assessment) -> Result:
        """Make a result of an assessment, with the paragraph for a paper's methods.

        Args:
            assessment: The assessment of a model.

        Returns:
            The same, as a result that can be saved.
        """
        from elsewhere.report import methods_paragraph

        fields = {f.name: getattr(assessment, f.name) for f in dataclasses.fields(Assessment)}
        summary = assessment.summary
        if "methods" not in summary:
            summary["methods"] = methods_paragraph(summary)
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Return what summary.json holds, without any id or folder of the inputs.

        Returns:
            The shared summary; with `path` and `seal` where the result was written.
        """
        shared = self.shared()
        if self.path is None:
            return shared
        return {**shared, "seal": seal_of(shared), "path": str(self.path)}

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return every table of the report.

        Returns:
            A data frame per table, by its name.
        """
        from elsewhere.report import summary_tables

        return summary_tables(self.summary, redact=self.redactor())

    def save(self, out: str | Path, *, replace: bool = False, inputs: Iterable[Any] = ()) -> Result:
        """Write the folder: all of it, or nothing.

        Args:
            out: The folder to write.
            replace: Whether an earlier result in it may be replaced; files that Elsewhere did not write stay.
            inputs: Paths that must not lie in the folder, because they are read.

        Returns:
            The same result, with its path.

        Raises:
            UserError: Where the folder holds an earlier result and `replace` is not set, or other things.
            FileSystemError: Where the system refuses; an earlier result is then as it was.
        """
        from elsewhere.report import write_report

        redactor = self.redactor()
        shared = redactor.summary(self.summary)
        with staged_directory(out, replace=replace, inputs=inputs) as folder:
            digests = write_scores(self.scores, folder)
            shared = sealed(shared, digests)
            write_json(shared, folder / SUMMARY)
            pictured = None if self.pictured is None else self.pictured.shared(redactor)
            write_report(shared, folder / "report.html", redact=redactor, pictured=pictured)
            numbered = {} if self.pictured is None else self.pictured.key
            write_key(folder / KEY_FILE, self.case_key, {**redactor.originals, **numbered})
            write_sharing_note(folder, pictures=pictured is not None and pictured.bytes > 0)
        return dataclasses.replace(self, summary=sealed(self.summary, digests), path=Path(out))

    def lines(self) -> Iterator[str]:
        """Yield the lines that the terminal shows.

        Yields:
            One line of text at a time.
        """
        from elsewhere.report.page.numbers import format_interval
        from elsewhere.report.result.answered import answered_text, claim_lines, lost_sentence, verdict_lines

        summary = self.summary
        counts = summary["counts"]
        other = summary.get("protocol_counterpart")
        yield f"{summary['task']} by protocol {summary['protocol']} {summary['protocol_version']}" + (
            f" (the challenge's other rules: --protocol {other})" if other else ""
        )
        lost = ", ".join(
            f"{counts[name]} {name.replace('_', ' ')}"
            for name in ("missing", "invalid", "not_analysable", "undefined", "without_boxes", "extra")
            if counts.get(name)
        )
        yield f"{counts['cases']} cases of {counts['patients']} patients, {counts['scored']} scored" + (
            f"; {lost}" if lost else ""
        )
        words = summary.get("score_extras", {}).get("status_words") or []
        if words and all(word["understood"] and word["score_used"] for word in words):
            yield "status column: " + ", ".join(
                f"'{word['word']}' in {word['rows']} rows" for word in words[:8]
            )
        for dataset, grade in (summary["provenance"].get("id_grades") or {}).items():
            yield f"patient ids of {dataset}: grade {grade['grade']} ({grade['why']})"
        for name, entry in summary["metrics"].items():
            yield f"  {name:32s} {format_interval(entry)}{answered_text(entry)}"
        if lost_sentence(counts):
            yield lost_sentence(counts)
        for warning in summary.get("warnings", []):
            yield f"warning: {warning}"
        by_warning: dict[str, list[str]] = {}
        for name, entry in summary["metrics"].items():
            for warning in entry.get("warnings") or []:
                by_warning.setdefault(warning, []).append(name)
        for warning, names in by_warning.items():
            yield f"warning: {', '.join(names)}: {warning}"
        verdict = summary.get("verdict")
        if verdict:
            yield from claim_lines(verdict)
            for warning in dict.fromkeys(
                w for c in verdict.get("claims") or [] for w in c.get("warnings") or []
            ):
                yield f"warning: {warning}"
            yield from verdict_lines(verdict)
        if self.pictured is not None:
            yield self.pictured.sentence()
        if (summary.get("claim_lock") or {}).get("changed"):
            yield "the claim was changed after a verdict on the same cohort and predictions (exit code 6)"
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


def load_result(path: str | Path) -> Result:
    """Read a result folder back.

    Args:
        path: A folder that `score`, `accept` or `summarise` wrote.

    Returns:
        The result. It may have come from somebody else, so that reading checks it: its files are plain and of
        bounded size, its summary has the shape and the digests that it was written with, its tables are those
        that the summary names and hold what the task writes, and its protocol's rules are those of this
        version.

    Raises:
        UserError: The path is not a result folder, or one of these conditions is not met.
    """
    return Result.of(load_assessment(path))


def write_summary_folder(
    summary: Mapping[str, Any],
    out: str | Path,
    redactor: Redactor,
    *,
    replace: bool = False,
    inputs: Iterable[Any] = (),
    tables: Mapping[str, pd.DataFrame] | None = None,
    pictured: PicturedDetections | None = None,
    more: Callable[[Path], None] | None = None,
) -> Path:
    """Write the folder of a comparison, a ranking or a merge, which has no scores of its own: all of it, or nothing.

    Args:
        summary: The content of summary.json, which names nobody.
        out: The folder to write.
        redactor: The redactor that took the ids out of the summary; what it replaced goes into the key file.
        replace: Whether what an earlier run wrote there may be replaced.
        inputs: Paths that must not lie in the folder, because they are read.
        tables: Further tables by the names of their files; SHARING.txt says which of them name cases.
        pictured: Lesions and false positives in their slices for the report; None for none.
        more: Writes further files into the folder that it is given; None for none.

    Returns:
        The folder.

    Raises:
        UserError: The folder holds other things, or an earlier result and `replace` is not set.
    """
    from elsewhere.report import write_report

    with staged_directory(out, replace=replace, inputs=inputs) as folder:
        write_json(summary, folder / SUMMARY)
        shown = None if pictured is None else pictured.shared(redactor)
        write_report(summary, folder / "report.html", redact=redactor, pictured=shown)
        numbered = {} if pictured is None else pictured.key
        write_key(folder / KEY_FILE, None, {**redactor.originals, **numbered})
        for name, table in (tables or {}).items():
            write_table(table, folder / name)
        if more is not None:
            more(folder)
        write_sharing_note(folder, pictures=shown is not None and shown.bytes > 0)
    return Path(out)
