"""The scripts that make and extend the schema.

They are read without `importlib.resources`, whose import takes as long as that of the rest of the store.
"""

from collections.abc import Iterator
from pathlib import Path

from chargehand.system.sha256 import sha256


def _scripts(*folder: str) -> Iterator[tuple[str, tuple[str, str]]]:
    for file in sorted(Path(__file__).parent.joinpath(*folder).glob("*.sql")):
        text = file.read_text("utf-8")
        yield file.stem, (text, sha256(text.encode()).hexdigest())


MIGRATIONS = [step for _, step in _scripts("migrations")]
"""The steps from an empty file to the present schema version, each with its checksum.

Code that knows fewer of them refuses the store.
"""

ADDITIONS = dict(_scripts("migrations", "additions"))
"""The steps that older code of the same schema version can ignore, by name, each with its checksum."""
