"""The one thing that the readers of formats raise."""


class Malformed(Exception):
    """The file is not built as its format demands, so it cannot be kept as it is; the message says where."""
