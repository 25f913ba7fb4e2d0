"""How a job is performed and its outcome encoded, by a worker, `chargehand run` or a test.

Workers load this module, so it imports nothing heavy.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

from chargehand import codec, errors
from chargehand.handler import Handler, Item, type_faults
from chargehand.protocol.frame import WORK_FRAME_LIMIT, encode, encode_done
from chargehand.worker.failures import describe, message

ITEM_LIMIT = 1000
RESULT_LIMIT = 1 << 20
KEPT_LIMIT = 64 * 1024
ERROR_LIMIT = 64 * 1024
LONGEST_RETRY = 100 * 365 * 86_400


def load(name: str, batch: int = 1, concurrency: int = 1) -> type[Handler[Any, Any]]:
    """Imports a handler class by its name, 'module:Class'. Raises ConfigurationError if it cannot be used."""
    module, _, attribute = name.partition(":")
    try:
        __import__(module)  # not import_module: a worker that needs no importlib does without
        found: Any = sys.modules[module]
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, SyntaxError, SystemExit) as error:
        raise errors.ConfigurationError(f"handler {name!r} cannot be imported: {why_not_imported(error)}") from error
    except Exception as error:
        remedy = remedy_for_django(error)
        if remedy is None:
            raise
        raise errors.ConfigurationError(
            f"handler {name!r} cannot be imported: {why_not_imported(error)}: {remedy}"
        ) from error
    if not isinstance(found, type) or not issubclass(found, Handler):
        raise errors.ConfigurationError(
            f"handler {name!r} is not a class derived from chargehand.Handler: it is {found!r:.200}"
        )
    kind = cast(type[Handler[Any, Any]], found)
    if batch > 1 and not has_own(kind, "perform_batch"):
        raise errors.ConfigurationError(f"handler {name!r} has no perform_batch(jobs), but its crew has batch={batch}")
    if batch == 1 and not has_own(kind, "perform"):
        raise errors.ConfigurationError(f"handler {name!r} has no perform(job)")
    check_parameters(name, kind, "perform" if batch == 1 else "perform_batch", "job" if batch == 1 else "jobs")
    for method in ("set_up", "tear_down"):
        check_parameters(name, kind, method)
    if concurrency > 1:
        import inspect

        if not inspect.iscoroutinefunction(kind.perform):
            raise errors.ConfigurationError(
                f"handler {name!r} has a plain perform(job), but its crew has concurrency={concurrency}: declare "
                "`async def perform`, or remove concurrency and give the crew more workers"
            )
    return kind


def check_parameters(name: str, kind: type[Handler[Any, Any]], method: str, only: str | None = None) -> None:
    """Raises ConfigurationError if the method cannot be called with one argument, or none without `only`: every job
    would fail, or every start.

    It reads the code object: `inspect` would make every worker larger.
    """
    function: Any = getattr(kind, method)
    right = f"{method}(self)" if only is None else f"{method}(self, {only})"
    if isinstance(function, property):
        raise errors.ConfigurationError(f"handler {name!r} has {method} as a property; write def {right}")
    code: Any = getattr(function, "__code__", None)
    if code is None:  # not a function of Python
        return
    if method == "perform" and code.co_flags & _YIELDS:
        raise errors.ConfigurationError(
            f"handler {name!r} has a perform that yields, which nothing would run: return the result, and report "
            "progress with job.progress(…)"
        )
    raw = next(vars(each)[method] for each in kind.__mro__ if method in vars(each))
    given = (0 if only is None else 1) + (not isinstance(raw, staticmethod))
    required = code.co_argcount - len(function.__defaults__ or ())
    by_name = code.co_kwonlyargcount - len(function.__kwdefaults__ or ())
    most = given if code.co_flags & _VARIADIC else code.co_argcount
    if not required <= given <= most or by_name > 0:
        count = code.co_argcount
        named = code.co_varnames[count : count + code.co_kwonlyargcount]
        own = ", ".join((*code.co_varnames[:count], *(("*", *named) if named else ())))
        why = "it gets no arguments" if only is None else "a payload is job.payload"
        raise errors.ConfigurationError(f"handler {name!r} has {method}({own}); write {right}: {why}")


_VARIADIC = 0x04
"""The flag of a code object that has `*args` (inspect.CO_VARARGS)."""
_YIELDS = 0x20 | 0x200
"""The flags of code objects of generators (inspect.CO_GENERATOR, inspect.CO_ASYNC_GENERATOR)."""


def why_not_imported(error: BaseException) -> str:
    """Returns the error with its place in the user's code."""
    from chargehand.system.callers import told  # loaded only when a worker cannot start

    guard = "; put what runs the program under `if __name__ == '__main__':`" if isinstance(error, SystemExit) else ""
    return f"{told(error)}{guard}"


