"""Doctor's mind: the sentence for all, the order, the words; every cause from the smallest facts that show it."""

from typing import Any

import pytest

from chargehand.cli.main import app
from chargehand.model.doctor.causes import CAUSES, Severity, in_order
from chargehand.model.doctor.diagnosis import diagnose
from chargehand.model.doctor.facts import Facts, facts_of
from chargehand.model.doctor.wording import jobs, length, place_in, size, times

NOW = 1_800_000_000_000
STACKS = """Fatal Python error: Segmentation fault

Thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00008f (most recent call first):
  File "/srv/venv/lib/python3.11/site-packages/av/container/input.py", line 88 in decode
  File "/srv/app/tagging.py", line 12 in perform
"""


def moment(ms: int) -> str:
    """A clock that shows how long ago it was."""
    return f"02:11 ({(NOW - ms) // 60_000} min ago)"


def worker(index: int = 0, status: str = "healthy", **more: Any) -> dict[str, Any]:
    return {"component": f"worker:tag:{index}", "crew": "tag", "status": status, "ready_s": 100.0, **more}


def facts(*workers: dict[str, Any], **more: Any) -> Facts:
    """A store with a node that answers, and what else is wanted."""
    view = {"node": "n", "pid": 7, "version": "1.0", "workers": list(workers), **more.pop("view", {})}
    node = {"held": True, "pid": 7, "view": view, **more.pop("node", {})}
    plain: dict[str, Any] = {
        "path": "/srv/chargehand.db", "plain": True, "now_ms": NOW, "version": "1.0", "ground": {"exists": True},
        "node": node, "crews": [{"name": "tag", "queue": "tag", "workers": len(workers)}],
        "book": {"schema": 3, "knows": 3},
    }  # fmt: skip
    return facts_of({**plain, **more})


def causes(found: Facts) -> dict[str, Severity]:
    return {finding.cause: finding.severity for finding in diagnose(found, moment).findings}


def test_the_headline_of_the_night() -> None:  # spec: CL-4 RP-8
    failed = [worker(n, "failed", text="6 restarts in 300 s; the last: crash (signal 11, SIGSEGV)") for n in range(2)]
    since = NOW - 40 * 60_000
    crash = {"crew": "tag", "reason": "crash", "signal": 11, "at_ms": since, "where": place_in(STACKS)}
    found = facts(
        *failed,
        given_up=[{"component": "worker:tag:1", "crew": "tag", "reason": "x", "at_ms": since}],
        crashes=[crash],
        queues=[{"queue": "tag", "queued": 4102, "done": 9}],
        waiting={"tag": 38 * 60_000},
    )
    diagnosis = diagnose(found, lambda _: "02:11")
    assert diagnosis.headline == (
        "not working since 02:11: tag, 2 of 2 given up, segfault in av (SIGSEGV); 4,102 waiting, the oldest 38 minutes"
    )
    assert diagnosis.findings[0].text == (
        "crew tag: 2 of 2 given up: 6 restarts in 300 s; the last: crash (signal 11, SIGSEGV)"
    )
    assert diagnosis.findings[0].remedy == ("chargehand crashes --crew tag has the reports; then chargehand reset tag")
    assert not diagnosis.well


