"""Checks the hooks that an application declares."""

from typing import Any

from chargehand.errors import ConfigurationError
from chargehand.model.spelling import is_module


def check_hook(name: str, function: Any) -> str:
    """Returns the name of a function that workers call. Raises ConfigurationError unless it is 'module:function'."""
    if not isinstance(function, str):
        raise ConfigurationError(
            f"hook {name} is {function!r}; must be its name as a string, 'module:function': only workers import it"
        )
    module, colon, attribute = function.partition(":")
    if not colon or not is_module(module) or module.endswith(".py") or not is_module(attribute):
        raise ConfigurationError(f"hook {name} is {function!r}; must be 'module:function', such as 'songs.hooks:begin'")
    return function
