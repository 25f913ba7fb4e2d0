"""The address of a PostgreSQL store: checked, taken apart, and shown without its password. It opens nothing."""

import re
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from chargehand.errors import ConfigurationError
from chargehand.system.sha256 import sha256

SCHEMES = ("postgresql", "postgres")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_SECRETS = ("password", "sslpassword")
EXAMPLE = "postgresql://user@host:5432/database"
_MALFORMED = (
    f"the URL of the store is malformed: it must look like {EXAMPLE}; in user names and passwords, write / : @ and % "
    "as %2F %3A %40 and %25"
)


class Address(msgspec.Struct, frozen=True):
    """Where a PostgreSQL store is."""

    url: str
    """The URL as it was given. It may contain a password."""
    conninfo: str
    """What libpq is given: the URL without the parameters that are Chargehand's own. It may contain a password."""
    schema: str | None
    """The schema of the tables; None: the first one in the user's search path."""
    shown: str
    """The URL for people and logs, without passwords."""

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    @property
    def digest(self) -> str:
        """A name for this store on this machine, independent of the password."""
        return sha256(self.shown.encode()).hexdigest()[:16]


def is_postgres(url: str) -> bool:
    """Returns whether the URL names a PostgreSQL store."""
    return url.partition(":")[0].lower() in SCHEMES and ":" in url


def parse(url: str) -> Address:
    """Returns the address. Raises ConfigurationError if the URL is malformed; the text contains no password."""
    try:
        parts = urlsplit(url)
        _ = parts.port if "," not in parts.netloc else None
    except ValueError:  # its text may contain a part of the password
        raise ConfigurationError(_MALFORMED) from None
    if not url.partition(":")[2].startswith("//"):
        raise ConfigurationError(_MALFORMED)
    asked = parse_qsl(parts.query, keep_blank_values=True)
    schema = next((value for name, value in asked if name == "schema"), None)
    if schema is not None and not _SCHEMA.fullmatch(schema):
        raise ConfigurationError(
            f"the schema {schema!r} in the URL of the store must consist of lower-case letters, digits and _"
        )
    user, at, hosts = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    public = [(key, value) for key, value in asked if key not in _SECRETS]
    shown = urlunsplit(
        ("postgresql", f"{name}{at}{hosts}", parts.path, urlencode(public, quote_via=quote, safe="/"), "")
    )
    ours = [(key, value) for key, value in asked if key != "schema"]
    secret = unquote(user.partition(":")[2]) if colon else None
    netloc = f"{name}:{quote(secret, safe='')}{at}{hosts}" if secret else f"{name}{at}{hosts}"
    conninfo = urlunsplit(("postgresql", netloc, parts.path, urlencode(ours, quote_via=quote), ""))
    return Address(url, conninfo, schema, shown)
