"""The HTTP API, live events and the dashboard: `Chargehand.attach` mounts them, `chargehand serve` serves them.

Only this package imports FastAPI; the node and the workers import nothing from it.
"""
