"""`accept`: from a vendor's csv and a claim to a verdict and an exit code."""

from __future__ import annotations

import json
import tomllib
from itertools import count

import numpy as np
import pandas as pd
import pytest

from worlds.task_files import binary_tables, write_pair

CLAIM = """
model = "Vendor X 2.1"
task = "classification"
threshold = 0.5
aim = "{aim}"
[population]
{population}
[[primary]]
metric = "{metric}"
value = {value}
margin = {margin}
margin_source = "the board of the department"
{more}
"""


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    """400 patients, on whom the model's AUROC is near 0.92."""
    return write_pair(tmp_path_factory.mktemp("hospital"), *binary_tables(patients=400, strength=2.0))


@pytest.fixture
def judged(run, hospital, tmp_path):
    """`judged(value=..., margin=...)` writes a claim in a folder of its own and judges it on the hospital's cases."""
    folders = (tmp_path / f"claim{i}" for i in count())

    def judge(
        *, metric="auroc", value=0.9, margin=0.05, aim="equivalence", population="", more="", files=hospital
    ):
        claim = next(folders) / "claim.toml"
        claim.parent.mkdir()
        claim.write_text(
            CLAIM.format(metric=metric, value=value, margin=margin, aim=aim, population=population, more=more)
        )
        return run("accept", files.cohort, files.predictions, "--claim", claim, "--resamples", 200, "--json")

    return judge


def value_of(run, files, metric, tmp_path):
    done = run(
        "score",
        "classification",
        files.cohort,
        files.predictions,
        "--resamples",
        0,
        "--out",
        tmp_path / "v",
        "--json",
    )
    return done.json["metrics"][metric]["value"]


def test_equivalent_is_0(judged, run, hospital, tmp_path):
    here = value_of(run, hospital, "auroc", tmp_path)
    done = judged(value=round(here, 3), margin=0.05)
    assert done.code == 0
    verdict = done.json["verdict"]
    assert (verdict["word"], verdict["exit_code"]) == ("EQUIVALENT", 0)
    claim = verdict["claims"][0]
    assert claim["here"] == pytest.approx(here, abs=1e-12)
    assert -0.05 < claim["lo"] < claim["difference"] < claim["hi"] < 0.05
    assert claim["margin_source"] == "the board of the department"
    assert claim["smallest_detectable_drop"] > 0
    assert claim["smallest_provable_margin"] > 0


def test_below_is_2(judged):
    done = judged(value=0.999, margin=0.02)
    assert done.code == 2
    assert done.json["verdict"]["word"] == "BELOW"


def test_above_is_0(judged):
    done = judged(value=0.7, margin=0.05)
    assert done.code == 0
    assert done.json["verdict"]["word"] == "ABOVE"


def test_inconclusive_is_3(judged, tmp_path):
    few = write_pair(tmp_path / "few", *binary_tables(patients=24, strength=1.5))
    done = judged(value=0.85, margin=0.02, files=few)
    assert done.code == 3
    assert done.json["verdict"]["word"] == "INCONCLUSIVE"
    assert done.json["verdict"]["claims"][0]["out_of_reach"] is True


@pytest.mark.parametrize("metric", ["ppv", "auprc", "f1"])
def test_a_metric_that_moves_with_prevalence_needs_the_sources(judged, metric):
    done = judged(metric=metric, value=0.85, margin=0.2)
    assert done.code == 4
    verdict = done.json["verdict"]
    assert verdict["word"] == "NOT ASSESSED"
    assert "prevalence" in verdict["claims"][0]["reason"]
    done = judged(metric=metric, value=0.85, margin=0.2, population="prevalence_of_source = 0.4")
    assert done.json["verdict"]["word"] != "NOT ASSESSED", done.json["verdict"]
    assert done.code in (0, 2, 3)


def test_non_inferior_as_claimed_is_0(judged, run, hospital, tmp_path):
    here = value_of(run, hospital, "auroc", tmp_path)
    equivalence = judged(value=here - 0.045, margin=0.05)
    assert equivalence.code == 3
    done = judged(value=here - 0.045, margin=0.05, aim="non-inferiority")
    assert done.code == 0
    assert done.json["verdict"]["claims"][0]["non_inferior"] is True


def test_subgroup_claims_are_judged(judged):
    block = (
        '[[subgroup]]\nvariable = "breast_density"\ngroup = "{}"\nmetric = "auroc"\nvalue = {}\nmargin = 0.2\n'
        'margin_source = "the board"'
    )
    fine = judged(value=0.9, margin=0.1, more=block.format("a", 0.9))
    assert fine.code == 0, fine.said
    claims = fine.json["verdict"]["claims"]
    assert len(claims) == 2
    assert "breast_density" in claims[1]["group"]
    assert "breast_density" in fine.json["groups"]
    absent = judged(value=0.9, margin=0.1, more=block.format("z", 0.9))
    assert absent.code == 4
    assert "z" in absent.json["verdict"]["claims"][1]["reason"]
    unknown = judged(more=block.format("a", 0.9).replace("breast_density", "densty"))
    assert unknown.code == 64
    assert "densty" in unknown.json["error"]


