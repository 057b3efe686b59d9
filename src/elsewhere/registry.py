"""Named things of one kind: registered by decorator, or added by another package through an entry point.

A name has one owner. What a package adds is checked when it is loaded: an entry point that cannot be
imported, that is not what its group expects, or whose name is taken is left out with a warning that names the
package, and asking for that name is an error. Everything else continues to work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from elsewhere.errors import ElsewhereWarning, UserError, unknown_name

T = TypeVar("T")
Check = Callable[[str, object], str]
"""A function of a name and the thing to be registered; it returns what is wrong, or an empty text. The text
continues a sentence that begins with 'the task NAME of PACKAGE'."""


def object_of(kind: type) -> Check:
    """Make a check: a thing is an object of a class, and its `name` is the name that it is registered by.

    Args:
        kind: The class.

    Returns:
        The check, for `Registry(check=...)`.

    Example:
        >>> object_of(int)("three", 3), object_of(int)("three", "3"), object_of(int)("three", int)
        ('', 'is a str and not an object of int', 'is the class int itself and not an object of int')
    """

    def check(name: str, thing: object) -> str:
        if isinstance(thing, type):
            return f"is the class {thing.__name__} itself and not an object of {kind.__name__}"
        if not isinstance(thing, kind):
            return f"is a {type(thing).__name__} and not an object of {kind.__name__}"
        own = getattr(thing, "name", name)
        return "" if own == name else f"calls itself '{own}': both names must be the same"

    return check


def decorated(kind: type, decorator: str) -> Check:
    """Make the check that a thing is an object of a class, or a function that a decorator has registered as one.

    Args:
        kind: The class.
        decorator: The name of the decorator, which calls `mark_registered`.

    Returns:
        The check, for `Registry(check=...)`.

    Example:
        >>> decorated(int, "count")("length", len)
        'is neither an object of int nor a function with the decorator @count'
    """

    def check(name: str, thing: object) -> str:
        entry = getattr(thing, _MARK, thing)
        if isinstance(entry, kind):
            own = getattr(entry, "name", name)
            return "" if own == name else f"calls itself '{own}': both names must be the same"
        return f"is neither an object of {kind.__name__} nor a function with the decorator @{decorator}"

    return check


_MARK = "registered_as"


def mark_registered(function: Callable[..., object], entry: object) -> None:
    """Note at a function what it was registered as, so that an entry point may name the function.

    Args:
        function: The function.
        entry: What its decorator registered.
    """
    setattr(function, _MARK, entry)


def function(name: str, thing: object) -> str:
    """Check that a thing can be called.

    Args:
        name: The name that it is registered by.
        thing: The thing.

    Returns:
        What is wrong with it; empty where nothing is.

    Example:
        >>> function("count", len), function("count", 3)
        ('', 'is a int and not a function')
    """
    return "" if callable(thing) else f"is a {type(thing).__name__} and not a function"


def _owner(thing: object) -> str:
    module = getattr(thing, "__module__", type(thing).__module__)
    name = getattr(thing, "__qualname__", getattr(thing, "name", type(thing).__name__))
    return f"{module}:{name}"


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name if entry.dist else 'an unnamed package'} ({entry.value})"


class Registry(Generic[T]):
    """Named things of one kind. Built-ins are imported, and entry points loaded, at first look-up.

    Args:
        kind: What the things are, in messages, such as "protocol".
        group: The entry-point group by which other packages add theirs.
        builtin_modules: Modules whose import registers the things of this package.
        list_command: The command that lists them, for messages; None: there is none.
        check: Checks what is registered; None: anything is accepted.

    Example:
        >>> greetings: Registry[str] = Registry("greeting", group="example.greetings", check=object_of(str))
        >>> greetings.add("english", "Hello")
        >>> greetings.get("english"), "french" in greetings, greetings.names()
        ('Hello', False, ['english'])
    """

    def __init__(
        self,
        kind: str,
        *,
        group: str,
        builtin_modules: tuple[str, ...] = (),
        list_command: str | None = None,
        check: Check | None = None,
    ) -> None:
        self.kind = kind
        self.group = group
        self._builtin_modules = builtin_modules
        self._list_command = list_command
        self._check = check
        self._things: dict[str, T] = {}
        self._owners: dict[str, str] = {}
        self._refused: dict[str, UserError] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: `@readers.register("bcs-dbt")`.

        Args:
            name: The name of the thing.

        Returns:
            The decorator, which returns the thing unchanged.

        Raises:
            UserError: The name is taken, or the thing is not of this kind.
        """

        def keep(thing: T) -> T:
            self.add(name, thing)
            return thing

        return keep

    def add(self, name: str, thing: T, *, owner: str | None = None) -> None:
        """Register a thing; the same thing, or a module that is imported again, may register once more.

        Args:
            name: The name of the thing.
            thing: The thing.
            owner: The package or module that adds it, for messages; None: its module.

        Raises:
            UserError: The name is taken, or the thing is not of this kind.
        """
        owner = owner or _owner(thing)
        wrong = self._check(name, thing) if self._check else ""
        if wrong:
            raise UserError(f"the {self.kind} '{name}' {wrong}", where=owner)
        if name in self._things and not self._is_same(name, thing, owner):
            raise UserError(
                f"two {self.kind}s are called '{name}'",
                where=f"{self._owners[name]} and {owner}",
                fix="Rename one of them, or uninstall the package that provides it.",
            )
        self._things[name] = thing
        self._owners[name] = owner

    def _is_same(self, name: str, thing: object, owner: str) -> bool:
        """Say whether two things of one name are the same thing.

        What one module defines twice under one name is one thing, as in a notebook. Only where both are
        objects of one class, such as two protocols, they have to be equal: the class does not say where each
        was made."""
        held = self._things[name]
        if held is thing or held == thing:
            return True
        return self._owners[name] == owner and (
            hasattr(thing, "__qualname__") or type(held) is not type(thing)
        )

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for module in self._builtin_modules:
            import_module(module)
        for entry in entry_points(group=self.group):
            self._load_entry(entry)

    def _load_entry(self, entry: EntryPoint) -> None:
        """Load an entry point; one that cannot be used is left out, so that the others still work."""
        name, package = entry.name, _package(entry)
        try:
            loaded: T = entry.load()
        except Exception as problem:  # noqa: BLE001 (whatever the other package does wrong)
            self._refuse(
                name, package, f"cannot be loaded ({problem!r})", fix="Update or uninstall that package."
            )
            return
        wrong = self._check(name, loaded) if self._check else ""
        if wrong:
            self._refuse(
                name,
                package,
                wrong,
                fix="Its authors have to correct it; until then, uninstall that package.",
            )
            return
        loaded = getattr(loaded, _MARK, loaded)
        if name not in self._things:
            self._things[name], self._owners[name] = loaded, package
        elif self._things[name] is loaded:
            self._owners[name] = package
        elif not self._is_same(name, loaded, _owner(loaded)):
            first = self._owners.pop(name)
            del self._things[name]
            self._refuse(
                name,
                package,
                f"has the name of another one, of {first}: neither can be used",
                fix="Uninstall one of the two packages.",
            )

    def _refuse(self, name: str, package: str, why: str, *, fix: str) -> None:
        self._refused[name] = UserError(f"the {self.kind} '{name}' {why}", where=package, fix=fix)
        warnings.warn(
            f"{package}: the {self.kind} '{name}' {why}; it is left out. {fix}",
            ElsewhereWarning,
            stacklevel=5,
        )

    def get(self, name: str) -> T:
        """Look a thing up.

        Args:
            name: The name of the thing.

        Returns:
            The thing.

        Raises:
            UserError: Nothing has this name (the nearest names are shown), or what has it cannot be used.
        """
        self._load()
        if name in self._refused:
            raise self._refused[name]
        if name not in self._things:
            raise unknown_name(self.kind, name, list(self._things), list_command=self._list_command)
        return self._things[name]

    def __contains__(self, name: str) -> bool:
        self._load()
        return name in self._things

    def names(self) -> list[str]:
        """List the names of all that can be used, in alphabetical order.

        Returns:
            The names, including those from installed packages.
        """
        self._load()
        return sorted(self._things)

    def owner(self, name: str) -> str:
        """Return the owner of a thing.

        Args:
            name: The name of the thing.

        Returns:
            The module of this package, or the other package and the place in it.

        Raises:
            UserError: Nothing has this name.
        """
        self.get(name)
        return self._owners[name]

    def __iter__(self) -> Iterator[tuple[str, T]]:
        self._load()
        return iter(sorted(self._things.items()))
