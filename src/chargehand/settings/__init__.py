"""The settings of an application: read from code, files and the environment, and checked once."""

from chargehand.settings.known import ADMIN_KEY, Settings
from chargehand.settings.layers import read
from chargehand.settings.reading import Secret
from chargehand.settings.staffing import Declared, threads, workers

__all__ = ["ADMIN_KEY", "Declared", "Secret", "Settings", "read", "threads", "workers"]
