"""Many models judged: domains, strata, margins, the study's test, thresholds and ensembles on synthetic worlds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.analysis.generalise.ensembles import halves, study_ensembles
from elsewhere.analysis.generalise.operating_point import carry_thresholds, operating_point
from elsewhere.analysis.generalise.settings import GeneraliseOptions, domains_of, parse_margins
from elsewhere.analysis.generalise.summary import judge_models
from elsewhere.analysis.generalise.verdicts import by_fold
from elsewhere.errors import UserError
from elsewhere.phantom.patch_scores import PatchWorld, draw_patch_scores
from elsewhere.scoring.patch_scores import DICE, read_patch_scores
from elsewhere.statistics.equivalence import study_margin
from elsewhere.statistics.resampling import Resampling


def world(seed=1, **more):
    spec = PatchWorld(**{"internal": 60, "external": 40, "models": 4, **more})
    return read_patch_scores(draw_patch_scores(spec, np.random.default_rng(seed)))


def judged(scores, **more):
    options = GeneraliseOptions(
        **{"margins": {"dice": 0.1, "fpr": 0.004}, "resamples": 200, **more},
    )
    return judge_models(scores, domains_of(scores), options).summary["generalise"]


def rows_of(part, metric, stratum="all"):
    return [row for row in part["rows"] if row["metric"] == metric and row["stratum"] == stratum]


def test_a_planted_drop_is_below_and_no_drop_is_not():
    dropped = judged(world(internal=150, external=100, drop=2.5))
    assert {row["verdict"] for row in rows_of(dropped, "dice")} == {"BELOW"}
    assert {row["verdict"] for row in dropped["models"]} == {"BELOW"}
    same = judged(world(internal=150, external=100))
    assert "BELOW" not in {row["verdict"] for row in same["rows"]}


def test_fewer_false_positives_elsewhere_are_never_below_though_the_two_sided_test_fails_them():
    part = judged(
        world(internal=150, external=100, fpr=0.05, fpr_ratio=0.3), margins={"dice": 0.1, "fpr": 0.003}
    )
    rows = rows_of(part, "fpr")
    assert {row["verdict"] for row in rows} <= {"ABOVE", "INCONCLUSIVE"} and all(
        r["non_inferior"] for r in rows
    )
    assert not any(row["fold_equivalent"] for row in rows) and all(row["fold_non_inferior"] for row in rows)
    assert all(row["ratio_non_inferior"] and row["ratio"] < 1 for row in rows)


def test_the_study_s_margin_comes_from_all_models_differences_by_stratum():
    scores = world()
    part = judged(scores, margins={"dice": "study", "fpr": "study"}, by=("stage",))
    external = (scores.parts["domain"] == "OOD").to_numpy()
    d = (scores.fold_means(DICE, ~external) - scores.fold_means(DICE, external)).mean(axis=1)
    row = rows_of(part, "dice")[0]
    assert row["margin"] == pytest.approx(study_margin(d).value)
    assert row["fold_difference"] == pytest.approx(d[0])
    macro = rows_of(part, "dice", "macro")[0]
    assert macro["margin"] != row["margin"] and macro["stratum_of"] == "stage"
    assert not rows_of(part, "dice", "negative") and rows_of(part, "fpr", "negative")


def test_one_external_patient_is_not_assessed_and_the_summary_says_why():
    part = judged(world(external=1))
    assert {row["verdict"] for row in part["rows"]} == {"NOT ASSESSED"}
    assert "one patient with tumour patches in the external domain" in rows_of(part, "dice")[0]["reason"]
    assert {row["verdict"] for row in part["models"]} == {"NOT ASSESSED"}


def test_no_itc_among_internal_slides_leaves_that_stratum_not_assessed():
    scores = draw_patch_scores(PatchWorld(internal=60, external=40, models=3), np.random.default_rng(4))
    scores = scores[~((scores["stage"] == "itc") & (scores["domain"] == "ID"))]
    part = judged(read_patch_scores(scores), by=("stage",), standardise=("stage",))
    assert {row["verdict"] for row in rows_of(part, "dice", "itc")} == {"NOT ASSESSED"}
    assert "NOT ASSESSED" not in {row["verdict"] for row in rows_of(part, "dice")}
    assert part["left_out_cells"] == ["itc"] and rows_of(part, "dice")[0]["standardised_share"] == 1.0


def test_one_fold_has_no_test_by_fold_and_a_verdict_by_patient():
    part = judged(world(folds=1))
    row = rows_of(part, "dice")[0]
    assert row["fold_p"] is None and row["verdict"] != "NOT ASSESSED"
    assert "two folds" in part["by_fold"][0]["reason"]


def test_the_models_share_resamples_and_rows_have_both_power_numbers():
    row = rows_of(judged(world()), "dice")[0]
    assert row["smallest_detectable_drop"] < row["smallest_provable_margin"]
    assert 0 <= row["power_at_margin"] <= 1
    wide = rows_of(judged(world(), margins={"dice": 0.9, "fpr": 0.5}), "dice")[0]
    assert wide["power_at_margin"] > 0.99 and wide["verdict"] == "EQUIVALENT"


def test_summaries_name_no_slide_and_no_patient():
    made = judge_models(
        scores := world(),
        domains_of(scores),
        GeneraliseOptions(margins={"dice": 0.1, "fpr": 0.01}, by=("stage",), ensembles=True, resamples=100),
    )
    text = str(made.summary)
    assert "slide-0" not in text and "out-0" not in text


@pytest.mark.parametrize(
    ("internal", "external", "words"),
    [
        (("domain", ("ID", "OOD")), ("domain", ("OOD",)), "40 slides are internal and external"),
        (("stage", ("macro",)), None, None),
        (("nothing", ("x",)), None, "nothing"),
        (("stage", ("makro",)), None, "makro"),
    ],
)
def test_domains_by_columns(internal, external, words):
    scores = world()
    if words is None:
        made = domains_of(scores, internal, external)
        assert (made.external == ~made.internal).all() and "all other slides are external" in made.rule
    else:
        with pytest.raises(UserError, match=words):
            domains_of(scores, internal, external)


def test_a_patient_on_both_sides_and_an_odd_domain_are_refused():
    table = draw_patch_scores(PatchWorld(internal=6, external=5, models=1), np.random.default_rng(0))
    shared = table.assign(patient_id=table["patient_id"].str.replace("out-001", "in-001"))
    with pytest.raises(UserError, match="1 patients have internal and external slides"):
        domains_of(scores := read_patch_scores(shared), None, None) and scores
    odd = table.assign(domain=table["domain"].str.replace("OOD", "elsewhere"))
    with pytest.raises(UserError, match="column domain holds 'elsewhere'"):
        domains_of(read_patch_scores(odd))
    with pytest.raises(UserError, match="not known which slides"):
        domains_of(read_patch_scores(table.drop(columns="domain")))


def test_margins_are_declared():
    assert parse_margins(["0.05"]) == {"dice": 0.05, "fpr": 0.05}
    assert parse_margins(["study", "fpr=0.01"]) == {"dice": "study", "fpr": 0.01}
    for bad, words in (
        (["-1"], "above 0"),
        (["x"], "not a number"),
        (["auc=1"], "auc"),
        ([], "no margin was given"),
    ):
        with pytest.raises(UserError, match=words):
            parse_margins(bad)


def test_a_margin_from_one_model_cannot_be_made():
    made = by_fold(np.array([[0.5, 0.6]]), np.array([[0.5, 0.4]]), margin="study", alpha=0.05)
    assert made.margin is None and "fewer than two models" in made.reason


def test_the_threshold_is_fixed_on_internal_slides_and_chosen_again_in_resamples():
    scores = world(thresholds=(0.2, 0.5, 0.8), models=2, fpr=0.05, fpr_ratio=4.0)
    domains = domains_of(scores)
    kept, rows = carry_thresholds(scores, domains, Resampling(key="t", resamples=150))
    assert len(kept.variants) == 2 and len(scores.variants) == 6
    assert [row["threshold"] for row in rows] == [0.5, 0.5]
    assert all(row["best_external_threshold"] >= row["threshold"] for row in rows)
    assert all(
        0.5 < row["chosen_again"] <= 1 and row["dice_refitted_lo"] < row["dice_refitted_hi"] for row in rows
    )
    part = judged(scores)
    assert part["operating_points"][0]["threshold"] == 0.5 and part["rows"][0]["threshold"] == 0.5


def test_models_with_other_thresholds_are_named():
    table = draw_patch_scores(
        PatchWorld(internal=6, external=5, models=2, thresholds=(0.3, 0.5)), np.random.default_rng(0)
    )
    table = table[~((table["model"] == "histopathology-0") & (table["threshold"] == 0.3))]
    scores = read_patch_scores(table)
    with pytest.raises(
        UserError, match="1 models have other thresholds than the others, such as histopathology-0"
    ):
        carry_thresholds(scores, domains_of(scores), Resampling(key="t", resamples=0))


def test_the_fifteen_ensembles_of_the_study():
    on_tumour = ["histopathology-0", "histopathology-40", "imagenet-0", "imagenet-50", "single-natural"]
    on_normal = [
        "histopathology-0",
        "histopathology-natural",
        "imagenet-natural",
        "single-30",
        "single-natural",
    ]
    shares = ("0", "10", "20", "30", "40", "50", "natural")
    names = [f"{c}-{s}" for c in ("histopathology", "imagenet", "single") for s in shares]
    made = study_ensembles(names, on_tumour=on_tumour, on_normal=on_normal, rng=np.random.default_rng(0))
    sizes = {one.name: len(one.members) for one in made}
    assert len(made) == 15
    assert sizes == {
        "Generalising": 8,
        "Non-Generalising (8)": 8,
        "Generalising (T&N)": 2,
        "Generalising (T)": 5,
        "Generalising (N)": 5,
        "Natural %": 3,
        **{f"{share} %": 3 for share in (0, 10, 20, 30, 40, 50)},
        "histopathology": 7,
        "imagenet": 7,
        "single": 7,
    }
    both = next(one for one in made if one.name == "Generalising (T&N)")
    assert both.is_and and set(both.members) == {"histopathology-0", "single-natural"}
    lost = next(one for one in made if one.name.startswith("Non"))
    assert not set(lost.members) & {*on_normal, *on_tumour} and "13" in lost.rule


def test_halves_divide_patients_and_cover_both_domains():
    scores = world(slides_per_patient=2)
    domains = domains_of(scores)
    first, second = halves(scores, domains, np.random.default_rng(0))
    assert not (first & second).any() and (first | second).all()
    people = scores.patient_of_part
    assert not set(people[first]) & set(people[second])
    assert first[domains.internal].sum() == 30 and first[domains.external].sum() == 20


def test_a_choice_by_noise_beats_random_on_its_own_patients_and_not_on_others():
    """Models that differ by noise alone: over worlds, the null's p is low where the choice saw the patients."""
    own, others = [], []
    for seed in range(12):
        scores = world(seed=seed, models=21, model_spread=0.0, fold_spread=0.1, model_noise=1.0, internal=40)
        part = judged(scores, margins={"dice": "study", "fpr": "study"}, ensembles=True, resamples=0)
        for row in part["ensembles"]["rows"]:
            if row["name"] == "Generalising (T)":
                (others if row["members_scored"] == "other patients" else own).append(row["dice_p"])
    assert len(own) >= 6 and len(others) >= 4
    assert np.mean(own) < 0.2 and np.mean(others) > 0.3


