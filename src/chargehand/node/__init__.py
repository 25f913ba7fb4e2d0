"""The node process: it supervises workers, claims and settles jobs, and serves those who call it."""
