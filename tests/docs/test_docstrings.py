"""Every public function and class documents its parameters, its return value and what it raises; its examples are true."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

import elsewhere
from worlds.class_trees import inherited

SOURCE = Path(elsewhere.__file__).parent
ROOMS = sorted(init.parent.name for init in SOURCE.glob("*/__init__.py"))
WITHOUT_EXAMPLES = ("cli", "studies")
COMMANDS = ("command", "callback")
"""Decorators of the functions whose parameters `help=` explains: their docstring is the help text."""
PROPERTIES = ("property", "cached_property")
FILES = sorted(SOURCE.rglob("*.py"))
Function = ast.FunctionDef


@cache
def declared_above():
    """A method without a docstring of its own has that of the base class; one with its own says everything."""
    return inherited(ast.parse(file.read_text(encoding="utf-8")) for file in FILES)


def section(docstring: str, name: str) -> str | None:
    """The text under a heading of a Google docstring; None where it has none."""
    found = re.search(rf"^{name}:\n((?:(?:    .*)?(?:\n|\Z))+)", docstring, re.MULTILINE)
    return found[1] if found else None


def parameters(function: Function) -> list[str]:
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [a.arg for a in (given.vararg, given.kwarg) if a]
    return [name for name in names if name not in ("self", "cls")]


def named(docstring: str, names: list[str]) -> list[str]:
    text = section(docstring, "Args") or ""
    return [f"Args: {name}" for name in names if not re.search(rf"^    \*{{0,2}}{name}:", text, re.MULTILINE)]


def own_nodes(function: Function) -> list[ast.AST]:
    """What a function does itself, without the functions inside it."""
    nodes: list[ast.AST] = []
    todo = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        nodes.append(node)
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return nodes


def is_an_error(node: ast.Raise) -> bool:
    """Not where an error is raised again, nor in a method that subclasses have to write."""
    return node.exc is not None and ast.unparse(node.exc) != "NotImplementedError"


def lacking(function: Function) -> list[str]:
    docstring = ast.get_docstring(function) or ""
    if not docstring:
        return ["a docstring"]
    out = named(docstring, parameters(function))
    nodes = own_nodes(function)
    gives = function.returns is not None and ast.unparse(function.returns) not in ("None", "NoReturn")
    if gives and not any(section(docstring, name) for name in ("Returns", "Yields")):
        out.append("Returns")
    if any(isinstance(node, ast.Raise) and is_an_error(node) for node in nodes) and not section(
        docstring, "Raises"
    ):
        out.append("Raises")
    return out


def decorators(function: Function) -> set[str]:
    return {ast.unparse(d).split("(")[0].split(".")[-1] for d in function.decorator_list}


def of_class(node: ast.ClassDef) -> dict[str, list[str]]:
    docstring = ast.get_docstring(node) or ""
    out = {node.name: [] if docstring else ["a docstring"]}
    base = " ".join(ast.unparse(base) for base in node.bases)
    for function in (entry for entry in node.body if isinstance(entry, Function)):
        name = f"{node.name}.{function.name}"
        if function.name == "__init__":
            out[node.name] += named(docstring, parameters(function))
        elif function.name == "forward" or function.name.startswith("_"):
            continue
        elif not ast.get_docstring(function) and declared_above()(node, function.name):
            out[name] = []
        elif "Function" in base or decorators(function) & set(PROPERTIES):
            out[name] = [] if ast.get_docstring(function) or "Function" in base else ["a docstring"]
        else:
            out[name] = lacking(function)
    return out


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_public_functions_and_classes_are_documented(file):
    found: dict[str, list[str]] = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            found[node.name] = [] if decorators(node) & set(COMMANDS) else lacking(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found |= of_class(node)
    assert {name: gaps for name, gaps in found.items() if gaps} == {}


def test_an_override_has_the_docstring_of_the_base_class_or_a_whole_one():
    tree = ast.parse(
        "class Mine(Evaluator):\n"
        "    'Mine.'\n"
        "    def subset(self, case_mask) -> Evaluator: ...\n"
        "    def stack(self, other) -> Evaluator:\n"
        "        'Put two into one.'\n"
    )
    assert isinstance(tree.body[0], ast.ClassDef)
    assert of_class(tree.body[0]) == {"Mine": [], "Mine.subset": [], "Mine.stack": ["Args: other", "Returns"]}


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in WITHOUT_EXAMPLES])
def test_examples_in_docstrings_are_true(room):
    pytest.importorskip("torch")
    failed = examples = 0
    for file in (SOURCE / room).rglob("*.py"):
        name = ".".join(("elsewhere", *file.relative_to(SOURCE).with_suffix("").parts))
        done = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
        failed, examples = failed + done.failed, examples + done.attempted
    assert failed == 0 and examples
