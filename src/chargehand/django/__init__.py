"""For Django: jobs that are enqueued when a transaction commits, models in handlers, and `manage.py chargehand`.

`INSTALLED_APPS` contains "chargehand.django", and the setting `CHARGEHAND = "shop.jobs:hand"` names the application's
Chargehand object. Django's server enqueues; `manage.py chargehand work` runs the workers beside it.
"""

from typing import Any, TypeVar, Unpack

import django
from django.apps import AppConfig, apps
from django.db import transaction

from chargehand import handler
from chargehand.crew import Crew, JobOptions, Ref
from chargehand.ids import new_id

Payload = TypeVar("Payload")
Result = TypeVar("Result")
SETTING = "CHARGEHAND"
"""The setting that names the application's Chargehand object."""

if handler.inside_worker and not apps.ready:
    django.setup()  # the module of a handler imports this package before it imports models


class ChargehandConfig(AppConfig):
    """The application of Django that provides the command."""

    name = "chargehand.django"
    label = "chargehand"
    verbose_name = "Chargehand"


def on_commit(
    crew: Crew[Payload, Result], payload: Payload, *, using: str | None = None, **options: Unpack[JobOptions]
) -> Ref[Result]:
    """Enqueues a job when the current transaction of Django's database commits; at once if there is none.

    The job is checked now. It is lost if the process is killed between the commit and the enqueue; where both are in
    one PostgreSQL database, `crew.enqueue(…, within=connection.connection)` commits them together instead.
    """
    given: Any = crew
    if not isinstance(given, Crew):
        raise TypeError(
            f"on_commit() takes what hand.crew(…) returned, then the payload: on_commit(ship, order.pk), not {given!r}"
        )
    job = crew.new_job(payload, id=new_id(), **options)  # errors belong to this line, not to the commit
    database: Any = transaction  # Django has no types
    database.on_commit(lambda: crew.enqueue_new(job, options.get("flow")), using=using)
    return crew.ref(job.id)
