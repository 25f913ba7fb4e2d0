"""The exception raised by the parsers of formats."""


class Malformed(Exception):
    """The file violates its format, so it cannot be preserved; the message says where."""