def test_clinical_numbers_count_a_patient_once(run, tmp_path):
    """A patient with a benign and a malignant case stands behind both rates, and is one patient."""
    cases, said = binary_tables(patients=200)
    cases["label"] = np.arange(len(cases)) % 2
    files = write_pair(tmp_path, cases, said)
    claim = tmp_path / "claim.toml"
    claim.write_text(
        CLAIM.format(metric="auroc", value=0.6, margin=0.1, aim="equivalence", population="", more="")
    )
    done = run("accept", files.cohort, files.predictions, "--claim", claim, "--resamples", 50, "--json").json
    for name in ("ppv", "npv", "recall_rate"):
        assert done["clinical"][name]["patients"] == done["counts"]["patients"] == 200
        assert done["clinical"][name]["cases"] == done["counts"]["cases"]


def test_verification_and_clinical_numbers(judged):
    more = '[outcomes]\nverified_by = "biopsy of recalled cases"\nonly_biopsied = true'
    done = judged(population="prevalence_of_use = 0.006", more=more)
    clinical = done.json["clinical"]
    assert clinical["verification"] == "biopsy of recalled cases"
    assert clinical["prevalence_source"].startswith("the claim")
    assert 0 < clinical["ppv"]["value"] < 0.5
    assert clinical["npv"]["value"] > 0.99
    assert {"recall_rate", "net_benefit"} <= set(clinical)
    assert any("biopsied" in line for line in done.json["warnings"])
    assert done.json["operating_point"]["threshold"] == 0.5


BAD_CLAIMS = {
    "marginn = 1": ("marginn", "margin"),
    "[outcome]\nx = 1": ("outcome", "outcomes"),
    "[predictions]\nscale = 7": ("scale",),
    "[predictions]\nnormalise_ids = 'zeros'": ("normalise_ids",),
    "[predictions]\ndecimal = ';'": ("decimal",),
    "[[subgroup]]\nmetric = 'auroc'\nvalue = 0.9\nmargin = 0.1": ("variable",),
    "[[primary]]\nmetric = 'aurok'\nvalue = 0.9\nmargin = 0.1": ("aurok", "auroc"),
    "[[primary]]\nmetric = 'auroc'\nvalue = 0.9\nmargin = -0.1": ("margin",),
    "[[primary]]\nmetric = 'auroc'\nvalue = 0.9": ("margin",),
    "[[primary]]\nmetric = 'auroc'\nvalue = 'high'\nmargin = 0.1": ("value",),
    "[[primary]]\nmetric = 'auroc'\nvalue = 0.9\nlo = 0.95\nhi = 0.97\nmargin = 0.1": ("lo",),
    "[[primary]]\nmetric = 'auroc'\nvalue = 0.9\nn = 'many'\nmargin = 0.1": ("n must",),
    "[[primary]]\nmetric = 'auroc'\nvalue = 0.9\nn = 1\nmargin = 0.1": ("n is 1", "how certain"),
    "[[primary]]\nmetric = 'auroc'\nvalue = 0.9\nlo = 0\nhi = 1\nmargin = 0.1": ("every possible value",),
    "[[primary]]\nmetric = 'auroc'\nvalue = 0.9\nlo = 0.9\nhi = 0.9\nmargin = 0.1": ("without any width",),
    "[[primary]]\nmetric = 'auroc'\nvalue = 0.9\nmargin = inf": ("finite",),
    "[predictions]\nfailed_status = 'released'": ("failed_status",),
    "[subgroups]\ndescribe = ['sit']": ("sit",),
    "= =": ("TOML",),
}


@pytest.mark.parametrize("more", list(BAD_CLAIMS))
def test_a_claim_that_cannot_be_understood(judged, more):
    done = judged(more=more)
    assert done.code == 64, done.said
    message = json.dumps(done.json)
    for word in BAD_CLAIMS[more]:
        assert word in message
    assert "claim.toml" in message


def test_prevalence_must_be_a_share(judged):
    assert judged(population="prevalence_of_source = 20").code == 64


