"""Exceptions of Tonearm. Imported everywhere; must not import anything heavy."""


class TonearmError(Exception):
    """Base class of all exceptions raised by Tonearm."""


class Undecodable(TonearmError):
    """No decoder can decode the file; `reason` contains the message of each decoder."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class WeightsError(TonearmError):
    """The weights of the networks are missing or invalid; the message says what to do."""


class LabelFileError(TonearmError):
    """The label file is invalid; the message says where."""
