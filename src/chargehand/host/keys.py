"""API keys: made once, shown once, known afterwards by their digest alone."""

import hashlib
import secrets

PREFIX = "ch_"


def new_secret(prefix: str = PREFIX) -> str:
    """256 bits of chance, as text that can be pasted."""
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """What is kept of it. No salt and no stretching: there is nothing to guess in 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()
