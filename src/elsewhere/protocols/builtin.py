"""The protocols of the package. Where a paper and its organisers' code differ, each has a protocol."""

from __future__ import annotations

from elsewhere.protocols.protocol import (
    DetectionRules,
    FairnessRules,
    IntervalRules,
    Protocol,
    ResponseRules,
    SegmentationRules,
    SlideRules,
    add_protocol,
)

_DBTEX_INTERVAL = IntervalRules(method="percentile", resamples=5000, by_site=False, by_class=False)
_MAMAMIA_INTERVAL = IntervalRules(method="percentile", resamples=1000, seed=42, by_site=False, by_class=False)

PLAIN = add_protocol(
    Protocol(
        name="plain",
        version="1.1",
        title="Neutral rules for hospitals and studies",
        tasks=("classification", "detection", "segmentation", "response", "slides"),
        source="Elsewhere's own rules",
        digest_texts={"source": "statistics.md ST-01 to ST-14"},
        detection=DetectionRules(matching="nearest"),
        response=ResponseRules(constant_is_invalid=False),
        fairness=FairnessRules(one_group_disparity="undefined"),
        notes=(
            "Both masks empty: undefined, and counted.",
            "Intervals resample patients, site by site.",
            "A variable with a single group that has a value has no disparity (version 1.0 counted 0).",
        ),
    )
)

DBTEX_PAPER = add_protocol(
    Protocol(
        name="dbtex-paper",
        version="1.0",
        title="DBTex challenge, as the paper states it",
        digest_texts={"title": "DBTex challenge, as the paper states it (DBT-03 to DBT-06)"},
        tasks=("detection",),
        source="DBTex paper",
        detection=DetectionRules(),
        interval=_DBTEX_INTERVAL,
        counterpart="dbtex-code",
        notes=("A box that qualifies for several lesions takes the first listed (matching 'challenge').",),
    )
)

DBTEX_CODE = add_protocol(
    Protocol(
        name="dbtex-code",
        version="1.0",
        title="DBTex challenge, as the organisers' published code computes it (January 2021)",
        tasks=("detection",),
        source="duke-dbt-data",
        detection=DetectionRules(
            radius="larger-of-half-and-floor", radius_inclusive=True, matching="nearest"
        ),
        interval=_DBTEX_INTERVAL,
        default_for=("bcs-dbt",),
        counterpart="dbtex-paper",
        notes=("The nearest lesion by 3D centre distance, slices weighing 1; ties to the first listed.",),
    )
)

PHANTOM_SMALL, PHANTOM_HALF = (
    add_protocol(
        Protocol(
            name=name,
            version="1.0",
            title=f"The rules of dbtex-code for synthetic volumes of {rows:,} rows",
            tasks=("detection",),
            source="Elsewhere's own rules",
            detection=DetectionRules(
                radius="larger-of-half-and-floor",
                radius_inclusive=True,
                matching="nearest",
                floor_px=100.0 * rows / 2457,
            ),
            interval=_DBTEX_INTERVAL,
            notes=(
                "The floor of 100 px is that of volumes with 2,457 rows; in smaller ones every box would be a hit.",
            ),
        )
    )
    for name, rows in (("phantom-small", 192), ("phantom-half", 1228))
)

MAMAMIA_PAPER = add_protocol(
    Protocol(
        name="mamamia-paper",
        version="1.0",
        title="MAMA-MIA challenge, as the paper states it",
        digest_texts={
            "title": "MAMA-MIA challenge, as the paper states it (MRI-03 to MRI-08)",
            "notes": [
                "A percentile bootstrap of a range has no valid coverage: read the null band beside it."
            ],
        },
        tasks=("segmentation", "response"),
        source="MAMA-MIA paper",
        segmentation=SegmentationRules(both_empty=(0.0, 1.0)),
        interval=_MAMAMIA_INTERVAL,
        headline=("combined",),
        default_for=("mama-mia",),
        notes=("A percentile bootstrap of a range has no valid coverage: read it with the null band.",),
    )
)