def test_init_writes_a_claim_that_reads(run, tmp_path, hospital):
    claim = tmp_path / "claims" / "claim.toml"
    done = run("accept", "--init", "--claim", claim, "--json")
    assert done.code == 0
    assert done.json == {"written": str(claim)}
    assert tomllib.loads(claim.read_text())["primary"][0]["metric"] == "auroc"
    again = run("accept", "--init", "--claim", claim)
    assert again.code == 64
    assert "exists" in again.err
    uncommented = "\n".join(
        line[2:] if line.startswith("# ") and ("=" in line or line.startswith("# [[")) else line
        for line in claim.read_text().splitlines()
        if "protocols` lists" not in line
    )
    tomllib.loads(uncommented)
    assert run("accept").code == 64
    absent = run("accept", hospital.cohort, hospital.predictions, "--claim", tmp_path / "none.toml")
    assert absent.code == 64
    assert "--init" in absent.err


def fill_in(text, *, value=0.9, margin=0.05, source="the board of the department"):
    """The template's empty fields of the first block; None leaves one as it is."""
    for key, given in (("value", value), ("margin", margin), ("margin_source", source)):
        if given is not None:
            text = text.replace(
                f'{key} = ""', f'{key} = "{given}"' if key == "margin_source" else f"{key} = {given}", 1
            )
    return text


@pytest.mark.parametrize(
    "left", [("value", "margin", "margin_source"), ("value",), ("margin",), ("margin_source",)]
)
def test_a_template_is_not_assessed_until_it_is_filled_in(run, tmp_path, hospital, left):
    """Nobody claimed the examples of a template: without the number, the margin or its source, no verdict."""
    claim = tmp_path / "claim.toml"
    run("accept", "--init", "--claim", claim)
    empty = {"source" if name == "margin_source" else name: None for name in left}
    text = claim.read_text()
    claim.write_text(fill_in(text, **empty))
    done = run("accept", hospital.cohort, hospital.predictions, "--claim", claim, "--resamples", 0, "--json")
    assert done.code == 4, done.said
    verdict = done.json["verdict"]
    assert verdict["word"] == "NOT ASSESSED"
    assert all(name in verdict["reason"] for name in left)
    assert "not filled in" in verdict["reason"]
    claim.write_text(fill_in(text))
    filled = run(
        "accept", hospital.cohort, hospital.predictions, "--claim", claim, "--resamples", 0, "--json"
    )
    assert filled.code in (0, 2, 3)
    assert filled.json["claim_lock"]["changed"] is False
    assert any("already shown" in line for line in filled.json["warnings"])


def test_a_claim_that_says_hardly_anything_is_told_so(judged):
    """A claim with a very wide interval can be neither confirmed nor contradicted: the report says so."""
    vague = judged(value=0.9, more="lo = 0.3\nhi = 0.99")
    assert any("reaches further than the margin" in w for w in vague.json["verdict"]["claims"][0]["warnings"])
    firm = judged(value=0.9, more="lo = 0.89\nhi = 0.91")
    assert not any("reaches further" in w for w in firm.json["verdict"]["claims"][0]["warnings"])


def test_a_new_user_with_a_messy_vendor_file(run, tmp_path):
    """Other column names, a 0-100 scale, ids without their zeros and in small letters, several views an
    exam, semicolons, decimal commas, umlauts, and some that could not be analysed."""
    rng = np.random.default_rng(11)
    n = 300
    truth = np.arange(n) % 3 == 0
    ids = [f"00{i:04d}X" for i in range(1, n + 1)]
    pd.DataFrame(
        {
            "case_id": ids,
            "patient_id": [f"P{i}" for i in range(n)],
            "label": np.where(truth, "malignant", "benign"),
        }
    ).to_csv(tmp_path / "outcomes.csv", index=False)
    lines = ["Zugangsnr;Ansicht;KI-Wert;Gerät"]
    for i in range(n):
        for view in ("CC", "MLO"):
            score = 100 / (1 + np.exp(-(3.0 * (truth[i] - 0.5) + rng.normal(0, 1))))
            cell = f"{score:.1f}".replace(".", ",")
            if i in (4, 5):
                cell = "Could not be analysed"
            lines.append(f" {ids[i].lstrip('0').lower()};{view};{cell};Röntgen")
    vendor = tmp_path / "vendor.csv"
    vendor.write_bytes("\n".join(lines).encode("cp1252"))
    claim = tmp_path / "claim.toml"
    assert run("accept", "--init", "--claim", claim).code == 0
    arguments = ("accept", tmp_path / "outcomes.csv", vendor, "--claim", claim, "--out", tmp_path / "verdict")
    refused = run(*arguments)
    assert refused.code == 64
    assert "--encoding" in refused.err
    text = claim.read_text()
    text = text.replace(
        '# map = { case_id = "Accession", score = "AI score" }',
        'map = { exam_id = "Zugangsnr", score = "KI-Wert" }',
    )
    text = (
        text.replace('scale = "0-1"', 'scale = "0-100"')
        .replace("# unit", "unit")
        .replace("# combine", "combine")
    )
    text = fill_in(text, value=0.97)
    text = text.replace("# encoding", "encoding").replace('"latin-1"', '"cp1252"')
    text = text.replace("# delimiter", "delimiter").replace("# decimal", "decimal")
    claim.write_text(text)
    refused = run(*arguments)
    assert refused.code == 64
    assert "--normalise-ids" in refused.err, refused.err
    claim.write_text(text.replace("# normalise_ids", "normalise_ids"))
    done = run(*arguments, "--resamples", 100, "--json")
    summary = done.json
    assert done.code == summary["verdict"]["exit_code"] == 0, summary["verdict"]
    assert summary["counts"]["not_analysable"] == 2
    assert summary["counts"]["scored"] == n - 2
    assert summary["metrics"]["auroc"]["answered_only"] > summary["metrics"]["auroc"]["value"]
    assert summary["claim_lock"]["changed"] is False, "a run that ended in an error brands nothing"
    assert len(summary["claim_lock"]["history"]) == 1
    assert any(f"{2 * n} rows became {n} exams" in step["why"] for step in summary["flow"])
    page = (tmp_path / "verdict" / "report.html").read_text()
    assert summary["verdict"]["word"] in page
    text = run("accept", *arguments[1:5], "--resamples", 50)
    assert f"verdict: {summary['verdict']['word']}" in text.out


