"""The application: `uvicorn adreel.app:app` serves the API and the page, and works. Imports no media library."""

import sys

from adreel import crews, settings, web
from adreel.service import Service
from chargehand import ConfigurationError

try:
    found = settings.read()
    service = Service.on(found, crews.build(found))
except ConfigurationError as error:  # uvicorn would show a traceback
    sys.stderr.write(f"adreel: {error}\n")
    raise SystemExit(error.exit_code) from None
hand = service.crews.hand
"""For `chargehand work adreel.app:hand` and the other commands of Chargehand."""
app = web.create(service)
