"""Where a server may listen: anywhere once a key exists, on this machine before that."""

from typing import TYPE_CHECKING

from chargehand.errors import ConfigurationError
from chargehand.web.auth import is_local_name
from chargehand.web.keyring import ADMIN, admin_key

if TYPE_CHECKING:
    from chargehand.app import Chargehand


def check_listening(hand: "Chargehand", host: str) -> None:
    """Refuse, in words, to listen where others can reach us while no key exists."""
    if is_local_name(host.strip("[]").lower()) or admin_key(hand) is not None or hand.api_keys():
        return
    raise ConfigurationError(
        f"listening on {host} would let others in, and no key exists yet: make one with `chargehand keys create NAME "
        f"--scope read --scope control` (or set {ADMIN}), or listen on 127.0.0.1"
    )