def test_command_line_over_claim(run, hospital, tmp_path):
    said = pd.read_csv(hospital.predictions)
    said.assign(probability=100 * said["probability"]).to_csv(tmp_path / "p.csv", index=False)
    claim = tmp_path / "claim.toml"
    run("accept", "--init", "--claim", claim)
    arguments = ("accept", hospital.cohort, tmp_path / "p.csv", "--claim", claim, "--resamples", 0, "--json")
    assert run(*arguments).code == 64
    assert run(*arguments, "--scale", "0-100").code == 4
    claim.write_text(fill_in(claim.read_text()))
    assert run(*arguments, "--scale", "0-100").code in (0, 2, 3)


def test_a_claim_may_name_the_words_of_failure(run, judged, hospital, tmp_path):
    """`failed_status` of the claim, and `--failed-status` over it."""
    said = pd.read_csv(hospital.predictions)
    files = write_pair(
        tmp_path / "words",
        pd.read_csv(hospital.cohort),
        said.assign(status=["Abbruch", "Stau"] + ["done"] * (len(said) - 2)),
    )
    plain = judged(files=files)
    assert plain.json["counts"]["not_analysable"] == 0
    assert any("'Abbruch'" in line for line in plain.json["warnings"])
    named = judged(files=files, more='[predictions]\nfailed_status = ["Abbruch", "Stau"]')
    assert named.json["counts"]["not_analysable"] == 2
    assert named.json["claim_lock"]["history"][0]["reading"]["failed_status"] == "Abbruch, Stau"
    claim = tmp_path / "claim.toml"
    claim.write_text((tmp_path / "claim1" / "claim.toml").read_text())
    over = run(
        "accept",
        files.cohort,
        files.predictions,
        "--claim",
        claim,
        "--failed-status",
        "stau",
        "--resamples",
        0,
        "--json",
    )
    assert over.json["counts"]["not_analysable"] == 1


@pytest.mark.parametrize("task", ["response", "segmentation", "detection", "slides"])
def test_every_task_can_be_claimed(task, results, run, tmp_path):
    files, _, scored = results(task)
    metric = scored.json["headline"]
    claim = tmp_path / "claim.toml"
    claim.write_text(
        f'task = "{task}"\n[[primary]]\nmetric = "{metric}"\nvalue = {scored.json["metrics"][metric]["value"]}\nmargin = 0.9\n'
        'margin_source = "a test"\n'
    )
    done = run(
        "accept",
        files.cohort,
        files.predictions,
        "--claim",
        claim,
        "--resamples",
        50,
        "--out",
        tmp_path / "o",
        "--json",
    )
    assert done.code in (0, 3, 4), done.said
    assert done.json["verdict"]["claims"][0]["difference"] in (None, pytest.approx(0, abs=1e-9))


def test_a_claim_outside_the_domain_is_warned_about(judged, tmp_path):
    """Thirty patients with a handful of positives: the claim itself carries the sentence, not only the metric."""
    files = write_pair(tmp_path / "few", *binary_tables(patients=30, strength=2.0))
    claim = judged(files=files).json["verdict"]["claims"][0]
    assert any(text.startswith("Outside the domain") for text in claim["warnings"])
    plenty = judged().json["verdict"]["claims"][0]
    assert not any("Outside the domain" in text for text in plenty["warnings"])
