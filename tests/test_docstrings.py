"""Public functions and classes document every parameter.

`python tests/test_docstrings.py` lists those that leave one out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from worlds.class_trees import base_names, inherited

SOURCE = Path(__file__).resolve().parent.parent / "src" / "elsewhere"
_SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example", "Examples", "Note", "Notes")
_ENTRY = re.compile(r"^\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def public(tree: ast.Module) -> Iterator[tuple[str, Function | ast.ClassDef, ast.ClassDef | None]]:
    """Every public function, class and method of a module, with the class that a method belongs to."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node, None
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, Function) and not inner.name.startswith("_"):
                    yield f"{node.name}.{inner.name}", inner, node


def names_of(decorators: list[ast.expr]) -> set[str]:
    """The last name of each decorator: `dataclass` for `@dataclasses.dataclass(frozen=True)`."""
    called = (d.func if isinstance(d, ast.Call) else d for d in decorators)
    return {d.attr if isinstance(d, ast.Attribute) else getattr(d, "id", "") for d in called}


def parameters(node: Function | ast.ClassDef, owner: ast.ClassDef | None) -> list[str]:
    """What a caller passes: of a function its parameters, of a class what makes an object of it."""
    if isinstance(node, ast.ClassDef):
        return _of_class(node)
    arguments = node.args
    named = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    starred = [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
    bound = owner is not None and "staticmethod" not in names_of(node.decorator_list)
    return [name for name in (named[1:] if bound else named) + starred if not name.startswith("_")]


def _of_class(node: ast.ClassDef) -> list[str]:
    init = next((n for n in node.body if isinstance(n, Function) and n.name == "__init__"), None)
    if init is not None:
        return parameters(init, node)
    if "dataclass" not in names_of(node.decorator_list) and "NamedTuple" not in base_names(node):
        return []
    return [
        n.target.id
        for n in node.body
        if isinstance(n, ast.AnnAssign)
        and isinstance(n.target, ast.Name)
        and not n.target.id.startswith("_")
        and "ClassVar" not in ast.unparse(n.annotation)
        and not (isinstance(n.value, ast.Call) and "init=False" in ast.unparse(n.value))
    ]


def documented(node: Function | ast.ClassDef) -> set[str]:
    """The parameters that `Args:` or `Attributes:` of a docstring name."""
    found: set[str] = set()
    inside, indent = False, 0
    for line in (ast.get_docstring(node) or "").splitlines():
        heading = re.fullmatch(r"(\w+):", line.strip())
        if heading and heading[1] in _SECTIONS and not line.startswith(" "):
            inside, indent = heading[1] in ("Args", "Attributes"), 0
            continue
        if not inside or not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            inside = False
        indent = indent or depth
        entry = _ENTRY.match(line)
        if inside and entry and depth == indent:
            found.add(entry[1])
    return found


def is_a_command(file: Path) -> bool:
    """Commands of the command line say what a parameter is in `help=`, and their docstring is the help text."""
    return "cli" in file.relative_to(SOURCE).parts[:1]


def modules() -> dict[Path, ast.Module]:
    """The modules whose public names count."""
    return {
        file: ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(SOURCE.rglob("*.py"))
        if not is_a_command(file) and file.name != "__main__.py"
    }


def undocumented() -> list[str]:
    """`file:line name: missing parameters` of each public function or class that leaves one out."""
    trees = modules()
    declared_above = inherited(trees.values())
    found = []
    for file, tree in trees.items():
        for name, node, owner in public(tree):
            if owner is not None and declared_above(owner, node.name):
                continue
            missing = [p for p in parameters(node, owner) if p not in documented(node)]
            if missing:
                found.append(f"{file.relative_to(SOURCE)}:{node.lineno} {name}: {', '.join(missing)}")
    return found


def test_every_parameter_is_documented():
    found = undocumented()
    assert not found, "public functions and classes leave out parameters:\n" + "\n".join(found)


def test_what_counts_as_documented():
    tree = ast.parse(
        '''
def full(one, *more, two=1, **options):
    """Do it.

    Args:
        one: The first,
            with a second line: not a name.
        more: Others.
        two (int): The second.
        **options: The rest.

    Returns:
        result: nothing.
    """

def bare(one, _private=0): pass

def without_parameters(): pass

@dataclass(frozen=True)
class Settings:
    """Settings.

    Attributes:
        size: How large.
    """

    size: int
    depth: int = 2
    count: ClassVar[int] = 1

class Made:
    """Args: is not a heading here."""

    def __init__(self, start): ...

    def step(self, width):
        """Step.

        Args:
            width: How far.
        """

    def _hidden(self, width): ...
'''
    )
    missing = {
        name: [p for p in parameters(node, owner) if p not in documented(node)]
        for name, node, owner in public(tree)
    }
    assert missing == {
        "full": [],
        "bare": ["one"],
        "without_parameters": [],
        "Settings": ["depth"],
        "Made": ["start"],
        "Made.step": [],
    }


def test_a_method_is_documented_where_it_is_first_declared():
    tree = ast.parse(
        "class A:\n    def f(self, x): ...\nclass B(A): ...\nclass C(m.B[int]):\n    def f(self, x): ..."
    )
    first, *_, last = tree.body
    assert isinstance(first, ast.ClassDef)
    assert isinstance(last, ast.ClassDef)
    assert inherited([tree])(last, "f")
    assert not inherited([tree])(last, "g")
    assert not inherited([tree])(first, "f")


if __name__ == "__main__":
    print("\n".join(undocumented()))
