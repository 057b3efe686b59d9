"""Reports: tables, figures and the one-file HTML page, from the summary alone; nothing heavy at import.

The parts of a summary that the page knows (each is optional, and unknown keys are still shown):

- `calibration`: `before`, `after` = {metric: estimate}; `temperature`, `eligible`, `fitted_on`, ...
- `operating_point`: `threshold`, `threshold_source`, `here` and `reference` = {metric: estimate},
  `restoring` = [{`restores`, `threshold`, `sensitivity`, `specificity`}], `confusion` = {tp, fp, fn, tn}
- `case_mix`: {variable: {`levels`: {level: {`reference`: n, `here`: n}}, or `reference` and `here` =
  {`mean`, `sd`, `missing`}; `smd`}}
- `difficulty`: `detected_by` = {number of algorithms: lesions}, `hardest` = [rows]
- `size_strata`: `strata` = {name: {`cases`, `metrics`}}
- `comparison`: `a`, `b`, `metrics` = {name: {`a`, `b`, `difference`, `lo`, `hi`, `p_*`}}
- `ranking`: `table` = [{`model`, `value`, `lo`, `hi`, `rank`, `rank_lo`, `rank_hi`, `tier`}],
  `frequencies` = {model: [share at each rank]}, `fairness_weight` = {`weights`, `ranks`: {model: [..]}},
  `failed`
- `confusion`: {name: {`labels`, `matrix`}}
- `clinical`: `verification`, `prevalence`, `prevalence_source`, `ppv`, `npv`, `recall_rate`, `net_benefit`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elsewhere.report.result.methods import methods_paragraph
    from elsewhere.report.result.tables import summary_tables, write_tables
    from elsewhere.report.summary import render_report, write_figures, write_report

_WHERE = {
    "render_report": "summary",
    "write_report": "summary",
    "write_figures": "summary",
    "summary_tables": "result.tables",
    "write_tables": "result.tables",
    "methods_paragraph": "result.methods",
}

__all__ = [
    "methods_paragraph",
    "render_report",
    "summary_tables",
    "write_figures",
    "write_report",
    "write_tables",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        from importlib import import_module

        return getattr(import_module(f"elsewhere.report.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'elsewhere.report' has no attribute '{name}'")
