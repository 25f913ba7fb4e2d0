"""What can go wrong: one root, few leaves. Light: imported everywhere."""


class TonearmError(Exception):
    """The root of all that Tonearm raises itself."""


class Undecodable(TonearmError):
    """A file that no decoder gets through; `reason` says what each of them said."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class WeightsError(TonearmError):
    """The networks' weights are not there, or are not what they should be; the message says what to do."""


class LabelFileError(TonearmError):
    """A label file that says something impossible; the message says where."""