def remedy_for_django(error: Exception) -> str | None:
    """Returns what to do if a handler was imported in a process in which Django is not set up; otherwise None."""
    kind = type(error)
    if kind.__module__ != "django.core.exceptions":
        return None
    if "DJANGO_SETTINGS_MODULE" not in os.environ:
        return "use `python manage.py chargehand` in place of `chargehand`, or set DJANGO_SETTINGS_MODULE"
    if kind.__name__ != "AppRegistryNotReady":
        return None
    return "write `import chargehand.django` in the module of the handler, above the import of models"


def check_types(plan: Mapping[str, Any], kind: type[Handler[Any, Any]]) -> None:
    """Raises ConfigurationError if the handler takes or gives other types than its crew: every job would fail."""
    wrong = type_faults(kind, plan.get("takes"), plan.get("gives"))  # a node of an earlier version does not send them
    if wrong:
        raise errors.ConfigurationError(
            f"handler {plan['handler']!r} does not fit crew {plan['crew']!r}: {'; '.join(wrong)}; make takes= and "
            "gives= of the crew and Handler[…] the same"
        )


def make(name: str, kind: type[Handler[Any, Any]]) -> Handler[Any, Any]:
    """Creates the handler. Raises ConfigurationError if its `__init__` needs arguments."""
    try:
        return kind()
    except TypeError as error:
        trace = error.__traceback__
        if trace is not None and trace.tb_next is not None:  # raised inside `__init__`
            raise
        raise errors.ConfigurationError(
            f"handler {name!r} is created without arguments, but {error}: set it up in set_up(self)"
        ) from error


def has_own(kind: type[Handler[Any, Any]], method: str) -> bool:
    """Whether the class, or a base class below Handler, defines the method."""
    return any(method in vars(each) for each in kind.__mro__ if each is not Handler)


def checked_item(found: Any) -> tuple[Item, str]:
    """Returns an item that `discover` returned, and its payload as JSON. Raises ConfigurationError or PayloadError."""
    item = Item(found) if isinstance(found, str) else found
    if not isinstance(item, Item):
        raise errors.ConfigurationError(f"discover returned {found!r}; expected str or chargehand.Item")
    words: tuple[Any, Any] = (item.key, item.label or "")
    if not all(isinstance(word, str) for word in words) or not 1 <= len(item.key) <= ITEM_LIMIT:
        raise errors.ConfigurationError(
            f"discover returned an item {words[0]!r:.100} with label {words[1]!r:.100}; "
            f"both must be str, the key of 1 to {ITEM_LIMIT} characters"
        )
    text = codec.to_json(item.payload, f"the payload of item {item.key!r}")
    if len(text) > RESULT_LIMIT:
        raise errors.PayloadError(
            f"the payload of item {item.key!r:.100} has {len(text):,} characters; the maximum is {RESULT_LIMIT:,}"
        )
    return item, text


def item_of(found: Any) -> dict[str, Any]:
    """Converts an item that `discover` returned to the form that is sent to the node."""
    item, text = checked_item(found)
    key = codec.escape(item.key)
    if item.payload is None and item.label is None:
        return {"item": key}
    import json

    label = None if item.label is None else codec.escape(item.label)
    return {"item": key, "payload": json.loads(text), "label": label}


def number(name: str, value: Any) -> float | None:
    """Converts a number of a progress report to float. Raises ValueError unless it is finite."""
    if value is None:
        return None
    try:
        given = float(value)
    except OverflowError:  # an integer, perhaps with more digits than can be shown
        raise ValueError(
            f"progress: {name} is an integer beyond the range of float; expected a finite number"
        ) from None
    except (TypeError, ValueError):
        raise ValueError(f"progress: {name} is {value!r}; expected a number; stage= and detail= take texts") from None
    if given - given != 0:  # infinite or NaN
        raise ValueError(f"progress: {name} is {value!r}; expected a finite number")
    return given


_MODELS = ("model_validate", "__dataclass_fields__", "__struct_fields__")


def checkable(gives: Any) -> Any:
    """Returns the result type if results can be checked against it (models and JSON's own types), else None."""
    known = gives in (dict, list, str, int, float, bool) or any(hasattr(gives, name) for name in _MODELS)
    return gives if known else None


def result_text(result: Any, gives: Any = None) -> str:
    """Encodes a result as JSON. Raises PayloadError if it is not JSON, is too large, or does not match `gives`.

    Without this check the job would be done with a result that no caller can read. `gives` must be checkable; instances
    of it are not checked again.
    """
    text = codec.to_json(result, "the result")
    if gives is not None and not isinstance(result, gives):
        codec.from_json(text, gives, "the result")
    if len(text) * 4 > RESULT_LIMIT and len(text.encode()) > RESULT_LIMIT:
        raise errors.PayloadError(
            f"the result has {len(text.encode()):,} bytes of JSON; the maximum is {RESULT_LIMIT:,}"
        )
    return text


