"""SHA-256 of the interpreter itself. `hashlib` loads OpenSSL, which costs every node 1.4 MiB of memory and 3 ms."""

from typing import TYPE_CHECKING

__all__ = ["sha256"]

if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:  # an interpreter that was built without it
            from hashlib import sha256
