"""A claim's lock: it accuses nobody who mended a typo, and a claim changed after a verdict is shown for what it is."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from elsewhere.analysis.result.claim import read_claim
from elsewhere.analysis.result.claim_lock import ShownVerdict, look_back
from worlds.task_files import binary_tables, write_pair

CLAIM = """
model = "{model}"
task = "classification"
threshold = 0.5
[predictions]
scale = "{scale}"
[[primary]]
metric = "auroc"
value = {value}
margin = {margin}
margin_source = "{source}"
"""


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    """300 patients, on whom the model's AUROC is near 0.92."""
    return write_pair(tmp_path_factory.mktemp("hospital"), *binary_tables(patients=300, strength=2.0))


@pytest.fixture
def judge(run, hospital, tmp_path):
    """`judge(margin=..., claim="other.toml")` writes that claim and judges it."""

    def judged(
        *arguments,
        claim="claim.toml",
        model="Vendor X",
        scale="0-1",
        value=0.99,
        margin=0.03,
        source="the board",
        more="",
        files=hospital,
    ):
        path = tmp_path / claim
        path.parent.mkdir(exist_ok=True)
        text = CLAIM.format(model=model, scale=scale, value=value, margin=margin, source=source)
        path.write_text(more + text)
        return run(
            "accept", files.cohort, files.predictions, "--claim", path, "--resamples", 0, "--json", *arguments
        )

    return judged


def test_a_typo_that_ends_in_an_error_brands_nothing(judge, run, hospital, tmp_path):
    """Nothing is locked before a verdict is shown: not by a wrong scale, a wrong metric or a cohort that is absent."""
    assert judge(scale="0-10O").code == 64
    assert judge(value=1.7).code == 64
    assert not (tmp_path / "claim.toml.lock").exists()
    first = judge()
    assert first.code == 2
    lock = first.json["claim_lock"]
    assert lock["changed"] is False
    assert lock["changes"] == []
    assert len(lock["history"]) == 1
    assert (tmp_path / "claim.toml.lock").exists()


def test_the_same_claim_again_is_the_same(judge):
    first, second = judge(), judge()
    assert second.code == 2
    assert second.json["claim_lock"]["locked_at"] == first.json["claim_lock"]["locked_at"]
    assert second.json["claim_lock"]["changed"] is False


def test_a_wider_margin_after_the_verdict_ends_with_6_and_says_what_changed(judge, run, hospital, tmp_path):
    """The margin from 0.03 to 0.3 after BELOW gives EQUIVALENT, and never again exit 0."""
    assert judge(margin=0.03).code == 2
    moved = judge("--out", tmp_path / "verdict", margin=0.3)
    assert moved.code == 6
    assert moved.json["verdict"]["word"] == "EQUIVALENT"
    assert moved.json["verdict"]["exit_code"] == 0
    lock = moved.json["claim_lock"]
    assert lock["changed"] is True
    assert lock["changes"] == [{"field": "auroc margin", "before": 0.03, "now": 0.3}]
    assert lock["changed_since"]["verdict"] == "BELOW"
    assert lock["changed_since"]["time"] == lock["history"][0]["time"]
    page = (tmp_path / "verdict" / "report.html").read_text()
    assert "What changed since the first verdict" in page
    assert "auroc margin" in page
    text = run(
        "accept", hospital.cohort, hospital.predictions, "--claim", tmp_path / "claim.toml", "--resamples", 0
    )
    assert text.code == 6
    assert "auroc margin: 0.03, now 0.3" in text.out
    back = judge(margin=0.03)
    assert back.code == 2, "the first claim is the one that counts"
    assert any("other claim was judged" in line for line in back.json["claim_lock"]["sentences"])


def test_a_copy_of_the_claim_is_noticed(judge, tmp_path):
    """`cp claim.toml claim2.toml` with another margin: the same folder, the same cohort and predictions."""
    assert judge().code == 2
    copied = judge(claim="claim2.toml", margin=0.3)
    assert copied.code == 6
    assert copied.json["claim_lock"]["changed_since"]["claim_file"] == "claim.toml"


def test_the_result_that_is_replaced_tells_of_the_earlier_claim(judge, tmp_path):
    """With the lock removed, the folder given as --out still knows what was claimed."""
    out = tmp_path / "verdict"
    assert judge("--out", out).code == 2
    kept = tmp_path / "kept"
    shutil.copytree(out, kept)
    (tmp_path / "claim.toml.lock").unlink()
    path = tmp_path / "claim.toml"
    path.write_text(path.read_text().replace("margin = 0.03", "margin = 0.3"))
    claim = read_claim(path)
    before = json.loads((kept / "summary.json").read_text())["claim_lock"]["history"][0]
    now = ShownVerdict(
        **{**before, "digest": claim.digest, "claimed": claim.claimed(), "verdict": "EQUIVALENT"}
    )
    assert look_back(path, now, kept).changed
    assert not look_back(path, now).changed


def test_other_cases_are_another_question(judge, tmp_path):
    """Next year's cohort under a new claim is honest; that the claim differs on the same predictions is said."""
    assert judge().code == 2
    cases, said = binary_tables(patients=280, strength=2.0, seed=5)
    other = write_pair(tmp_path / "next", cases, said)
    assert judge(margin=0.3, files=other).code == 0
    both = write_pair(tmp_path / "both", *binary_tables(patients=300, strength=2.0), name="again")
    both.predictions.write_text(both.predictions.read_text() + "\n")
    noted = judge(margin=0.3, files=both)
    assert noted.code == 0
    assert any("this cohort with other predictions" in line for line in noted.json["claim_lock"]["sentences"])


