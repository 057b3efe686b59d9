"""From `phantom tomosynthesis` to the audit of `cohort read bcs-dbt --volumes`: what was planted is named."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pydicom", reason="needs the extra 'volumes'")
pytest.importorskip("imagecodecs", reason="needs the extra 'volumes'")

from elsewhere.cli import main


@pytest.fixture(scope="module")
def audited(tmp_path_factory) -> tuple[dict, dict]:
    folder = tmp_path_factory.mktemp("world")
    for words in (
        ["phantom", "tomosynthesis", str(folder / "world"), "--vendors", "A,B", "--patients", "8"],
        ["cohort", "read", "bcs-dbt", str(folder / "world"), "--volumes", "--out", str(folder / "cohort")],
    ):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert not stop.value.code
    from elsewhere.commands.cohort import read

    found = read("bcs-dbt", folder / "world", volumes=True, out=folder / "again").to_dict()
    return found, json.loads((folder / "world" / "planted.json").read_text())


def counted(audit: list[dict], words: str) -> int:
    (finding,) = [one for one in audit if words in one["message"]]
    return int(finding["message"].partition(" ")[0])


def test_the_audit_names_what_was_planted(audited):
    found, planted = audited
    audit, faults = found["audit"], planted["faults"]
    assert counted(audit, "a lesion's box on the background") == 1
    assert counted(audit, "another number of slices") == 1
    assert counted(audit, "turned by 180 degrees") == len(faults["turned"])
    assert counted(audit, "laterality tag of another side than the view's name") == len(
        {*faults["left_tags_as_published"], *faults["wrong_tags"]}
    )


def test_a_world_is_not_compared_with_the_published_set(audited):
    found, _ = audited
    assert "synthetic" in found["id_grades"]["BCS-DBT"]["why"]
    assert not any("published" in one["message"] for one in found["audit"])
