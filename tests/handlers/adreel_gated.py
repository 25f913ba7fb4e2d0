"""Adreel with the stages of `adreel_gates`: `uvicorn adreel_gated:app`."""

from adreel import crews, settings, web
from adreel.service import Service

found = settings.read()
service = Service.on(found, crews.build(found, handlers="adreel_gates"))
hand = service.crews.hand
app = web.create(service)
