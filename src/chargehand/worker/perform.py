"""What performing a job means, whoever does it: a worker, `chargehand run`, a test. Workers load it: nothing heavy."""

from importlib import import_module
from typing import Any, cast

from chargehand import codec, errors
from chargehand.handler import Handler, Item

ITEM_LIMIT = 1000
RESULT_LIMIT = 1 << 20


def load(name: str, batch: int = 1) -> type[Handler[Any, Any]]:
    """The handler's class by its name, 'module:Class'; ConfigurationError if there is none that could work."""
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise errors.ConfigurationError(
            f"handler {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, type) or not issubclass(found, Handler):
        raise errors.ConfigurationError(f"handler {name!r} is not a class derived from chargehand.Handler")
    kind = cast(type[Handler[Any, Any]], found)
    if batch > 1 and not has_own(kind, "perform_batch"):
        raise errors.ConfigurationError(f"handler {name!r} has no perform_batch(jobs), and its crew has batch={batch}")
    if batch == 1 and not has_own(kind, "perform"):
        raise errors.ConfigurationError(f"handler {name!r} has no perform(job)")
    return kind


def has_own(kind: type[Handler[Any, Any]], method: str) -> bool:
    """Whether the class, or one between it and Handler, defines the method."""
    return any(method in vars(each) for each in kind.__mro__ if each is not Handler)


def item_of(found: Any) -> dict[str, Any]:
    """What `discover` named, as it goes to the node."""
    item = Item(found) if isinstance(found, str) else found
    if not isinstance(item, Item):
        raise errors.ConfigurationError(f"discover named {found!r}; expected texts, or chargehand.Item")
    words: tuple[Any, Any] = (item.key, item.label or "")
    if not all(isinstance(word, str) for word in words) or not 1 <= len(item.key) <= ITEM_LIMIT:
        raise errors.ConfigurationError(
            f"discover named an item {words[0]!r:.100} with label {words[1]!r:.100}; "
            f"expected texts, the key of 1 to {ITEM_LIMIT} characters"
        )
    if item.payload is None and item.label is None:
        return {"item": item.key}
    import json

    text = codec.to_json(item.payload, f"the payload of item {item.key!r}")
    if len(text) > RESULT_LIMIT:
        raise errors.PayloadError(f"the payload of item {item.key!r:.100} has {len(text):,} characters: too large")
    return {"item": item.key, "payload": json.loads(text), "label": item.label}


def number(name: str, value: Any) -> float | None:
    """A number of a progress report."""
    if value is None:
        return None
    given = float(value)
    if given - given != 0:  # infinite, or not a number at all
        raise ValueError(f"progress: {name} is {value!r}; expected a finite number")
    return given


_MODELS = ("model_validate", "__dataclass_fields__", "__struct_fields__")


def checkable(gives: Any) -> Any:
    """That kind of result, if it can be told without a doubt whether one is of it: models, and what JSON has."""
    known = gives in (dict, list, str, int, float, bool) or any(hasattr(gives, name) for name in _MODELS)
    return gives if known else None


def result_text(result: Any, gives: Any = None) -> str:
    """A result as JSON text; PayloadError if it is none, or too large, or not what the handler gives.

    Otherwise the job would be done, and nobody could ever read what came of it. `gives` is checkable; what is of that
    class is believed.
    """
    text = codec.to_json(result, "the result")
    if gives is not None and not isinstance(result, gives):
        codec.from_json(text, gives, "the result")
    if len(text) * 4 > RESULT_LIMIT and len(text.encode()) > RESULT_LIMIT:
        raise errors.PayloadError(f"the result has {len(text.encode()):,} bytes of JSON; allowed are {RESULT_LIMIT:,}")
    return text