@pytest.mark.parametrize(
    ("found", "headline"),
    [
        (facts(worker(), worker(1)), "nothing to do: 2 of 2 workers ready"),
        (
            facts(worker(status="asleep", reason="idle"), worker(1, "paused")),
            "nothing to do: 0 of 2 workers ready, 1 paused, 1 asleep",
        ),
        (
            facts(worker(current_job="j", job_s=5), last_done={"tag": NOW - 4000}),
            "working: 1 of 1 workers ready, 1 busy; the last job was done 4 seconds ago",
        ),
        (
            facts(worker(), queues=[{"queue": "tag", "queued": 12, "future": 12}]),
            "nothing to do: 1 of 1 workers ready, 12 jobs scheduled for later",
        ),
        (
            facts(worker(), queues=[{"queue": "join", "queued": 3, "following": 3}]),
            "nothing to do: 1 of 1 workers ready, 3 jobs waiting for other jobs",
        ),
        (
            facts(worker(), worker(1, status="paused"), queues=[{"queue": "tag", "queued": 1, "future": 1}]),
            "nothing to do: 1 of 2 workers ready, 1 paused, 1 job scheduled for later",
        ),
        (
            facts(worker(status="starting", started_s=1.0), waiting={"tag": 79_000}),
            "no job is running: 0 of 1 workers ready, but: tag is still loading; 1 waiting, the oldest 79 seconds",
        ),
        (
            facts(worker(flags=("stalled",), current_job="j"), view={"version": "0.9"}),
            "working: 1 of 1 workers ready, 1 busy, but: tag:0 is stalled (and 1 more)",
        ),
        (
            facts(node={"view": None, "held": False}, last_beat_ms=NOW - 60_000, waiting={"tag": 3000}),
            "not working since 02:11 (1 min ago): no node runs; 1 waiting, the oldest 3 seconds",
        ),
        (
            facts(node={"view": None, "held": False}, last_done={"tag": NOW - 120_000}),
            "not working since 02:11 (2 min ago): no node runs",
        ),
        (facts(node={"view": None, "process": {"pid": 7, "age_s": 1}}), "the node is starting"),
        (
            facts(
                worker(status="failed", text="x"),
                {**worker(), "crew": "scan", "component": "worker:scan:0"},
            ),
            "partly not working: tag, 1 of 1 given up, x",
        ),
        (
            facts(worker(), pauses=[{"scope": "*", "who": "olga", "since_ms": NOW - 60_000}], waiting={"tag": 5000}),
            "not working since 02:11 (1 min ago): everything paused by olga; 1 waiting, the oldest 5 seconds",
        ),
        (facts_of({"looked_in": ["here", "there"]}), "not working: no store"),
        (
            facts(stuck="file", patience=8.0, node={"view": None}),
            "not working: the store does not answer, and 1 more",
        ),
    ],
)
def test_headlines(found: Facts, headline: str) -> None:  # spec: CL-4
    assert diagnose(found, moment).headline == headline


@pytest.mark.parametrize(
    ("in_hand", "words"),
    [
        (1, "its job blocks the event loop; the timeout of the job applies"),
        (2, "one of its 2 jobs blocks the event loop, and the others wait; their timeouts apply"),
    ],
)
def test_a_blocked_loop_is_told_with_what_waits_for_it(in_hand: int, words: str) -> None:  # spec: WP-15 CL-4
    found = facts(worker(flags=("stalled",), current_job="j", concurrency=100, in_hand=in_hand))
    assert f"worker:tag:0 is stalled: {words}" in [finding.text for finding in diagnose(found, moment).findings]


def on(**server: Any) -> Facts:
    """A store on a server, with a node that answers."""
    return facts(worker(), path="postgresql://anna@db/app", server=server)


