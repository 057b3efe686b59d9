"""What another package brings is checked when it is loaded; what is broken is left out, and the package is named."""

from __future__ import annotations

import warnings
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from elsewhere import registry as module
from elsewhere.errors import ElsewhereWarning, UserError
from elsewhere.predictions import AnswerKind, answer_kinds
from elsewhere.protocols import add_protocol, protocols
from elsewhere.registry import Registry, function, object_of
from elsewhere.scoring.classification import ClassificationTask
from elsewhere.scoring.task import Task, tasks


class Dist:
    def __init__(self, name):
        self.name = name


def brought(monkeypatch, *entries, package="their-package"):
    """Entry points as installed packages have them: (name, what loads or the error that it raises)."""

    class Entry(EntryPoint):
        def load(self):
            thing = things[self.value]
            if isinstance(thing, Exception):
                raise thing
            return thing

    things = {f"theirs:{at}": thing for at, (_, thing) in enumerate(entries)}
    found = []
    for at, (name, _) in enumerate(entries):
        entry = Entry(name=name, value=f"theirs:{at}", group="g")
        vars(entry)["dist"] = Dist(package)
        found.append(entry)
    monkeypatch.setattr(module, "entry_points", lambda group: found)


def a_registry(**more) -> Registry:
    return Registry("task", group="g", **more)


def test_a_package_that_cannot_be_imported_takes_nothing_else_with_it(monkeypatch):
    brought(monkeypatch, ("broken", ImportError("no module named scipy9")), ("sound", print))
    found = a_registry()
    with pytest.warns(ElsewhereWarning, match=r"their-package \(theirs:0\).*'broken'.*scipy9"):
        assert found.names() == ["sound"]
    for _ in range(2):
        with pytest.raises(UserError, match="cannot be loaded") as caught:
            found.get("broken")
        assert "their-package" in caught.value.where and "uninstall" in caught.value.fix
    assert "broken" not in found


def test_a_name_that_two_packages_bring_is_nobodys(monkeypatch):
    brought(monkeypatch, ("signal", len), ("signal", max), ("other", min))
    found = a_registry()
    with pytest.warns(ElsewhereWarning, match="neither can be used"):
        assert found.names() == ["other"]
    with pytest.raises(UserError, match="has the name of another one") as caught:
        found.get("signal")
    assert "theirs:0" in str(caught.value) and "theirs:1" in str(caught.value)


def test_a_package_cannot_take_the_place_of_a_built_in(monkeypatch):
    """An object of one of our classes has our module: it was once passed over as if it were ours."""
    brought(monkeypatch, ("plain", replace(protocols.get("plain"), title="Other rules")))
    found = a_registry(check=object_of(type(protocols.get("plain"))))
    found.add("plain", protocols.get("plain"))
    with pytest.warns(ElsewhereWarning, match="neither can be used"):
        found.names()
    with pytest.raises(UserError, match="their-package"):
        found.get("plain")


def test_what_is_of_another_type_is_left_out_with_the_reason(monkeypatch):
    brought(
        monkeypatch, ("the-class", ClassificationTask), ("a-word", "words"), ("renamed", ClassificationTask())
    )
    found = a_registry(check=object_of(Task))
    with pytest.warns(ElsewhereWarning) as told:
        assert found.names() == []
    text = " | ".join(str(one.message) for one in told)
    assert "is the class ClassificationTask itself and not an object of Task" in text
    assert "is a str and not an object of Task" in text
    assert "calls itself 'classification'" in text
    with pytest.raises(UserError, match="is a str"):
        found.get("a-word")


def test_a_thing_registered_by_decorator_and_entry_point_is_one(monkeypatch):
    found = a_registry()

    @found.register("mine")
    def mine():
        return 1

    brought(monkeypatch, ("mine", mine))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found.get("mine") is mine
    assert found.owner("mine") == "their-package (theirs:0)"


def test_a_function_may_be_defined_again_as_in_a_notebook():
    found = a_registry(check=function)

    def define(value):
        def mine():
            return value

        return mine

    found.add("mine", define(1))
    found.add("mine", define(2))
    assert found.get("mine")() == 2
    with pytest.raises(UserError, match="two tasks are called 'mine'"):
        found.add("mine", len)
    with pytest.raises(UserError, match="is a int and not a function"):
        found.add("number", 3)


def test_a_protocol_does_not_replace_another_of_its_name():
    plain = protocols.get("plain")
    assert add_protocol(plain) is plain
    with pytest.raises(UserError, match="two protocols are called 'plain'"):
        add_protocol(replace(plain, version="9"))
    assert protocols.get("plain") is plain


@pytest.mark.parametrize(
    ("registry", "thing"),
    [(tasks, ClassificationTask), (protocols, {"name": "x"}), (answer_kinds, lambda path: path)],
    ids=["tasks", "protocols", "answer kinds"],
)
def test_our_registries_refuse_what_they_do_not_hold(registry, thing):
    with pytest.raises(UserError, match=r"the .* 'x' is "):
        registry.add("x", thing)
    assert "x" not in registry


def test_an_answer_kind_without_a_status_column_refuses_the_option_for_it(tmp_path):
    from elsewhere.predictions import ReadOptions, read_answers

    assert isinstance(answer_kinds.get("masks"), AnswerKind) and not answer_kinds.get("masks").reads_status
    with pytest.raises(UserError, match="which masks do not have"):
        read_answers("masks", tmp_path, ReadOptions(failed_status=("released",)))
    with pytest.raises(UserError, match="unknown answer kind 'mask'"):
        read_answers("mask", tmp_path)