def test_two_claims_about_two_sites_are_two_claims(judge):
    """North and South share no case: neither is a change of the other. A part chosen after a verdict on all is."""
    assert judge(more='where = { site = "north" }').code in (2, 3)
    south = judge(claim="south.toml", more='where = { site = "south" }')
    assert south.code in (2, 3)
    assert any("other cases of this cohort" in line for line in south.json["claim_lock"]["sentences"])
    assert judge(claim="all.toml").code == 6


def test_reading_options_and_descriptions_are_kept_apart(judge, run, hospital, tmp_path):
    """How the file is read, and the model's name, may be mended without changing the claim; both are recorded."""
    first = judge()
    named = judge(model="Vendor X, version 2")
    assert named.code == first.code == 2
    assert named.json["claim_lock"]["digest"] == first.json["claim_lock"]["digest"]
    assert named.json["claim_lock"]["changed"] is False
    assert named.json["claim_lock"]["description_changes"] == [
        {"field": "model", "before": "Vendor X", "now": "Vendor X, version 2"}
    ]
    turned = judge(scale="1-0")
    assert turned.json["claim_lock"]["changed"] is False
    assert {"field": "scale", "before": "0-1", "now": "1-0"} in turned.json["claim_lock"]["reading_changes"]
    assert any("Options of reading" in line for line in turned.json["warnings"])


def test_a_changed_source_of_the_margin_is_a_changed_claim(judge):
    assert judge().code == 2
    assert judge(source="the vendor").code == 6


def test_notes_of_any_kind_can_be_kept(judge, tmp_path):
    """What describes the outcomes may be a list or a date: the lock that holds it can be read again."""
    more = '[outcomes]\nnotes = ["a", 2024-01-01]\nfollow_up_months = 24.5\n'
    path = tmp_path / "claim.toml"
    assert judge(source='x"\n' + more + '[subgroups]\n# "').code == 2
    assert "2024" in path.read_text()
    again = judge(source='x"\n' + more + '[subgroups]\n# "')
    assert again.code == 2
    assert again.json["claim_lock"]["description_changes"] == []


def test_what_defaults_mean_is_part_of_the_claim(tmp_path):
    """Writing a default out is no change."""
    path = tmp_path / "claim.toml"
    path.write_text('[[primary]]\nmetric = "auroc"\nvalue = 0.9\nmargin = 0.05\nmargin_source = "x"\n')
    short = read_claim(path).digest
    path.write_text('alpha = 0.05\naim = "equivalence"\ntask = "classification"\n' + path.read_text())
    assert read_claim(path).digest == short


def test_a_verdict_that_could_not_be_saved_is_not_locked(judge, tmp_path, monkeypatch):
    """The lock follows what was shown: where saving fails, nothing is locked and nothing is left behind."""
    from elsewhere.results import Result

    def fail(self, out):
        raise OSError("no space left")

    monkeypatch.setattr(Result, "save", fail)
    assert judge("--out", tmp_path / "verdict").code != 2
    assert [p.name for p in tmp_path.iterdir() if "lock" in p.name] == []


BROKEN = {
    "empty": "",
    "no json": "{",
    "a list": "[]",
    "of an earlier version": '{"claim": "claim.toml", "history": [{"digest": "x", "time": "2026-01-01T00:00:00+00:00"}]}',
    "no history": '{"elsewhere_claim_lock": 2}',
    "a history of numbers": '{"elsewhere_claim_lock": 2, "history": [1]}',
    "deep": "[" * 100_000,
    "not utf-8": b"\xff\xfe",
}


@pytest.mark.parametrize("content", list(BROKEN))
def test_a_lock_that_cannot_be_understood_is_refused_by_name(judge, tmp_path, content):
    text = BROKEN[content]
    lock = tmp_path / "claim.toml.lock"
    lock.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = judge()
    assert done.code == 64, done.said
    assert "claim.toml.lock" in done.json["where"]


@pytest.mark.parametrize(
    "change",
    [
        {"time": "yesterday"},
        {"time": "2026-01-01T00:00:00"},
        {"time": "0001-01-01T00:00:00+14:00"},
        {"verdict": 3},
        {"verdict": "x" * 100_000},
        {"judged": "yes"},
        {"claimed": {"auroc margin": [0.05]}},
        {"claimed": {"auroc margin": 10**400}},
        {"reading": None},
    ],
)
def test_a_lock_with_a_broken_entry_is_refused_by_name(judge, tmp_path, change):
    """Whatever was edited in a lock: a clear refusal, never a traceback, and never a silent comparison."""
    assert judge().code == 2
    lock = tmp_path / "claim.toml.lock"
    content = json.loads(lock.read_text())
    content["history"][0] |= change
    lock.write_text(json.dumps(content))
    done = judge(margin=0.3)
    assert done.code == 64, done.said
    assert "claim.toml.lock" in done.json["where"]


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_lock_that_is_no_plain_file_is_refused(judge, tmp_path, kind):
    lock = tmp_path / "claim.toml.lock"
    lock.mkdir() if kind == "folder" else os.mkfifo(lock)
    assert judge().code == 64


def test_lock_files_of_other_programs_are_left_alone(judge, tmp_path):
    """A poetry.lock beside the claim is none of ours; one of ours that is damaged is named."""
    (tmp_path / "poetry.lock").write_text("[[package]]\n")
    (tmp_path / "old.toml.lock").write_text('{"elsewhere_claim_lock": 2, "history": 1}')
    os.mkfifo(tmp_path / "pipe.lock")
    done = judge()
    assert done.code == 2
    assert done.json["claim_lock"]["sentences"] == ["old.toml.lock could not be read, and was not compared."]
