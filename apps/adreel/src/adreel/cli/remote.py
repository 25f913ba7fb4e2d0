"""Speaks to a running server over HTTP; finds its address, and the token of this machine, by itself."""

import ipaddress
import re
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from adreel import names, settings
from adreel.crews import build
from adreel.errors import AdreelError

CHUNK = 1 << 18
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
PATIENCE = httpx.Timeout(30.0, write=None, read=120.0)


class Unavailable(AdreelError):
    """The server answers that it cannot serve now."""


class Gone(AdreelError):
    """The film was deleted."""


def address(given: str | None, known: settings.Settings) -> str:
    """Returns the address of the server: the given one, ADREEL_URL, or that of `adreel serve` on this machine."""
    try:
        return settings.address(given or known.url or f"http://127.0.0.1:{known.port}").rstrip("/")
    except ValueError:
        raise AdreelError(f"--url is {given!r}; must be an address such as http://127.0.0.1:8356") from None


def key(given: str | None, known: settings.Settings, where: str) -> str | None:
    """Returns the key to send: the given one, ADREEL_KEY, CHARGEHAND_ADMIN_KEY, or the token of this machine.

    The token allows everything on this machine: other machines get it only if they share the store.
    """
    if given:
        try:
            return settings.secret(given)
        except ValueError:
            raise AdreelError("--key is not a key: it has blanks, or characters that are not ASCII") from None
    if known.key:
        return known.key
    hand = build(known).hand
    try:
        if hand.settings.admin_key is not None:
            return hand.settings.admin_key.value
        if not is_here(where) and not hand.url.startswith("postgres"):
            return None
        return hand.with_token("").removeprefix("#token=") or None
    finally:
        hand.close()


def is_here(where: str) -> bool:
    """Returns whether an address is one of this machine."""
    host = urlsplit(where).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", socket.gethostname().lower())


@contextmanager
def server(url: str | None, secret: str | None) -> Generator["Server"]:
    """Connects to the server. Raises AdreelError, in words, if it does not answer."""
    known = settings.read()
    where = address(url, known)
    found = key(secret, known, where)
    headers = {} if found is None else {"Authorization": f"Bearer {found}"}
    try:
        with httpx.Client(base_url=where, headers=headers, timeout=PATIENCE) as client:
            yield Server(client)
    except httpx.ConnectError as error:
        raise AdreelError(
            f"no server answers at {where}: start `adreel serve` or `uvicorn adreel.app:app`, or name its address with "
            "--url or ADREEL_URL"
        ) from error
    except httpx.TransportError as error:
        raise AdreelError(f"the connection to {where} was lost: {error or type(error).__name__}") from error


def film_path(film: str) -> str:
    """Returns the path of a film. Raises AdreelError if its id would name another path of the server."""
    if not _ID.fullmatch(film):
        raise AdreelError(f"{film[:100]!r} is not the id of a film: `adreel status` shows the ids")
    return f"/jobs/{film}"


class Server:
    """The routes that the commands use."""

    def __init__(self, client: httpx.Client) -> None:
        self._http = client

    def ask(self, method: str, path: str, **how: Any) -> Any:
        """Returns the decoded answer; None if it is empty. Raises AdreelError with the server's own words."""
        answer = self._http.request(method, path, **how)
        if answer.is_success:
            return answer.json() if answer.content and "json" in answer.headers.get("content-type", "") else answer.text
        raise AdreelError(_refusal(answer))

    def submit(self, path: Path, sent: Callable[[int], None]) -> dict[str, Any]:
        """Uploads a file; `sent` is called with the number of bytes of each part."""

        def parts() -> Iterator[bytes]:
            with path.open("rb") as file:
                while part := file.read(CHUNK):
                    yield part
                    sent(len(part))

        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(path.stat().st_size)}
        return self.ask("POST", "/jobs", params={"name": names.shown(path.name)}, content=parts(), headers=headers)

    def follow(self, film: str) -> Iterator[dict[str, Any]]:
        """Yields the states of a film until it has ended. Raises Gone if it is deleted."""
        with self._http.stream("GET", f"{film_path(film)}/events") as answer:
            if not answer.is_success:
                answer.read()
                away = Unavailable if answer.status_code >= 500 else AdreelError
                raise (Gone if answer.status_code == 404 else away)(_refusal(answer))
            kind = ""
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: ") and kind == "gone":
                    raise Gone(f"the film {film} was deleted")
                elif line.startswith("data: "):
                    yield msgspec.json.decode(line.removeprefix("data: "))


def _refusal(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {answer.status_code}"