def test_the_smallest_object_is_part_of_the_operating_point():
    table = draw_patch_scores(
        PatchWorld(internal=20, external=15, models=2, folds=2), np.random.default_rng(0)
    )
    specks = table.assign(smallest_object_mm=0.0)
    cleaned = table.assign(
        smallest_object_mm=0.2, sum_fpr=table["sum_fpr"] / 2, sum_fpr2=table["sum_fpr2"] / 2
    )
    scores = read_patch_scores(pd.concat([specks, cleaned], ignore_index=True))
    kept, rows = carry_thresholds(scores, domains_of(scores), Resampling(key="t", resamples=0))
    assert [row["smallest_object_mm"] for row in rows] == [0.2, 0.2] and len(kept.variants) == 2
    assert operating_point(rows[0]) == "smallest object 0.2 mm" and "threshold" not in rows[0]


def test_without_tumour_patches_the_models_are_not_assessed_and_the_summary_says_so():
    table = draw_patch_scores(PatchWorld(internal=20, external=15, models=2), np.random.default_rng(0))
    scores = read_patch_scores(table.assign(n_tumour=0, sum_dice=0.0, sum_dice2=0.0))
    options = GeneraliseOptions(margins={"dice": 0.1, "fpr": 0.5}, resamples=0)
    summary = judge_models(scores, domains_of(scores), options).summary
    assert {row["metric"] for row in summary["generalise"]["rows"]} == {"fpr"}
    assert {row["verdict"] for row in summary["generalise"]["rows"]} == {"EQUIVALENT"}
    assert {row["verdict"] for row in summary["generalise"]["models"]} == {"NOT ASSESSED"}
    assert any(
        "Dice, tumour patches: NOT ASSESSED, no slide has such a patch" in w for w in summary["warnings"]
    )
