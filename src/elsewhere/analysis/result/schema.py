"""The shape of a summary as types: what the page, the figures, the tables and the commands may rely on.

A `summary.json` that somebody else wrote is compared with it before anything is read out of it. Further keys,
which a task or another package adds, are allowed and shown as they are (`report.generic`).
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elsewhere.errors import UserError

Number = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Shown = Count | Annotated[str, Field(max_length=40)]
"""A count, or the text that replaces a count too small to be reported."""
Name = Annotated[str, Field(max_length=10_000)]
Text = Annotated[str, Field(max_length=100_000)]
Numbers = list[Number | None]


class Part(BaseModel):
    """A part of a summary: the keys below have these types, further ones may be there."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class Estimate(Part):
    """One metric with its interval."""

    value: Number | None = None
    lo: Number | None = None
    hi: Number | None = None
    method: Text | None = None
    label: Name | None = None
    higher_is_better: bool | None = None
    bounds: Annotated[list[Number | None], Field(min_length=2, max_length=2)] | None = None
    defined: Count | None = None
    undefined: Count | None = None
    undefined_reason: Text | None = None
    warnings: list[Text] | None = None
    answered_only: Number | None = None
    se: Number | None = None
    df: Number | None = None
    bootstrap: Numbers | None = None


class Row(Part):
    """One group, one site or one stratum."""

    cases: Shown | None = None
    patients: Shown | None = None
    positives: Shown | None = None
    negatives: Shown | None = None
    metrics: dict[Name, Estimate] | None = None
    note: Text | None = None


class Gap(Part):
    """The fairness of one variable."""

    metric: Name | None = None
    gap: Number | None = None
    gap_lo: Number | None = None
    gap_hi: Number | None = None
    p: Share | None = None
    p_holm: Share | None = None
    null_band_upper: Number | None = None
    null_mean: Number | None = None
    sizes: dict[Name, Shown] | None = None
    patients: dict[Name, Shown] | None = None
    pairwise: list[dict[Name, Any]] | None = None
    worst_group: Name | None = None
    best_group: Name | None = None
    smallest_group: Shown | None = None
    missing: Shown | None = None
    note: Text | None = None


class Curve(Part):
    """Points and their band, as many of one as of the other."""

    x: Numbers | None = None
    y: Numbers | None = None
    lo: Numbers | None = None
    hi: Numbers | None = None
    n: Numbers | None = None
    count: Numbers | None = None
    counts: Numbers | None = None
    threshold: Numbers | None = None
    thresholds: Numbers | None = None
    bins: Numbers | None = None
    x_label: Name | None = None
    y_label: Name | None = None
    prevalence: Number | None = None
    note: Text | None = None
    operating_point: dict[Name, Number | None] | None = None


class Step(Part):
    """One step of who was tested."""

    step: Text
    n: Shown | None = None
    lost: Shown | None = None
    why: Text | None = None


class JudgedClaim(Part):
    """One claim of a verdict."""

    metric: Name
    word: Name
    group: Name | None = None
    claimed: Number | None = None
    here: Number | None = None
    difference: Number | None = None
    lo: Number | None = None
    hi: Number | None = None
    margin: Number | None = None
    alpha: Share | None = None
    margin_source: Text | None = None
    method: Text | None = None
    power: Text | None = None
    reason: Text | None = None
    reference: Text | None = None
    aim: Name | None = None
    passes: bool | None = None
    primary: bool | None = None
    smallest_detectable_drop: Number | None = None
    smallest_provable_margin: Number | None = None
    flips_at: Number | None = None
    flips_to: Name | None = None
    non_inferior: bool | None = None
    non_inferior_from: Number | None = None
    out_of_reach: bool | None = None
    warnings: list[Text] | None = None


class Verdict(Part):
    """The verdict, and what it rests on."""

    word: Name
    exit_code: Count | None = None
    reason: Text | None = None
    claims: list[JudgedClaim] | None = None
    model: Text | None = None
    aim: Name | None = None


class Settings(Part):
    """What was set when the result was scored."""

    threshold: Number | None = None
    fairness_weight: Share | None = None
    matching: Name | None = None
    resample: Name | None = None
    group_by: list[Name] | None = None
    where: dict[Name, Text] | None = None


class Grade(Part):
    """How far the patient ids of a dataset can be trusted."""

    grade: Name
    why: Text


class Provenance(Part):
    """What every number of a result carries."""

    cohort_hash: Name
    protocol_digest: Name
    cohort_reader: Name | None = None
    predictions_digest: Name | None = None
    scores_digest: Name | None = None
    events_digest: Name | None = None
    split_hash: Name | None = None
    code_version: Name | None = None
    command: Name | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    resamples: Count | None = None
    settings: Settings | None = None
    id_grades: dict[Name, Grade] | None = None


class Finding(Part):
    """A finding of the cohort's audit."""

    kind: Name | None = None
    severity: Name | None = None
    message: Text | None = None
    dataset: Name | None = None


