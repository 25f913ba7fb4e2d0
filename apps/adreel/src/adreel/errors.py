"""Exceptions of Adreel. Imported everywhere; must not import anything heavy."""

DISK_FULL = "disk-full"
"""The code of errors that are due to a full disk; StoreError of Chargehand has the same."""

STORAGE = "storage"
"""The code of errors that are due to a data folder that cannot be used: read-only, another owner's, or not there."""


class AdreelError(Exception):
    """Base class of the exceptions raised by the service half of Adreel."""


class Refused(AdreelError):
    """A request cannot be served: `status` is the HTTP status, `code` is for programs, the text for people."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


class NoSuchFilm(Refused):
    """There is no film with this id, or no longer."""

    def __init__(self, film: str) -> None:
        super().__init__(404, "no-such-job", f"there is no job {film[:200]!r}, or no longer")
