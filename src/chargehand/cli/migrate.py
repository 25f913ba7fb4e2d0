"""`chargehand migrate`: brings the schema of a store up to date."""

from chargehand.cli import find, show
from chargehand.errors import ConfigurationError
from chargehand.host.operations import Operations


def migrate(app: find.App = None, store: find.Store = None, json: find.Json = False) -> None:
    """Migrate the store to the schema of this version, and show from which version to which.

    Every process that opens a store does the same. Make a backup first: an older version refuses a migrated store.
    """
    service = find.service(app, store)
    if not isinstance(service, Operations):
        raise ConfigurationError(f"a store cannot be migrated over HTTP ({service.address}): do it on its machine")
    done = service.migrate()
    if json:
        show.json(done)
        return
    added = f"; added: {', '.join(done.additions)}" if done.additions else ""
    if done.before == done.after:
        text = f"has schema {done.after}{added}" if added else f"has schema {done.after} already: nothing to do"
    else:
        text = f"was migrated from schema {done.before} to {done.after}{added}"
    show.line(f"{show.safe(service.address)} {text}")
