"""The process behind `chargehand check`: imports a handler as a worker would and reports what is wrong with it.

It loads no more modules than a worker, so that the measured import time and memory are the handler's own.
"""

import json
import os
import sys
from contextlib import suppress
from typing import Any, get_args, get_origin

from chargehand import clock, errors, handler
from chargehand.processes.prctl import die_with_parent
from chargehand.worker import perform, thread_cap


def main(report_fd: int, parent: int) -> None:
    """Runs the process: reads the plan from standard input, checks the handler, and writes the result to
    `report_fd`."""
    die_with_parent(parent)
    os.set_inheritable(report_fd, False)
    plan = json.loads(sys.stdin.buffer.read())
    sys.path[:] = plan["python_path"]
    handler.inside_worker = True
    thread_cap.cap(plan["threads"])
    before, began = memory(), clock.monotonic()
    found: dict[str, Any] = {"wrong": []}
    try:
        kind = perform.load(plan["handler"], plan["batch"], plan["concurrency"])
        found |= {"seconds": clock.monotonic() - began, "memory": max(0, memory() - before)}
        found["wrong"] = faults(kind, plan)
        if plan["set_up"]:
            began = clock.monotonic()
            _set_up(kind, plan["threads"])
            found["set_up_seconds"] = clock.monotonic() - began
    except errors.ConfigurationError as error:
        found["wrong"].append(str(error))
    except (Exception, SystemExit) as error:
        from chargehand.system.callers import told

        what = "set_up" if "seconds" in found else "the import"
        found["wrong"].append(f"{what} raised {told(error)}")
    os.write(report_fd, json.dumps(found).encode())
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)  # does not wait for threads that the import started


def _set_up(kind: type[handler.Handler[Any, Any]], count: int) -> None:
    """Runs the handler's `set_up` and `tear_down`."""
    performer = perform.make(kind.__qualname__, kind)
    performer.threads = count
    for step in (performer.set_up, performer.tear_down):
        waiting: Any = step()
        if hasattr(waiting, "__await__"):
            import asyncio

            async def waited(waiting: Any = waiting) -> None:
                await waiting

            asyncio.run(waited())


def memory() -> int:
    """Returns this process's resident memory in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def faults(kind: type[handler.Handler[Any, Any]], plan: dict[str, Any]) -> list[str]:
    """Returns the mismatches between a handler and its crew, one sentence each."""
    found = [*_wrong_constructor(kind), *_wrong_job(kind)]
    if plan["discovers"] and not perform.has_own(kind, "discover"):
        found.append("the crew is declared discovers=True, but the handler has no discover(after, limit)")
    elif plan["discovers"]:
        found += _wrong_discover(kind)
    for word, own in zip(("takes", "gives"), kind.types(), strict=True):
        crew = plan[word]
        ours = described(own)
        if crew is None or ours is None or _same(crew, ours):
            if crew is not None and ours is not None and _copied(crew, own):
                found.append(
                    f"the crew {word} {crew['name']}, but the handler's is a different class with the same name: "
                    "is the class defined twice?"
                )
            continue
        found.append(f"the crew {word} {crew['name']}, but the handler {word} {ours['name']}")
    return found


def _wrong_constructor(kind: type[handler.Handler[Any, Any]]) -> list[str]:
    """Returns why a worker could not create the handler: it gives no arguments."""
    import inspect

    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        return [f"the handler is created without arguments, but {error}: set it up in set_up(self)"]
    except ValueError:  # without a signature
        pass
    return []


def _wrong_job(kind: type[handler.Handler[Any, Any]]) -> list[str]:
    """Returns that `perform` expects its payload as the argument, if its annotation says so."""
    import inspect
    from typing import get_type_hints

    function: Any = inspect.unwrap(kind.perform)
    try:
        names = list(inspect.signature(function).parameters)
        name = names[0 if isinstance(inspect.getattr_static(kind, "perform"), staticmethod) else 1]
        given = get_type_hints(function)[name]
    except Exception:  # no annotation, or names that are imported for type checkers only
        return []
    kept: Any = get_origin(given) or given
    if kept is Any or not isinstance(kept, type) or getattr(kept, "_is_protocol", False):
        return []
    if issubclass(handler.Job, kept) or issubclass(kept, handler.Job):
        return []
    own = _name(given)
    return [f"perform has {name}: {own}, but gets a job: write perform(self, job: Job[{own}]), and use job.payload"]


def _wrong_discover(kind: type[handler.Handler[Any, Any]]) -> list[str]:
    """Returns why `discover` cannot be called as a worker calls it; it is measured no more, so it may import."""
    import inspect

    signature = inspect.signature(kind.discover)
    given = ("after", 1) if isinstance(inspect.getattr_static(kind, "discover"), staticmethod) else (None, "after", 1)
    try:
        signature.bind(*given)
    except TypeError:
        return [f"the handler has discover{signature}; write discover(self, after, limit)"]
    return []


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the two types have the same name; a bare `dict` matches any dict."""
    return one["name"] == other["name"] or ((one["bare"] or other["bare"]) and one["plain"] == other["plain"])


def _copied(crew: dict[str, Any], own: Any) -> bool:
    """Whether the crew's type can be imported here and is a different class from the handler's."""
    module: Any = sys.modules.get(crew["module"])
    if module is None or not crew["bare"] or not isinstance(own, type) or get_origin(own) is not None:
        return False
    for part in crew["qualname"].split("."):
        module = getattr(module, part, None)
    return module is not None and module is not own


def described(kind: Any) -> dict[str, Any] | None:
    """Describes a type by its names, so that another process can compare it; None means any type."""
    if kind in (None, Any, object):
        return None
    origin = get_origin(kind) or kind
    module, qualname = getattr(origin, "__module__", ""), getattr(origin, "__qualname__", str(origin))
    return {
        "name": _name(kind),
        "plain": f"{module}.{qualname}",
        "bare": get_origin(kind) is None,
        "module": module,
        "qualname": qualname,
    }


def _name(kind: Any) -> str:
    """Returns a type's qualified name, with its type arguments."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is not None and inner:
        return f"{_name(origin)}[{', '.join(_name(part) for part in inner)}]"
    if kind is None or kind is type(None):
        return "None"
    if isinstance(kind, type):
        return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return str(kind)
