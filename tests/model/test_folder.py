"""Which folders a store may be in, by mode, owner and user."""

import pytest

from chargehand.model.folder import Flaw, flaw_of

ROOT, ANNA, BERT = 0, 1000, 1001


@pytest.mark.parametrize(
    ("mode", "owner", "me", "flaw"),
    [
        (0o700, ANNA, ANNA, None),
        (0o755, ANNA, ANNA, None),
        (0o755, ROOT, ANNA, None),
        (0o700, BERT, ROOT, None),  # a volume of another user in a container
        (0o775, ANNA, ANNA, Flaw.GROUP),
        (0o775, BERT, ROOT, Flaw.GROUP),
        (0o755, BERT, ANNA, Flaw.FOREIGN),
        (0o770, BERT, ANNA, Flaw.FOREIGN),
        (0o777, ANNA, ANNA, Flaw.EVERYBODY),
        (0o1777, ROOT, ANNA, Flaw.EVERYBODY),  # /tmp
        (0o1777, ROOT, ROOT, Flaw.EVERYBODY),
        (0o702, ANNA, ANNA, Flaw.EVERYBODY),
    ],
)
def test_folders_of_a_store(mode: int, owner: int, me: int, flaw: Flaw | None) -> None:  # spec: SE-7
    assert flaw_of(0o040000 | mode, owner, me) is flaw
