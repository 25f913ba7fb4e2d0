"""`manage.py chargehand …`: the command line, about the application that the settings name."""

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from chargehand.django import SETTING
from chargehand.errors import EXIT_CONFIGURATION, ConfigurationError

TAKE_APP = ("work", "serve", "check", "run")
"""Commands whose first argument is the application."""


class Command(BaseCommand):
    """Runs a command of Chargehand."""

    help = 'Runs a command of Chargehand, such as "work" or "status"; the setting CHARGEHAND names the application.'

    def run_from_argv(self, argv: list[str]) -> None:
        """Passes all words on: their options are those of Chargehand, not those of Django."""
        try:
            self.handle(words=argv[2:])
        except CommandError as error:
            sys.stderr.write(f"chargehand: {error}\n")
            sys.exit(error.returncode)

    def handle(self, *args: Any, **options: Any) -> None:
        name = getattr(settings, SETTING, None)
        if not isinstance(name, str):
            raise CommandError(
                f"the setting {SETTING} is {name!r}; must name the Chargehand object, such as 'shop.jobs:hand'",
                returncode=EXIT_CONFIGURATION,
            )
        words = list(options.get("words") or args)
        if words[:1] and words[0] in TAKE_APP and not {"-h", "--help"} & {*words}:
            words.insert(1, name)
        os.environ.setdefault("CHARGEHAND_APP", name)
        sys.argv = ["chargehand", *words]
        from chargehand.cli import find
        from chargehand.cli.main import run

        if words[:1] == ["doctor"]:  # it imports no application, and would look for a store in this folder
            try:
                os.environ["CHARGEHAND_URL"] = find.application(name).url
            except ConfigurationError as error:
                raise CommandError(str(error), returncode=EXIT_CONFIGURATION) from error
        run()
