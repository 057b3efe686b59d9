"""Classes of parsed modules: what they are made from, and where a method is first declared."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable


def base_names(node: ast.ClassDef) -> set[str]:
    """The names of the classes that a class is made from, without modules and type parameters."""
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return {b.attr if isinstance(b, ast.Attribute) else getattr(b, "id", "") for b in plain}


def inherited(trees: Iterable[ast.Module]) -> Callable[[ast.ClassDef, str], bool]:
    """Make the function that says whether a base class of a class declares a method: it is documented there."""
    bases: dict[str, set[str]] = {}
    methods: dict[str, set[str]] = {}
    for node in (n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
        bases.setdefault(node.name, set()).update(base_names(node))
        methods.setdefault(node.name, set()).update(
            n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        )

    def declared_above(owner: ast.ClassDef, method: str) -> bool:
        seen, todo = set(), base_names(owner)
        while todo:
            name = todo.pop()
            if method in methods.get(name, ()):
                return True
            seen.add(name)
            todo |= bases.get(name, set()) - seen
        return False

    return declared_above
