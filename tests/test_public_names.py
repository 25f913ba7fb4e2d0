"""The public names: every type that a public signature shows is exported."""

import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chargehand
from chargehand import Crew, FlowRecord, JobOptions, Ref, Transaction, testing
from chargehand.client import Client

INTERNAL = {
    "AccessWriting",
    "Address",
    "Brief",
    "FleetWriting",
    "FlowWriting",
    "JobContext",
    "JobWriting",
    "NewFlow",
    "NodePlan",
    "Operations",
    "ResultPages",
    "Terms",
}
"""Types that only the packages of Chargehand use: parts of a transaction, and parameters of constructors that users do
not call."""


def signatures(kind: type[Any]) -> Iterator[dict[str, Any]]:
    """Yields the type hints of the public methods, properties and attributes of a class."""
    resolve: dict[str, Any] = {"Response": Any, "FastAPI": Any, "Crew": Crew, "Transaction": Transaction}
    resolve |= {"JobOptions": JobOptions, "Unpack": typing.Unpack, "Self": typing.Self}
    resolve |= {"Within": Any, "Ref": Ref, "FlowRecord": FlowRecord, "Path": Path}
    resolve |= dict.fromkeys(("AlchemyConnection", "AlchemySession"), Any)
    resolve |= dict.fromkeys(("PsycopgConnection", "scoped_session"), list)  # generic
    for base in kind.__mro__:
        if not base.__module__.startswith("chargehand"):
            continue
        yield typing.get_type_hints(base, localns=resolve)
        for name, member in vars(base).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(function) and (not name.startswith("_") or name == "__init__"):
                yield typing.get_type_hints(inspect.unwrap(function), localns=resolve)


def types_in(hint: Any) -> Iterator[type[Any]]:
    """Yields the classes that a type hint contains."""
    origin = typing.get_origin(hint)
    if isinstance(origin or hint, type):
        yield origin or hint
    for argument in typing.get_args(hint):
        if not isinstance(argument, str):
            yield from types_in(argument)


def test_every_type_in_a_public_signature_is_exported() -> None:
    public = [getattr(chargehand, name) for name in chargehand.__all__]
    kinds = [each for each in public if isinstance(each, type)]
    shown = {kind for each in kinds for hints in signatures(each) for hint in hints.values() for kind in types_in(hint)}
    own = {kind.__name__ for kind in shown if kind.__module__.startswith("chargehand")}
    assert own - INTERNAL - set(chargehand.__all__) == set()


def test_every_public_name_can_be_imported_and_is_listed_once() -> None:
    assert sorted(set(chargehand.__all__)) == chargehand.__all__
    assert all(getattr(chargehand, name) is not None for name in chargehand.__all__)


def test_every_public_name_has_a_docstring() -> None:
    """The page of the Python API is generated from them."""
    kinds = {name: getattr(chargehand, name) for name in chargehand.__all__}
    kinds |= {name: getattr(testing, name) for name in testing.__all__} | {"Client": Client}
    bare = [name for name, kind in kinds.items() if inspect.isroutine(kind) or inspect.isclass(kind)]
    bare = [name for name in bare if not (vars(kinds[name]).get("__doc__") or kinds[name].__doc__)]
    for name, kind in kinds.items():
        for member, found in vars(kind).items() if inspect.isclass(kind) else ():
            called = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
            if inspect.isfunction(called) and not member.startswith("_") and not called.__doc__:
                bare.append(f"{name}.{member}")
    assert bare == []
