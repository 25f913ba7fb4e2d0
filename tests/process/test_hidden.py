"""Fields that a crew hides by name: in no page, event, log, bundle or answer of the command line."""

import json
import tarfile
from typing import Any

import pytest
from operating import become, command, serving
from world import World

from chargehand import Chargehand, JobFailed
from chargehand.testing import eventually

SECRET = "tok-5ecr3t-7741"
CREWS = "hand.crew('account', 'hidden_handlers:Account', workers=1, hide=['token'])"


def test_hidden_fields_are_in_no_output(world: World) -> None:  # spec: HK-4
    with serving(world, CREWS, CHARGEHAND_LOG="json") as served:
        become(served.hand, "healthy")
        # This process declares the crew without `hide`: readers learn from the store what the node's crew hides.
        account: Any = served.hand.crew("account", "hidden_handlers:Account", takes=dict)
        sent = {"token": SECRET, "more": [{"Token": SECRET}], "user": 7}
        with served.hand.flow("sign-in") as flow:
            ref = flow.enqueue(account, sent, meta={"token": SECRET, "from": "test"})
        returned = {"token": SECRET, "used": [{"TOKEN": SECRET}], "meta": {"token": SECRET, "from": "test"}, "user": 7}
        assert ref.wait(30) == returned, "handlers and callers receive everything"
        events = [event for event in _events_of(served.hand, ref.id) if event["type"] == "job_update"]
        assert events[-1]["job"]["result"]["user"] == 7
        assert SECRET not in json.dumps(events)
        failing = account.enqueue({**sent, "fails": True}, max_attempts=1)
        with pytest.raises(JobFailed, match=r"the token \(hidden\) is refused"):
            failing.wait(30)
        record: Any = eventually(
            lambda: _record(served.log.read_text()), what="the record of the handler is in the log"
        )
        assert (record["token"], record["request"], record["user"]) == ("(hidden)", {"Token": "(hidden)"}, 7)
        shown = json.loads(command(world, "jobs", "show", ref.id, "--json").stdout)
        assert shown["payload"] == {"token": "(hidden)", "more": [{"Token": "(hidden)"}], "user": 7}
        assert shown["meta"] == {"token": "(hidden)", "from": "test"}
        assert (shown["result"]["used"], shown["result"]["user"]) == ([{"TOKEN": "(hidden)"}], 7)
        bundle = world.folder / "bundle.tar.gz"
        for words in (
            ["jobs", "show", ref.id], ["jobs", "show", failing.id], ["jobs", "list"], ["jobs", "list", "--json"],
            ["jobs", "list", "--groups"], ["logs", "--json"],
            ["flows", "show", flow.id, "--json"], ["status", "--json"], ["claims", "--json"],
            ["doctor", "--json"], ["doctor", "--bundle", str(bundle)],
        ):  # fmt: skip
            told = command(world, *words)
            assert SECRET not in told.stdout + told.stderr, words
        refused = command(world, "jobs", "list", f"payload.more.token:~{SECRET[:4]}")
        assert refused.returncode == 2
        assert "the crew of queue 'account' hides the field 'token'" in refused.stderr
        with tarfile.open(bundle) as packed:
            for member in packed:
                file = packed.extractfile(member)
                assert file is None or SECRET.encode() not in file.read(), member.name
        assert SECRET not in served.log.read_text()


def test_hidden_values_are_not_in_the_reasons_of_dead_workers(world: World) -> None:  # spec: HK-4 WP-12 RP-5
    with serving(world, CREWS) as served:
        become(served.hand, "healthy")
        account: Any = served.hand.crew("account", "hidden_handlers:Account", takes=dict)
        account.enqueue({"token": SECRET, "ends": "broken"})
        eventually(lambda: served.logged("the token (hidden) broke it"), what="the broken worker is in the log")
        account.enqueue({"token": SECRET, "ends": "unrecoverable"}, priority=1)
        become(served.hand, "failed")
        for words in (["crashes", "--json"], ["status", "--json"], ["doctor", "--json"], ["jobs", "list", "--json"]):
            told = command(world, *words)
            assert SECRET not in told.stdout + told.stderr, words
        assert "the token (hidden) is not for this machine" in command(world, "status", "--json").stdout
        assert SECRET not in served.log.read_text()


def _record(log: str) -> Any:
    """The record that the handler has logged."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{") and line.endswith("}")]
    return next((line for line in lines if line.get("logger") == "account"), None)


def _events_of(hand: Chargehand, job: str) -> list[dict[str, Any]]:
    """The events of a job that has ended."""
    found: list[dict[str, Any]] = []
    for event in hand.subscribe(f"job:{job}"):
        found.append(event)
        if event.get("job", {}).get("state") == "done":
            return found
    return found
