"""Texts of any characters on any terminal."""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest

from chargehand.cli import show
from chargehand.codec import escape

NAME = "caf\udce9 ü \U0001f3b5.mp3"
encodings = pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])


def written(encoding: str, write: Callable[[], None]) -> str:
    """What is printed on a terminal with this encoding, which is prepared as by `streams.prepare`."""
    data = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(data, encoding, "backslashreplace", write_through=True)):
        write()
        return data.getvalue().decode(encoding)


@encodings
@pytest.mark.parametrize("write", [show.json, show.json_line])
def test_json_is_valid_in_every_encoding(encoding: str, write: Callable[[Any], None]) -> None:  # spec: CL-4
    assert json.loads(written(encoding, lambda: write({"item": escape(NAME)}))) == {"item": escape(NAME)}


@encodings
@pytest.mark.parametrize("name", [NAME, escape(NAME)], ids=["as the application has it", "as a store has it"])
def test_a_table_shows_the_bytes_of_a_name(encoding: str, name: str) -> None:  # spec: CL-4
    assert "caf\\xe9 " in written(encoding, lambda: show.table(("LABEL",), [(name,)]))
