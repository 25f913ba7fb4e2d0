"""The crews alone, for processes that serve nothing: `chargehand work adreel.node:hand`. Loads no web framework."""

from adreel import crews, settings

hand = crews.build(settings.read()).hand
