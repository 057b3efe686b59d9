"""Every rule id has one sentence, and the page of rules finds the modules and tests that name it."""

from __future__ import annotations

import ast
import importlib.util
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def rules() -> ModuleType:
    from pathlib import Path

    spec = importlib.util.spec_from_file_location(
        "rules_page", Path(__file__).resolve().parents[2] / "docs" / "rules_page.py"
    )
    rules_page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules_page)
    return rules_page


def test_every_id_of_the_source_has_a_sentence(rules):
    missing = rules.written_ids(rules.SOURCE) - set(rules.sentences())
    assert not missing, f"write a sentence for {sorted(missing)} in src/elsewhere/rules.csv"


def test_every_sentence_is_of_an_id_that_is_written_somewhere(rules):
    unused = set(rules.sentences()) - rules.written_ids(rules.SOURCE, rules.TESTS)
    assert not unused, f"nothing names {sorted(unused)}: take them out of src/elsewhere/rules.csv"


def test_each_id_stands_once_in_order_with_one_sentence_without_ids(rules):
    lines = rules.SENTENCES.read_text(encoding="utf-8").splitlines()[1:]
    ids = [line.split(",")[0] for line in lines]
    assert ids == sorted(set(ids))
    for rule, sentence in rules.sentences().items():
        assert rules.ID.fullmatch(rule), rule
        assert rule.split("-")[0] in rules.TOPICS, rule
        assert sentence[0].isupper() and sentence.endswith("."), rule
        assert ". " not in sentence and len(sentence) <= 260, rule
        assert not rules.ID.search(sentence), rule


def test_a_span_counts_for_every_rule_between_its_ends(rules):
    assert rules.ids_in("as printed (US-05 to US-07, ST-09a)") == {"US-05", "US-06", "US-07", "ST-09a"}
    assert rules.ids_in("UTF-16, PAT-0003, XST-01") == set()


def test_tests_are_found_in_names_docstrings_comments_and_module_docstrings(rules):
    text = (
        '"""All of it (ST-01)."""\n'
        "def test_us_05():\n    pass\n"
        'def test_one():\n    """Reads DBT-03."""\n'
        "def test_two():\n    # MRI-07: a weight\n    assert True\n"
        'def helper():\n    """ST-02."""\n'
    )
    found = rules.tests_in(ast.parse(text), text)
    assert sorted(found) == [
        ("DBT-03", "test_one"),
        ("MRI-07", "test_two"),
        ("ST-01", ""),
        ("US-05", "test_us_05"),
    ]


def test_every_named_module_and_test_exists(rules):
    for names in rules.modules().values():
        assert all((rules.SOURCE / name).exists() for name in names)
    for names in rules.tests().values():
        assert all((rules.TESTS / name.split("::")[0]).exists() for name in names)
