"""HTTP, live events and the dashboard: `Chargehand.attach` puts them into FastAPI, `chargehand serve` runs them alone.

Only this package knows FastAPI; the node and the workers import nothing of it.
"""
