"""Names of settings that processes need that read no settings. It imports nothing."""

PREFIX = "CHARGEHAND_"
ADMIN_KEY = "CHARGEHAND_ADMIN_KEY"
"""Not passed to nodes and workers: handlers must not see it."""