def kept_text(state: Any) -> str:
    """Encodes a checkpoint as JSON. Raises PayloadError if it is not JSON or too large."""
    text = codec.to_json(state, "the checkpoint")
    size = len(text.encode())
    if size > KEPT_LIMIT:
        raise errors.PayloadError(
            f"the checkpoint has {size:,} bytes of JSON; the maximum is {KEPT_LIMIT:,}: keep large data in job.folder"
        )
    return text


def truncate(text: str) -> str:
    """Shortens a text to ERROR_LIMIT characters; keeps its beginning and its end."""
    if len(text) <= ERROR_LIMIT:
        return text
    return f"{text[: ERROR_LIMIT // 2]}\n… cut …\n{text[-ERROR_LIMIT // 2 :]}"


def done_frame(
    about: dict[str, Any], result: Any, follow: list[dict[str, Any]], gives: Any, seconds: float | None = None
) -> bytes:
    """Returns the frame that reports a result, the jobs enqueued with it, and the seconds that the attempt took.

    Raises PayloadError if it is too large.
    """
    frame = encode_done(about["id"], about["fence"], result_text(result, gives), follow, seconds)
    if len(frame) > WORK_FRAME_LIMIT:
        raise errors.PayloadError(
            f"the result and the {len(follow)} jobs that it enqueues have {len(frame):,} bytes; "
            f"the maximum is {WORK_FRAME_LIMIT:,}"
        )
    return frame


def settled_frame(about: dict[str, Any], flows: Sequence[str]) -> bytes:
    """Returns the frame that reports that the handler has settled the job, and the flows that ended with it."""
    return encode("SETTLED", {**about, "flows": list(flows)} if flows else about)


def is_success(frame: bytes) -> bool:
    """Whether the frame with the outcome of an attempt reports that the job is done."""
    return frame.startswith((b"DONE|", b"SETTLED|"))


def is_cancellation(error: BaseException) -> bool:
    """Whether the exception is Cancelled, or asyncio's CancelledError (compared by name: asyncio may not be loaded), or
    a group of nothing else: several tasks of a job may see that it was cancelled."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_cancellation(each) for each in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, errors.Cancelled) or type(error).__name__ == "CancelledError"


def cancelled_frame(about: dict[str, Any], error: BaseException) -> bytes:
    """Returns the frame that reports that the job ended because it was cancelled."""
    return encode("CANCELLED", {**about, "error": truncate(message(error))})


def timed_out_frame(about: dict[str, Any], error: BaseException) -> bytes:
    """Returns the frame that reports that one of several jobs ended because it exceeded its timeout."""
    where = truncate(describe(error))
    return encode("TIMEDOUT", {**about, "error": f"the job took longer than its timeout, and was cancelled\n{where}"})


def is_failure(error: BaseException) -> bool:
    """Whether the exception is a failure of the job, and not a decision of the handler about it or a cancellation."""
    return not is_cancellation(error) and not isinstance(error, errors.Retry | errors.GiveUp | errors.PayloadError)


def is_hopeless(error: BaseException, rules: Mapping[str, Any]) -> bool:
    """Whether the job is not tried again after this exception, by the crew's `retry_on` and `give_up_on`."""
    retry_on, give_up_on = rules.get("retry_on"), rules.get("give_up_on")
    if retry_on is None and not give_up_on:
        return False
    names = {name for kind in type(error).__mro__ for name in names_of(kind)}
    if give_up_on and not names.isdisjoint(give_up_on):
        return True
    return retry_on is not None and names.isdisjoint(retry_on)


def names_of(kind: type[Any]) -> tuple[str, str, str]:
    """Returns the names by which a crew may mean an exception type."""
    return kind.__name__, kind.__qualname__, f"{kind.__module__}.{kind.__qualname__}"


def without_hidden(text: str, rules: Mapping[str, Any], payload: Any) -> str:
    """Returns a text without the values of the payload that the crew hides."""
    if not rules.get("hide"):
        return text
    from chargehand.model.hiding import text_without  # most workers need no module for it

    return text_without(text, payload, [name.lower() for name in rules["hide"]])


def failure_frame(about: dict[str, Any], error: BaseException, rules: Mapping[str, Any], payload: Any = None) -> bytes:
    """Returns the frame that reports an exception of the handler, without the hidden values of the payload.

    `rules` contains the crew's `retry_on`, `give_up_on` and `hide`.
    """

    def shown(text: str) -> str:
        return truncate(without_hidden(text, rules, payload))

    text = shown(describe(error))
    match error:
        case errors.Retry():
            seconds = min(max(0.0, error.after), LONGEST_RETRY) if error.after == error.after else 0.0
            return encode("RETRY", {**about, "after_ms": int(seconds * 1000), "error": shown(message(error))})
        case errors.GiveUp():
            return encode("GAVEUP", {**about, "error": shown(message(error.reason))})
        case errors.PayloadError():
            return encode("GAVEUP", {**about, "error": text})
        case _:
            return encode("GAVEUP" if is_hopeless(error, rules) else "RAISED", {**about, "error": text})
