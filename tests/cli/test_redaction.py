"""What a bug report leaves out: the words of handlers and their callers, and whatever looks like a secret."""

import json
from typing import Any

import pytest

from chargehand.doctor.bundle import _codes
from chargehand.doctor.redaction import Hiding, log_line, without_words
from chargehand.model.doctor.causes import Finding, Severity
from chargehand.model.doctor.diagnosis import Diagnosis

WORDS = "Nightingale"
"""Stands for the name of a patient, in whatever a handler raises, prints or reports."""


@pytest.mark.parametrize(
    "text",
    [
        "the key is ch_Zm9vYmFyYmF6cXV4eHl6enk", "Authorization: Bearer Zm9vYmFyYmF6", "?password=Zm9vYmFyYmF6&x=1",
        "http://localhost:8356/dashboard#token=Zm9vYmFyYmF6", '{"api_key": "Zm9vYmFyYmF6"}', "AWS_SECRET: Zm9vYmFyYmF6",
        "postgres://anna:Zm9vYmFyYmF6@db/x", "postgresql://anna:a/b@Zm9vYmFyYmF6@db/x",
        "eyJhbGciOiJI.Zm9vYmFyYmF6.c2ln", "named in the environment: Zm9vYmFyYmF6",
        "-----BEGIN RSA PRIVATE KEY-----\nZm9vYmFyYmF6\n-----END RSA PRIVATE KEY-----", "basic Zm9vYmFyYmF6",
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:  # spec: SE-4
    hide = Hiding({"MY_TOKEN": "Zm9vYmFyYmF6"} if "environment" in text else {})
    assert "Zm9v" not in json.dumps(hide({text: [text]}))


def test_what_is_no_secret_stays() -> None:
    text = "worker spawned component=worker:tag:0 pid=4711; a search for keys; chargehand.db; ch_1"
    assert Hiding({"HOME": "worker", "A_KEY": "short"})(text) == text


def test_no_words_of_a_handler_are_left() -> None:  # spec: SE-4
    crash = {
        "id": "c1", "reason": "crash", "text": f"ValueError: {WORDS}", "job": f"tag/{WORDS}.mp3", "signal": 11,
        "lines": [WORDS, WORDS.lower()], "frames": [WORDS], "stacks": "File x.py, line 3 in perform",
    }  # fmt: skip
    worker = {
        "component": "worker:tag:0", "reason": WORDS, "text": WORDS, "current_job": f"tag/{WORDS}",
        "batch_jobs": [f"tag/{WORDS}"], "progress": {"done": 1, "detail": WORDS, "stage": WORDS},
    }  # fmt: skip
    found: Any = without_words(
        {"workers": [worker], "crashes": [crash], "breakers": {"tag": WORDS}, "verdict": {"reasons": [WORDS]}}
    )
    assert WORDS.lower() not in json.dumps(found).lower()
    assert found["crashes"][0] == {
        "id": "c1", "reason": "crash", "text": "ValueError (23 characters)", "job": "tag/…", "signal": 11,
        "lines": ["(11 characters)"] * 2, "frames": ["(11 characters)"], "stacks": "File x.py, line 3 in perform",
    }  # fmt: skip
    assert found["workers"][0]["progress"]["done"] == 1


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"event": "worker-output", "component": "worker:tag:0", "text": WORDS}, "(11 characters)"),
        ({"component": "worker:tag:0", "text": WORDS}, "(11 characters)"),  # of version 0.1.0
        ({"event": "job-failed", "job": f"tag/{WORDS}", "text": f"job failed queue=tag error={WORDS}"},
         "job failed queue=tag ***"),
        ({"event": "worker-exited", "component": "worker:tag:0", "text": f"worker exited pid=1 reason={WORDS}"},
         "worker exited pid=1 ***"),
        ({"event": None, "component": None, "text": f"blind crew=tag error={WORDS}"}, "blind crew=tag ***"),
        ({"event": "breaker-opened", "text": f"opened crew=tag why={WORDS}"}, "opened crew=tag ***"),
        ({"event": None, "text": "the store fails why=disk full"}, "the store fails why=disk full"),
    ],
)  # fmt: skip
def test_log_lines(entry: dict[str, Any], text: str) -> None:  # spec: SE-4
    found = log_line(entry)
    assert found["text"] == text
    assert WORDS not in json.dumps(found)


def test_a_diagnosis_is_left_with_its_codes() -> None:  # spec: SE-4
    finding = Finding(
        severity=Severity.ERROR, cause="given-up", about=f"tag/{WORDS}", text=WORDS, remedy=WORDS, short=WORDS
    )
    found = Diagnosis(store="/srv/chargehand.db", status=Severity.ERROR, headline=WORDS, findings=(finding,))
    assert _codes(found) == {
        "store": "/srv/chargehand.db", "status": "error", "at_ms": 0,
        "findings": [{"severity": "error", "cause": "given-up", "about": "tag/…"}],
    }  # fmt: skip
