"""The descriptions of the public names: every one has an example, and every example runs."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest

import lockstep

PACKAGES = (
    "lockstep",
    "lockstep.dbapi",
    "lockstep.sqlalchemy",
    "lockstep.compat.openmldb",
    "lockstep.spark",
)
"""The packages that programs import."""

LIBRARY_OF = {"lockstep._torch": "torch", "lockstep._tensorflow": "tensorflow"}
"""The modules that subclass something of a library, which has to be there to import them."""


def modules() -> Iterator[ModuleType]:
    """Returns every module of the package."""
    yield lockstep
    for found in pkgutil.walk_packages(lockstep.__path__, "lockstep."):
        library = LIBRARY_OF.get(found.name)
        is_there = library is None or importlib.util.find_spec(library) is not None
        if is_there and not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def examples() -> Iterator[doctest.DocTest]:
    """Returns the examples of each docstring that has some."""
    finder = doctest.DocTestFinder()
    for module in modules():
        yield from (test for test in finder.find(module) if test.examples)
    # Its class is of the native module, which is not Python.
    yield from finder.find(lockstep.Prepared, "lockstep.Prepared", module=False, globs={})


def public(package: ModuleType | SimpleNamespace) -> Iterator[tuple[str, object]]:
    """Returns the public functions, classes, methods and properties of a package by their names."""
    for name in package.__all__:
        item = getattr(package, name)
        # Types of the standard library and constants have other names here.
        if not _is_ours(item):
            continue
        yield name, item
        if not inspect.isclass(item):
            continue
        for member, value in vars(item).items():
            if not member.startswith("_") and _is_described(item, member, value):
                yield f"{name}.{member}", value


def _is_ours(item: object) -> bool:
    if not (inspect.isclass(item) or inspect.isfunction(item)):
        return False
    return item.__module__.partition(".")[0] in ("lockstep", __name__.partition(".")[0])


def _is_described(owner: type, member: str, value: object) -> bool:
    """Returns whether the description of a member is this package's, and has to be its own."""
    if not (inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))):
        # Members of native classes are in the example of the class.
        return False
    return not any(member in vars(base) and not _is_ours(base) for base in owner.__mro__)


def faults(package: ModuleType | SimpleNamespace) -> list[str]:
    """Returns what is missing of the descriptions of a package."""
    found = []
    for name, item in public(package):
        text = inspect.getdoc(item) if not inspect.isclass(item) else item.__doc__
        if not text:
            found.append(f"{name} has no description")
        elif not doctest.DocTestParser().get_examples(text):
            found.append(f"{name} has no example")
    return found


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_has_a_description_with_an_example(name):
    assert faults(importlib.import_module(name)) == []


def test_the_members_of_the_native_class_are_in_its_example():
    members = vars(lockstep.Prepared).items()
    names = [name for name, value in members if inspect.isgetsetdescriptor(value)]
    assert sorted(names) == ["input", "output", "required"]
    for name in names:
        assert f".{name}" in lockstep.Prepared.__doc__


def test_all_parts_of_the_interface_are_looked_at():
    names = {name for package in PACKAGES for name, _ in public(importlib.import_module(package))}
    assert {
        "AsyncRelation.count",
        "Connection.append",
        "Connection.opened",
        "Cursor.callproc",
        "Prepared",
        "last_join",
        "map_cluster",
    } <= names
    assert len(names) > 90


class Undescribed:
    def method(self) -> None:
        pass


class WithoutExample:
    """Does something."""

    @property
    def member(self) -> int:
        """The number of something."""
        return 1

    def described(self) -> None:
        """Does nothing.

        >>> WithoutExample().described()
        """


def test_a_name_without_a_description_fails():
    fake = SimpleNamespace(
        __all__=["Undescribed", "WithoutExample"],
        Undescribed=Undescribed,
        WithoutExample=WithoutExample,
    )
    assert faults(fake) == [
        "Undescribed has no description",
        "Undescribed.method has no description",
        "WithoutExample has no example",
        "WithoutExample.member has no example",
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder of its own, and no trace of a package that was installed by another name."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "openmldb"]:
        del sys.modules[name]


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.name)
def test_an_example_runs(example, folder):
    text: list[str] = []
    # Several of them show the beginning of a long text.
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(example, out=text.append).failed == 0, "".join(text)
