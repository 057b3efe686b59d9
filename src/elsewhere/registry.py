"""Readers, metrics, protocols and analyses register by decorator; other packages by entry point.

A name has one owner: a second registration is refused, and the error shows both owners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from elsewhere.errors import UserError, unknown_name

T = TypeVar("T")


def _owner(thing: object) -> str:
    module = getattr(thing, "__module__", type(thing).__module__)
    name = getattr(thing, "__qualname__", getattr(thing, "name", type(thing).__name__))
    return f"{module}:{name}"


class Registry(Generic[T]):
    """Named things of one kind. Built-ins are imported, and entry points loaded, at first look-up."""

    def __init__(
        self, kind: str, *, group: str, builtin_modules: tuple[str, ...] = (), list_command: str | None = None
    ) -> None:
        self.kind = kind
        self.group = group
        self._builtin_modules = builtin_modules
        self._list_command = list_command
        self._things: dict[str, T] = {}
        self._owners: dict[str, str] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: `@readers.register("bcs-dbt")`."""

        def keep(thing: T) -> T:
            self.add(name, thing)
            return thing

        return keep

    def add(self, name: str, thing: T, *, owner: str | None = None) -> None:
        owner = owner or _owner(thing)
        if name in self._things:
            if self._owners[name] == owner:
                self._things[name] = thing
                return
            raise UserError(
                f"two {self.kind}s are called '{name}'",
                where=f"{self._owners[name]} and {owner}",
                fix="Rename one of them, or uninstall the package that brings it.",
            )
        self._things[name] = thing
        self._owners[name] = owner

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for module in self._builtin_modules:
            import_module(module)
        for entry in entry_points(group=self.group):
            try:
                loaded = entry.load()
            except Exception as problem:
                raise UserError(
                    f"the {self.kind} '{entry.name}' of another package cannot be loaded ({problem!r})",
                    where=f"{entry.dist.name if entry.dist else '?'} ({entry.value})",
                    fix="Mend or uninstall that package.",
                ) from problem
            if self._things.get(entry.name) is loaded:
                continue
            if entry.name not in self._things or _owner(loaded) != self._owners[entry.name]:
                self.add(
                    entry.name, loaded, owner=f"{entry.dist.name if entry.dist else '?'} ({entry.value})"
                )

    def get(self, name: str) -> T:
        self._load()
        if name not in self._things:
            raise unknown_name(self.kind, name, list(self._things), list_command=self._list_command)
        return self._things[name]

    def __contains__(self, name: str) -> bool:
        self._load()
        return name in self._things

    def names(self) -> list[str]:
        self._load()
        return sorted(self._things)

    def owner(self, name: str) -> str:
        self.get(name)
        return self._owners[name]

    def __iter__(self) -> Iterator[tuple[str, T]]:
        self._load()
        return iter(sorted(self._things.items()))
