"""A simulated caller that waits for an answer of the node: the token of its request."""


class Asking:
    """Stands for a connection: whether its caller still waits, and whether the request was committed."""

    def __init__(self) -> None:
        self.waits, self.done = True, False


def waits(token: Asking) -> bool:
    """Whether the caller still waits, as the shipped node asks its socket."""
    return token.waits
