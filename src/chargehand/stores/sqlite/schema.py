"""The scripts that make and extend the schema.

They are read when the module is imported, not when a store is opened: `importlib.resources` imports modules of its own,
and a process that is forked during an import would wait forever for the lock of the module.
"""

import hashlib
from collections.abc import Iterator
from importlib import resources


def _scripts(*folder: str) -> Iterator[tuple[str, tuple[str, str]]]:
    found = resources.files("chargehand.stores.sqlite").joinpath(*folder)
    for file in sorted(found.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            text = file.read_text("utf-8")
            yield file.name.removesuffix(".sql"), (text, hashlib.sha256(text.encode()).hexdigest())


MIGRATIONS = [step for _, step in _scripts("migrations")]
"""The steps from an empty file to the present schema version, each with its checksum.

Code that knows fewer of them refuses the store.
"""

ADDITIONS = dict(_scripts("migrations", "additions"))
"""The steps that older code of the same schema version can ignore, by name, each with its checksum."""
