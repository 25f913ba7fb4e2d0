"""The application: `uvicorn adreel.app:app` serves the API and the page, and works. Imports no media library."""

from adreel import crews, settings, web
from adreel.service import Service

found = settings.read()
service = Service.on(found, crews.build(found))
hand = service.crews.hand
"""For `chargehand work adreel.app:hand` and the other commands of Chargehand."""
app = web.create(service)