REPLACED = {
    "component": "worker:tag:0", "crew": "tag", "reason": "suspect",
    "text": "suspect: it failed 3 jobs in a row that others can do",
}  # fmt: skip
AWAITED = {"id": "j1", "queue": "tag", "label": "a.flac", "state": "queued"}
SMALLEST: dict[str, tuple[Facts, str]] = {
    "no-store": (facts(ground={"exists": False}, node={"held": False, "view": None}), "error"),
    "store-hung": (facts(stuck="tables", patience=8.0), "error"),
    "store-unusable": (facts(book={"knows": 3, "error": "it is damaged"}), "error"),
    "store-damaged": (facts(book={"knows": 3, "error": "it is damaged", "damaged": True}), "error"),
    "socket-gone": (facts(node={"view": None, "no_socket": True, "process": {"pid": 7, "age_s": 60}}), "warning"),
    **{
        cause: (on(error="it says why", code=cause), "error")
        for cause in ("bad-address", "no-driver", "server-gone", "server-starting", "bad-login", "no-database")
    },
    "no-connections": (on(error="too many clients", code="no-connections"), "error"),
    "server-refuses": (on(error="no", code="server-refuses"), "error"),
    "server-old": (on(version=130004, oldest=140000), "error"),
    "server-read-only": (on(recovery=True), "error"),
    "no-rights": (on(user="anna", lacks=["SELECT on chargehand_live"]), "error"),
    "old-snapshot": (on(snapshots=[{"pid": 9, "age_s": 301.0}]), "warning"),
    "dead-rows": (on(vacuum={"table": "chargehand_live", "dead": 50_000}), "warning"),
    "autovacuum-off": (on(settings={"autovacuum": "off"}, vacuum={"table": "chargehand_live"}), "warning"),
    "not-durable": (on(settings={"fsync": "off"}), "warning"),
    "node-gone": (on(gone=[{"name": "b", "heartbeat_ms": 60_000}]), "warning"),
    "clock-skew": (on(skew_ms=6000), "warning"),
    "driver-slow": (on(driver="python"), "warning"),
    "nodes-elsewhere": (
        facts(node={"held": False, "view": None}, server={"peers": [{"name": "b", "connected": True}]}),
        "note",
    ),
    "pooler": (on(pooled=True), "note"),
    "no-listen": (facts(worker(), view={"store": {"notified": False, "unnotified": "LISTEN is refused"}}), "note"),
    "sessions-hidden": (on(hidden=2, user="anna"), "note"),
    "poison": (facts(worker(), poison=[{"id": "j", "queue": "tag", "crashes": 2, "state": "queued"}]), "warning"),
    "replaced": (facts(worker(), replaced=[{**REPLACED, "at_ms": NOW}]), "warning"),
    "failing": (facts(worker(), replaced=[{**REPLACED, "at_ms": NOW, "failed_since": 3}]), "error"),
    "schema-new": (facts(book={"schema": 4, "knows": 3}), "error"),
    "schema-old": (facts(book={"schema": 2, "knows": 3}), "warning"),
    "node-elsewhere": (facts(node={"view": None, "elsewhere": True}), "error"),
    "node-stopped": (facts(node={"view": None, "process": {"pid": 7, "state": "T"}}), "error"),
    "not-allowed": (facts(node={"view": None, "refused": True}), "error"),
    "node-silent": (facts(node={"view": None, "listens": True, "process": {"pid": 7, "age_s": 1}}), "error"),
    "node-starting": (facts(node={"view": None, "process": {"pid": 7, "age_s": 1}}), "note"),
    "node-stopping": (facts(worker(), view={"stopping": "SIGTERM"}), "warning"),
    "file-gone": (facts(worker(), node={"gone_file": True}), "error"),
    "disk-full": (facts(worker(), ground={"exists": True, "free": 1000}), "error"),
    "store-locked": (facts(worker(), lock={"seconds": 2.0, "holder": {"pid": 9}}), "error"),
    "former-primary": (
        facts(worker(), view={"store": {"failing": "old", "code": "former-primary"}}),
        "error",
    ),
    "store-failing": (facts(worker(), view={"store": {"failing": "no room"}}), "error"),
    "store-slow": (facts(worker(), view={"store": {"waiting_s": 4}}), "warning"),
    "no-node": (facts(node={"view": None, "held": False}), "error"),
    "node-dies": (
        facts(
            node={
                "view": None,
                "held": False,
                "restarts": {"host": 3, "deaths": 9, "window": 300.0, "last": "signal 9", "at_ms": NOW + 4000},
            }
        ),
        "error",
    ),
    "paused": (facts(worker(), pauses=[{"scope": "tag", "who": "o"}], waiting={"tag": 1}), "error"),
    "given-up": (facts(worker(status="failed", text="x")), "error"),
    "blind": (facts(worker(), view={"blind": {"tag": "RuntimeError: no such table: song"}}), "error"),
    "breaker": (facts(worker(status="crashed", text="x"), view={"breakers": {"tag": "x"}}), "error"),
    "backoff": (facts(worker(status="crashed", text="x", restart_in_s=3)), "error"),
    "no-room": (facts(worker(status="stopped", text="x", shortage="temporary")), "warning"),
    "loading": (facts(worker(status="starting", started_s=9), waiting={"tag": 1}), "warning"),
    "stopped": (facts(worker(status="stopped", reason="drained"), waiting={"tag": 1}), "error"),
    "no-workers": (facts(waiting={"tag": 1}), "error"),
    "no-crew": (facts(worker(), waiting={"typo": 1}), "error"),
    "folder-shared": (facts(worker(), ground={"exists": True, "shared": True}), "note"),
    "network": (facts(worker(), ground={"exists": True, "network": True, "filesystem": "nfs4"}), "warning"),
    "two-stores": (facts(worker(), others=[{"path": "/b.db", "why": "CHARGEHAND_URL"}]), "note"),
    "unkillable": (facts(worker(), view={"unkillable": [{"component": "worker:tag:0", "pid": 3}]}), "warning"),
    "stuck": (facts(worker(flags=("unresponsive",), current_job="j")), "warning"),
    "crashing": (facts(worker(restart_count=4, budget={"rapid_left": 1, "lifetime_left": 9})), "warning"),
    "version-skew": (facts(worker(), view={"version": "0.9"}), "warning"),
    "orphans": (facts(node={"view": None, "held": False}, orphans=[{"pid": 3, "component": "w"}]), "warning"),
    "clock": (facts(worker(), newest_ms=NOW + 60_000), "warning"),
    "unread": (facts(worker(), refused={"pauses": "no such table"}), "warning"),
    "unexplained": (facts(worker(), waiting={"tag": 60_000}), "warning"),
    "busy": (facts(worker(current_job="j", job_s=9), waiting={"tag": 60_000}), "note"),
    "rate": (facts(worker(), queues=[{"queue": "tag", "queued": 3, "limited": 1, "rate_next_ms": 5000}]), "note"),
    "limit": (facts(worker(), queues=[{"queue": "tag", "queued": 3, "limited": 3, "running": 1}]), "note"),
    "awaits-held": (
        facts(
            worker(),
            pauses=[{"scope": "tag", "who": "o"}],
            queues=[{"queue": "join", "queued": 2, "following": 2}],
            awaited={"join": AWAITED},
        ),
        "error",
    ),
    "flow-held": (
        facts(
            worker(status="failed", text="x"),
            waiting_flows=[{"id": "f1", "name": "summer.mp4", "waiting": 3, "awaited": AWAITED}],
        ),
        "error",
    ),
    "following": (
        facts(worker(), queues=[{"queue": "join", "queued": 2, "following": 2}], awaited={"join": AWAITED}),
        "note",
    ),
    "future": (facts(worker(), queues=[{"queue": "tag", "queued": 3, "future": 3}], next_run={"tag": 5000}), "note"),
    "failed-jobs": (facts(worker(), queues=[{"queue": "tag", "failed": 3}]), "note"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_is_found(cause: str) -> None:  # spec: CL-4
    found, severity = SMALLEST[cause]
    assert causes(found)[cause] == severity
    (finding, *_) = [finding for finding in diagnose(found, moment).findings if finding.cause == cause]
    assert all((finding.text, finding.remedy, finding.short, finding.about))
    assert not any(word in finding.text + finding.remedy for word in ("fence", "incarnation", "settle"))


@pytest.mark.parametrize(("in_ms", "said"), [(-5, "1 second"), (400, "1 second"), (1001, "2 seconds")])
def test_a_rate_never_opens_in_no_time(in_ms: int, said: str) -> None:  # spec: WK-19 CL-4
    row = {"queue": "tag", "queued": 3, "limited": 1, "rate_next_ms": NOW + in_ms}
    (found,) = (each for each in diagnose(facts(worker(), queues=[row]), moment).findings if each.cause == "rate")
    assert found.short == f"tag is limited by rate, next in {said}"


def test_nothing_is_found_where_nothing_is() -> None:  # spec: CL-4
    assert causes(facts(worker(), worker(1))) == {}
    assert causes(facts(worker(status="paused"), worker(status="asleep", reason="idle"))) == {}


@pytest.mark.parametrize(
    ("found", "absent"),
    [
        (facts(worker(), waiting={"tag": 60_000}, pauses=[{"scope": "tag", "who": "o"}]), "unexplained"),
        (facts(worker(ready_s=3.0), waiting={"tag": 60_000}), "unexplained"),
        (
            facts(worker(), worker(1, current_job="j"), waiting={"tag": 60_000}, last_done={"tag": NOW - 400}),
            "unexplained",
        ),
        (facts(worker(), lock={"seconds": 2.0, "holder": {"pid": 7}}), "store-locked"),  # the node itself writes
        (facts(worker(status="starting"), worker(1)), "loading"),
        (facts(worker(status="stopped", reason="stopped"), worker(1), waiting={"tag": 1}), "stopped"),
        (facts(worker(), others=[{"path": "/b.db", "why": "a running node", "pid": 9}]), "two-stores"),
        (facts(ground={"exists": False}, node={"held": False, "view": None}), "no-node"),
        (facts(worker(), ground={"exists": True, "free": 1 << 40}), "disk-full"),
    ],
)
def test_what_explains_itself_is_not_named(found: Facts, absent: str) -> None:
    assert absent not in causes(found)


def found_text(found: Facts, cause: str) -> tuple[str, str]:
    (finding,) = [finding for finding in diagnose(found, moment).findings if finding.cause == cause]
    return finding.text, finding.remedy


def test_a_second_application_on_the_store_is_no_remedy_for_a_queue_without_a_crew() -> None:  # spec: CL-4
    _, remedy = found_text(facts(worker(), waiting={"typo": 1}), "no-crew")
    assert "a second one on the same store only waits" in remedy
    assert "own store" in remedy


def broken(**ground: Any) -> Facts:
    return facts(
        node={"held": False, "view": None}, ground={"exists": True, **ground},
        book={"knows": 3, "error": "malformed", "damaged": True},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (facts(ground={"exists": True, "size": 0}, book={"schema": 0, "knows": 3}), "is empty (0 bytes): it was"),
        (broken(size=60_000, expected=172_032), "is truncated: 60,000 of 172,032 bytes are left"),
        (broken(size=172_032, expected=172_032, header_damaged=True), "the header of /srv/chargehand.db is damaged"),
        (broken(size=172_032, expected=172_032), "malformed"),
        (facts(worker(), ground={"exists": True, "log_damaged": True}), "(/srv/chargehand.db-wal) is damaged: SQLite"),
    ],
)
def test_a_damaged_store_is_not_called_old_or_unserved(found: Facts, text: str) -> None:  # spec: CL-4
    said, remedy = found_text(found, "store-damaged")
    assert text in said
    assert "restore a backup" in remedy
    assert set(causes(found)) == {"store-damaged"}


def test_a_file_that_grows_is_not_truncated() -> None:
    """The header is of another moment than the size: without an error of reading it proves nothing."""
    assert causes(facts(worker(), ground={"exists": True, "size": 4096, "expected": 8192})) == {}


def test_who_holds_which_lock() -> None:  # spec: CL-4
    holder = {"pid": 9, "command": "sqlite3 chargehand.db"}
    waiting = {"store": {"waiting_s": 300}}
    found = facts(worker(), lock={"seconds": 1.0, "holder": holder, "engine": True}, view=waiting)
    text, remedy = found_text(found, "store-locked")
    assert text == (
        "pid 9 (sqlite3 chargehand.db) has held SQLite's write lock of /srv/chargehand.db for more than 5 minutes: "
        "no other process can write"
    )
    assert remedy == "end its transaction (COMMIT or ROLLBACK), or: kill -TERM 9"
    found = facts(worker(), lock={"seconds": 1.0, "holder": holder})
    assert found_text(found, "store-locked")[1] == "let it finish, or: kill -TERM 9"


def test_poison_jobs_are_named() -> None:  # spec: CL-4
    rows = [{"id": f"j{n}", "queue": "tag", "crashes": 3, "state": "failed"} for n in range(5)]
    assert found_text(facts(worker(), poison=rows[:1]), "poison") == (
        "1 job crashed several workers: j0 (queue tag, 3 times)",
        "chargehand jobs show j0; chargehand crashes --job j0 has the reports; after the fix: chargehand jobs retry j0",
    )
    text, _ = found_text(facts(worker(), poison=rows), "poison")
    assert text.startswith("5 jobs crashed several workers: j0 (queue tag, 3 times), j1 (")
    assert "j2 (queue tag, 3 times) and 2 more" in text
    assert causes(facts(worker(), poison=rows)) == {"poison": Severity.NOTE}


@pytest.mark.parametrize(
    ("more", "awaited", "text", "remedy"),
    [
        ({"pauses": [{"scope": "tag", "who": "o"}]}, {}, "is paused", "chargehand resume tag"),
        ({"pauses": [{"scope": "*", "who": "o"}]}, {}, "is paused", "chargehand resume"),
        ({}, {"queue": "typo"}, "no crew serves", "declare its crew in the application that runs"),
        ({}, {"state": "failed", "reason": "raised"}, "has failed (raised)", "chargehand jobs retry j1"),
        ({}, {"state": "cancelled"}, "is cancelled", "chargehand jobs retry j1"),
        (
            {},
            {"state": "running", "started_ms": NOW - 180_000},
            "has been running for 3 minutes",
            "wait; chargehand jobs show j1",
        ),
        ({}, {"run_at_ms": NOW + 7_200_000}, "is due in 2 hours", "wait; chargehand jobs show j1"),
        ({}, {}, "is queued", "wait; chargehand jobs show j1"),
    ],
)
def test_what_the_jobs_of_a_queue_wait_for(  # spec: CL-4 FL-2
    more: dict[str, Any], awaited: dict[str, Any], text: str, remedy: str
) -> None:
    queues = [{"queue": "join", "queued": 12, "following": 12}]
    found = facts(worker(), queues=queues, awaited={"join": {**AWAITED, **awaited}}, **more)
    (finding,) = [each for each in diagnose(found, moment).findings if each.about == "join"]
    queue = awaited.get("queue", "tag")
    assert finding.text == f"queue join: 12 jobs wait for other jobs: for job j1 (a.flac, queue {queue}), which {text}"
    assert finding.remedy == remedy
    assert found.waits == 0, "they are not due"


def test_a_queue_whose_predecessors_were_given_up() -> None:  # spec: CL-4 FL-2
    queues = [{"queue": "join", "queued": 1, "following": 1}]
    found = facts(worker(status="failed", text="x"), queues=queues, awaited={"join": AWAITED})
    text, remedy = found_text(found, "awaits-held")
    assert text.endswith("for job j1 (a.flac, queue tag), which waits for crew tag, which was given up")
    assert remedy == "chargehand reset tag"


def test_flows_that_cannot_go_on_are_named() -> None:  # spec: CL-4 FL-4
    flows = [{"id": f"f{n}", "name": f"{n}.mp4", "waiting": 3, "awaited": AWAITED} for n in range(4)]
    held = facts(worker(), pauses=[{"scope": "tag", "who": "o"}], waiting_flows=flows)
    text, remedy = found_text(held, "flow-held")
    assert text.startswith("4 flows have no job that can run: 0.mp4 (f0), 1.mp4 (f1), 2.mp4 (f2) and 1 more; 0.mp4 ")
    assert text.endswith(" waits for job j1 (a.flac, queue tag), which is paused")
    assert remedy == "chargehand resume tag; chargehand flows show f0"
    assert causes(facts(worker(), waiting_flows=flows)) == {}, "the job is queued, and will be performed"


def test_an_open_breaker_is_told_with_the_last_error() -> None:  # spec: CL-4
    crash = {
        "crew": "tag",
        "reason": "set-up failed",
        "text": 'Traceback (most recent call last):\n  File "a.py", line 1, in set_up\nOSError: no model\n',
        "at_ms": NOW,
    }
    tried = {"breakers": {"tag": "set-up failed (exit code 5); only worker:tag:0 is restarted"}}
    text, _ = found_text(facts(worker(status="crashed", text="x"), view=tried, crashes=[crash]), "breaker")
    assert text == "crew tag: all workers crashed of one cause, so only one is restarted: OSError: no model"


def test_workers_that_nodes_elsewhere_gave_up() -> None:  # spec: CL-4 MN-1
    marks = [{"component": "worker:tag:0", "crew": "tag", "reason": "6 crashes", "node": name} for name in ("a", "b")]
    crash = {"crew": "tag", "reason": "set-up failed", "text": "OSError: no model", "at_ms": NOW}
    peers = [{"name": name, "connected": True} for name in ("a", "b")]

    def found(count: int, *living: dict[str, Any]) -> Facts:
        none = {"held": False, "view": None}
        crews = [{"name": "tag", "queue": "tag", "workers": 1}]
        return facts(node=none, server={"peers": living}, given_up=marks[:count], crashes=[crash], crews=crews)

    all_down = found(2, *peers)
    text, remedy = found_text(all_down, "given-up")
    assert text == "crew tag: 2 given up on a, b: OSError: no model"
    assert remedy == "chargehand crashes --crew tag has the reports; then chargehand reset tag"
    assert (causes(all_down)["given-up"], causes(found(1, *peers))["given-up"]) == ("error", "warning")
    gone = found(2, peers[1])
    assert found_text(gone, "given-up")[0] == "crew tag: 1 given up on b: OSError: no model"
    assert "the next node starts them only if" in found_text(found(2), "given-up")[0]


def test_replaced_workers() -> None:  # spec: CL-4 WP-13
    row = {**REPLACED, "at_ms": NOW - 120_000, "failed_since": 3}
    text, remedy = found_text(facts(worker(), replaced=[row]), "replaced")
    assert text == "worker:tag:0 was replaced 2 minutes ago: it failed 3 jobs in a row that others can do"
    assert remedy == "chargehand crashes --worker tag:0"
    done = facts(worker(), replaced=[row], last_done={"tag": NOW - 60_000})
    assert "failing" not in causes(done)
    assert "failing" not in causes(facts(worker(), replaced=[{**row, "failed_since": 2}]))
    # By the setting of the node; if none answers, by the default.
    assert "failing" not in causes(facts(worker(), view={"suspect_after": 4}, replaced=[row]))
    assert "failing" in causes(facts(worker(), view={"suspect_after": 2}, replaced=[{**row, "failed_since": 2}]))
    assert "failing" in causes(facts(node={"view": None}, replaced=[row]))
    raised = facts(worker(), replaced=[{**row, "error": "KeyError: 'artist'"}])
    text, _ = found_text(raised, "failing")
    assert text == "crew tag: 3 jobs failed and none was done since worker:tag:0 was replaced: KeyError: 'artist'"
    assert "every job of tag fails, KeyError: 'artist'" in diagnose(raised, moment).headline
    for at, begin in ((0, "not"), (NOW - 120_001, "not"), (NOW, "partly not")):  # as on a node elsewhere
        mail = facts(replaced=[row], last_done={"mail": at})
        assert diagnose(mail, moment).headline.startswith(f"{begin} working since")


def test_gravest_first_then_likeliest() -> None:  # spec: CL-4
    everything = [f for found, _ in SMALLEST.values() for f in diagnose(found, moment).findings]
    ordered = in_order(everything)
    faults = [f for f in ordered if f.cause != "paused"]
    ranks = [(list(Severity).index(f.severity), list(CAUSES).index(f.cause)) for f in faults]
    assert ranks == sorted(ranks)
    both = facts(
        worker(status="failed", text="x"), pauses=[{"scope": "*", "who": "o"}], waiting={"tag": 1}, newest_ms=NOW * 2
    )
    assert [f.cause for f in diagnose(both, moment).findings] == ["given-up", "clock", "paused"]


def test_a_deliberate_pause_is_never_above_a_fault() -> None:  # spec: CL-4 DB-6
    pauses = [{"scope": "scan", "who": "olga"}]
    found = diagnose(facts(worker(status="crashed"), worker(1), pauses=pauses, waiting={"scan": 1, "tag": 1}), moment)
    assert [finding.cause for finding in found.findings][-1] == "paused"
    assert "paused by olga" not in found.headline, found.headline


def test_remedies_name_the_store_where_it_is_not_the_plain_one() -> None:  # spec: CL-4
    found = facts(worker(status="crashed"), plain=False, path="/srv/a b/x.db")
    (finding,) = diagnose(found, moment).findings
    assert "chargehand reset tag --store '/srv/a b/x.db'" in finding.remedy


def test_every_command_of_a_remedy_exists() -> None:
    known = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    known |= {str(group.name) for group in app.registered_groups}
    texts = [finding.remedy for found, _ in SMALLEST.values() for finding in diagnose(found, moment).findings]
    texts += [remedy for _, remedy in CAUSES.values()]
    named = {words.split("chargehand ")[1].split()[0].strip("`,;)") for words in _commands(texts)}
    assert {"reset", "resume", "crashes", "scale", "work"} <= named <= known


def _commands(texts: list[str]) -> list[str]:
    return [f"chargehand {part}" for text in texts for part in text.split("chargehand ")[1:] if part[0].isalpha()]


def test_what_another_version_says_is_passed_over() -> None:
    strange = facts_of({"path": "/x", "node": {"held": True, "view": {"pid": "seven"}}, "unheard": 1, "queues": [{}]})
    assert set(strange.refused) == {"node", "queues"}
    assert not strange.node.held


def test_words() -> None:
    assert [length(s) for s in (-1, 0, 1, 42, 119, 120, 2280, 7200, 12_600, 90_000, 200_000)] == [
        "0 seconds", "0 seconds", "1 second", "42 seconds", "119 seconds", "2 minutes", "38 minutes", "2 hours",
        "3.5 hours", "25 hours", "2 days",
    ]  # fmt: skip
    assert (jobs(1), jobs(4102), times(1), times(2), times(3)) == ("1 job", "4,102 jobs", "once", "twice", "3 times")
    assert (size(5), size(3 << 20)) == ("5 bytes", "3.0 MiB")
    assert place_in(STACKS) == "av"
    assert place_in(STACKS.replace("site-packages/av/container/input.py", "ctypes/__init__.py")) == "ctypes"
    assert (
        place_in('Thread 0x1 (most recent call first):\n  File "/srv/app/tagging.py", line 12 in x')
        == "tagging.py, line 12"
    )
    assert place_in("") == place_in("Current thread 0x1 (most recent call first):\n  <no Python frame>") == ""
