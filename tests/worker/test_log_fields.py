"""The fields of log records that a worker sends to the node."""

import json
import logging
from typing import Any

import pytest

from chargehand.worker.logs import FIELD_LIMIT, forward

SECRET = "s3cret-77"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Logs with these fields, and returns the fields that the node receives."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    assert forward(lambda: {"id": "j", "payload": {"token": SECRET}}, "mark", ["token"])

    def log(**fields: Any) -> dict[str, Any]:
        logging.getLogger("handler").error("message", extra=fields)
        line = capfd.readouterr().err
        record = json.loads(line[line.index("{") :])
        assert record["text"] == "handler: message"
        return record["extra"]

    return log


def test_a_field_without_a_text_does_not_lose_its_record(sent: Any) -> None:  # spec: HK-3
    assert sent(bad=Unprintable(), user=7) == {
        "bad": "<str() of Unprintable raised RuntimeError>", "user": 7,
    }  # fmt: skip


def test_fields_are_shown_without_hidden_values(sent: Any) -> None:  # spec: HK-4
    urls = [f"https://host/?token={SECRET}"]
    assert sent(urls=urls, request={"url": urls[0], "user": 7}, users=[7, "ab"]) == {
        "urls": '["https://host/?token=(hidden)"]',
        "request": '{"url": "https://host/?token=(hidden)", "user": 7}',
        "users": [7, "ab"],
    }


def test_a_hidden_value_is_not_cut_before_it_is_hidden(sent: Any) -> None:  # spec: HK-4
    before = "x" * (FIELD_LIMIT // 2 - 5)
    assert SECRET[:5] not in sent(text=before + SECRET + "y" * FIELD_LIMIT)["text"]