MAMAMIA_CODE = add_protocol(
    Protocol(
        name="mamamia-code",
        version="1.0",
        title="MAMA-MIA challenge, as its published scoring template meant to compute it",
        tasks=("segmentation", "response"),
        source="MAMA-MIA scoring template",
        segmentation=SegmentationRules(
            distance="hausdorff95_contour_voxels", cut_to_one=False, both_empty=(0.0, 0.0)
        ),
        response=ResponseRules(threshold_inclusive=False, constant_is_invalid=False),
        fairness=FairnessRules(
            age_lowest=0.0,
            age_highest=100.0,
            unknown_menopausal="own-group",
            rate_without_denominator="zero",
            same_class_group_is_zero=True,
            cut_mean_disparity_to_one=True,
        ),
        interval=_MAMAMIA_INTERVAL,
        headline=("combined",),
        notes=(
            "Published as it is, the template's task-1 subgroup means come out NaN; this is what it meant.",
        ),
    )
)

CAMELYON16 = add_protocol(
    Protocol(
        name="camelyon16",
        version="1.0",
        title="CAMELYON16 lesion FROC",
        digest_texts={"title": "CAMELYON16 lesion FROC (LN-17)"},
        tasks=("slides",),
        source="CAMELYON16",
        interval=IntervalRules(method="percentile", by_class=False),
        headline=("froc_score",),
        notes=("Missed lesions are left out of the threshold list; the lowest real score is kept.",),
    )
)

CAMELYON16_CODE = add_protocol(
    Protocol(
        name="camelyon16-code",
        version="1.0",
        title="CAMELYON16 lesion FROC, as the published script computes it",
        tasks=("slides",),
        source="CAMELYON16 evaluation script",
        slides=SlideRules(froc_missed_as_zero=True, froc_drop_lowest_threshold=True),
        interval=IntervalRules(method="percentile", by_class=False),
        headline=("froc_score",),
        notes=("Missed lesions enter as 0.0, and the lowest threshold is always dropped.",),
    )
)

CAMELYON17 = add_protocol(
    Protocol(
        name="camelyon17",
        version="1.0",
        title="CAMELYON17 patient pN stage, quadratic weighted kappa",
        digest_texts={"title": "CAMELYON17 patient pN stage, quadratic weighted kappa (LN-17)"},
        tasks=("slides",),
        source="CAMELYON17",
        interval=IntervalRules(method="percentile", by_class=False),
        slides=SlideRules(missing_patient_is_error=True),
        headline=("pn_kappa",),
        default_for=("camelyon17",),
        notes=("Extra patients are ignored; a missing patient is an error.",),
    )
)

LYMPH_NODES = add_protocol(
    Protocol(
        name="lymph-nodes",
        version="1.0",
        title="Metastases in lymph nodes, staged on cells of 8 microns",
        tasks=("slides",),
        source="The lymph-node study, its Table 3 and Figure 8",
        slides=SlideRules(stage_pixels="8um"),
        notes=(
            "Masks are reduced to cells of about 8 microns (16x down of 20x) before anything is computed.",
            "Slides with isolated tumour cells alone count as negative; `lymph-nodes-tables` leaves them out.",
        ),
    )
)

LYMPH_NODES_TABLES = add_protocol(
    Protocol(
        name="lymph-nodes-tables",
        version="1.0",
        title="Metastases in lymph nodes, slides with isolated tumour cells left out",
        tasks=("slides",),
        source="The lymph-node study, its Tables 5 and 6",
        slides=SlideRules(stage_pixels="8um", itc="left-out"),
        notes=(
            "Masks are reduced to cells of about 8 microns (16x down of 20x) before anything is computed.",
            "Slides with isolated tumour cells alone are in neither class: sensitivity, specificity, precision and F1 "
            "leave them out, as the study's tables do.",
        ),
    )
)
