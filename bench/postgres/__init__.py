"""Measures the store on PostgreSQL, with a server of its own: `python -m bench --store postgres`."""