class Confusion(Part):
    """A matrix of counts; its rows are the truth."""

    labels: list[Name] | None = None
    matrix: list[list[Shown | Number]] | None = None
    rows_truth_columns_prediction: list[list[Shown | Number]] | None = None


class CaseMix(Part):
    """One variable, here and in the reference."""

    here: dict[Name, Number | None] | None = None
    reference: dict[Name, Number | None] | None = None
    levels: dict[Name, dict[Name, Number | Shown | None]] | None = None
    smd: Number | None = None


class OperatingPoint(Part):
    """The threshold, and what it gives."""

    threshold: Number | None = None
    threshold_source: Text | None = None
    here: dict[Name, Estimate] | None = None
    reference: dict[Name, Estimate] | None = None
    confusion: dict[Name, Shown] | None = None
    restoring: list[dict[Name, Any]] | None = None


class ThresholdPoint(Part):
    """A rate of false positives with its threshold."""

    volumes: Name | None = None
    rate: Number | None = None
    metrics: dict[Name, Estimate] = {}


class Thresholds(Part):
    """The thresholds of a detector at each rate of false positives."""

    points: list[ThresholdPoint] = []
    units: dict[Name, Shown] | None = None
    note: Text | None = None
    warnings: list[Text] = []


class CarriedRow(Row):
    """What a carried threshold gives in one part."""

    units: dict[Name, Shown] | None = None
    words: dict[Name, Text] | None = None


class CarriedThreshold(Part):
    """A threshold that one part set and the others use."""

    column: Name | None = None
    reference: Text | None = None
    rate: Number | None = None
    threshold: Estimate | None = None
    rows: dict[Name, CarriedRow] = {}
    resamples: Count | None = None
    note: Text | None = None
    warnings: list[Text] = []


class Clinical(Part):
    """What the model would mean in use."""

    net_benefit: Curve | None = None
    verification: Text | None = None
    note: Text | None = None
    only_biopsied: bool | None = None
    prevalence: Number | None = None
    prevalence_source: Text | None = None
    per_thousand: dict[Name, Number | None] | None = None
    ppv: Estimate | None = None
    npv: Estimate | None = None
    recall_rate: Estimate | None = None
    follow_up_months: Number | None = None


class Claim(Part):
    """What was claimed."""

    model: Text | None = None
    task: Name | None = None
    digest: Name | None = None
    threshold: Number | None = None
    alpha: Share | None = None
    aim: Name | None = None
    primary: list[dict[Name, Any]] | None = None
    subgroups: list[dict[Name, Any]] | None = None
    outcomes: dict[Name, Any] | None = None
    population: dict[Name, Any] | None = None
    describe: list[Name] | None = None
    where: dict[Name, Any] | None = None


class WorstCase(Part):
    """A case by its hash."""

    case: Name
    site: Text | None = None
    status: Name | None = None


class Summary(Part):
    """A whole `summary.json` of `score`, `accept` or `summarise`."""

    elsewhere: Name
    task: Name
    protocol: Name
    protocol_version: Name
    protocol_counterpart: Name | None = None
    provenance: Provenance
    counts: dict[Name, Count]
    metrics: dict[Name, Estimate]
    created: Name | None = None
    headline: Name | None = None
    flow: list[Step] = []
    curves: dict[Name, Curve] = {}
    groups: dict[Name, dict[Name, Row]] = {}
    fairness: dict[Name, Gap] = {}
    sites: dict[Name, Row] | None = None
    audit: list[Finding] = []
    warnings: list[Text] = []
    notes: list[Text] = []
    score_extras: dict[Name, Any] = {}
    details: dict[Name, Any] = {}
    confusion: dict[Name, Confusion] | None = None
    calibration: dict[Name, Any] | None = None
    operating_point: OperatingPoint | None = None
    thresholds: Thresholds | None = None
    carried_threshold: CarriedThreshold | None = None
    case_mix: dict[Name, CaseMix] | None = None
    case_mix_reference: Text | None = None
    clinical: Clinical | None = None
    verdict: Verdict | None = None
    claim: Claim | None = None
    claim_lock: dict[Name, Any] | None = None
    new_hospital: dict[Name, Any] | None = None
    worst_cases: list[WorstCase] = []
    methods: Text | None = None
    seal: Name | None = None


def check_summary(content: dict[str, Any], *, where: str, fix: str | None = None) -> None:
    """Refuse a summary of another shape, naming the first key that is wrong and how many more there are.

    Args:
        content: The content of a summary.json.
        where: The file that an error names.
        fix: What an error advises; None for no advice.

    Raises:
        UserError: If a key is missing, or has a value of another type or out of its range.
    """
    try:
        Summary.model_validate(content)
    except ValidationError as problem:
        errors = problem.errors(include_url=False, include_input=False, include_context=False)
        first = errors[0]
        key = ".".join(str(step)[:80] for step in first["loc"])
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise UserError(
            f"this is not a summary of a result: {key}: {str(first['msg'])[:200]}{more}", where=where, fix=fix
        ) from None
