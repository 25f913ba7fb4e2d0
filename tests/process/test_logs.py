"""What the node and its workers say, how workers died, and what `status` shows of it all."""

import json
import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from operating import FAULTY, WRONG, answered, become, begin, command, end, pids, serving, together, workers
from world import World

from chargehand import CrashFilter
from chargehand.log import Event
from chargehand.testing import eventually

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CREWS = "\n".join(f"hand.crew('{name}', 'reporting_handlers:Talker', workers=1)" for name in ("talk", "other"))


@contextmanager
def following(world: World, *words: str) -> "Generator[subprocess.Popen[str]]":
    """`chargehand logs --follow`; ended with Ctrl+C."""
    process = begin("logs", "--follow", *words, "--store", str(world.store))
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        assert end(process).returncode == 0


def test_logs_by_worker_and_by_job(world: World) -> None:  # spec: WP-10 CL-3 CL-5
    with serving(world, CREWS) as served:
        become(served.hand, "healthy")
        talk, other = (served.hand.crew(name, "reporting_handlers:Talker") for name in ("talk", "other"))
        first = talk.enqueue({"lines": ["one of the first", "two \x1b[31mof the first"]})
        second = talk.enqueue({"lines": ["one of the second"]})
        third = other.enqueue({"lines": ["one of the third"]})
        for ref in (first, second, third):
            ref.wait(30)
        eventually(lambda: served.logged("one of the second") and served.logged("one of the third"))
        assert served.logged(
            f"event={Event.WORKER_OUTPUT}", "component=worker:talk:0", f"job={first.id}", "one of the first"
        )
        *known, unknown = together(
            world, "logs", "logs talk", "logs worker:other:0", f"logs --job {first.id}",
            "logs talk:0 -n 1", "logs -n 0", f"logs --job {second.id} --json", "logs talk --job nope",
        )  # fmt: skip
        assert {told.stderr for told in known} == {""}
        assert (unknown.returncode, unknown.stdout) == (0, "")
        assert unknown.stderr.startswith("hint: there is no job 'nope'")
        every, crew, worker, job, last, none, data = (told.stdout for told in known)
        for text in ("one of the first", "one of the second", "one of the third"):
            assert text in every
        for event in (Event.NODE_STARTED, Event.WORKER_SPAWNED):
            assert f"event={event}" in every
        assert [text in crew for text in ("of the first", "of the second", "of the third")] == [True, True, False]
        assert [text in worker for text in ("of the first", "of the third", Event.WORKER_READY)] == [False, True, True]
        lines = job.splitlines()
        assert len(lines) == 2
        assert lines[0].endswith(f"worker:talk:0 [{first.id}] one of the first")
        assert lines[1].endswith("two \\x1b[31mof the first")  # nobody's cursor is moved
        assert last.splitlines()[0].endswith("one of the second")
        assert (len(last.splitlines()), none) == (1, "")
        entry = json.loads(data)
        assert (entry["component"], entry["job"], entry["text"]) == ("worker:talk:0", second.id, "one of the second")
        assert set(entry) == {"at_ms", "component", "event", "job", "level", "text"}


def test_logs_follow(world: World) -> None:  # spec: CL-5
    with serving(world, CREWS) as served:
        become(served.hand, "healthy")
        talk, other = (served.hand.crew(name, "reporting_handlers:Talker") for name in ("talk", "other"))
        talk.enqueue({"lines": ["before"]}).wait(30)
        eventually(lambda: served.logged("before"))
        with following(world, "talk", "-n", "1") as plain, following(world, "talk:0", "-n", "1", "--json") as data:
            assert plain.stdout
            assert data.stdout
            assert plain.stdout.readline().rstrip().endswith("before")
            assert json.loads(data.stdout.readline())["text"] == "before"
            other.enqueue({"lines": ["of somebody else"]}).wait(30)
            ref = talk.enqueue({"lines": ["later"]})
            assert plain.stdout.readline().rstrip().endswith(f"worker:talk:0 [{ref.id}] later")
            assert json.loads(data.stdout.readline())["job"] == ref.id


# spec: HK-3
def test_a_record_of_a_handler_is_one_line_of_json_with_its_own_fields(world: World) -> None:
    crews = "hand.crew('record', 'reporting_handlers:Recorder', workers=1)"
    with serving(world, crews, CHARGEHAND_LOG="json") as served:
        become(served.hand, "healthy")
        crew = served.hand.crew("record", "reporting_handlers:Recorder")
        with served.hand.flow("album") as flow:
            ref = crew.enqueue({"song": 7, "mood": {"calm": 0.5}, "job": "own"}, flow=flow, traceparent=TRACE)
        ref.wait(30)
        eventually(lambda: served.logged("step 3 failed"))
        (line,) = [line for line in served.log.read_text().splitlines() if "step 3 failed" in line]
        told = command(world, "logs", "--job", ref.id)
    record = json.loads(line)
    exception = record.pop("exception")
    assert exception.splitlines()[0] == "Traceback (most recent call last):"
    assert exception.splitlines()[-1] == "KeyError: 'missing'"
    assert record.pop("ts")
    assert record == {
        "level": "error", "message": "step 3 failed", "component": "worker:record:0", "job": ref.id,
        "flow": flow.id, "trace": TRACE[3:35],
        "event": "worker-output", "logger": "songs", "song": 7, "mood": {"calm": 0.5}, "job_": "own",
    }  # fmt: skip
    first, *_, last = told.stdout.splitlines()
    assert first.endswith(f"flow={flow.id} trace={TRACE[3:35]} song=7 mood={{'calm': 0.5}} job_=own")
    assert "songs: step 3 failed" in first
    assert last.endswith("KeyError: 'missing'")


def test_logs_of_a_node_that_goes_away(world: World) -> None:  # spec: CL-3
    with serving(world, CREWS) as served:
        become(served.hand, "healthy")
        process = begin("logs", "-f", "--store", str(world.store))
        assert process.stdout
        assert process.stdout.readline()
    told = end(process)
    assert f"event={Event.NODE_STOPPING}" in told.stdout
    assert told.returncode == 1
    assert f"the node at {world.store} ended while its log was read" in told.stderr
    told = command(world, "logs")
    assert (told.returncode, told.stdout) == (1, "")
    assert "`chargehand crashes` has the last lines of crashed workers" in told.stderr


def test_many_long_lines(world: World) -> None:  # spec: SE-3 CL-5
    """As many as may be asked for come, however long they are."""
    with serving(world, CREWS) as served:
        become(served.hand, "healthy")
        talk = served.hand.crew("talk", "reporting_handlers:Talker")
        for _ in range(5):
            talk.enqueue({"lines": ["x" * 4000] * 240}).wait(60)
        eventually(lambda: served.log.read_text().count("x" * 4000) == 1200, 60)
        told = command(world, "logs", "talk", "-n", "5000")
        assert (told.returncode, told.stderr) == (0, "")
        assert told.stdout.count("x" * 4000) == 1200


def test_crashes(world: World) -> None:  # spec: WP-10 WP-8 CL-3
    with serving(world, f"hand.crew('faulty', '{FAULTY}', workers=2)") as served:
        become(served.hand, "healthy")
        faulty = served.hand.crew("faulty", FAULTY)
        ref = faulty.enqueue({"fault": "output", "lines": 2, "then": {"fault": "segfault"}})
        eventually(lambda: ref.job().state == "failed", 60)
        idle = pids(served.hand)["faulty:0"] or become(served.hand, "healthy")["faulty:0"]["pid"]
        os.kill(idle, signal.SIGKILL)
        eventually(lambda: len(served.hand.crashes()) == 4)
        reports = answered(world, "crashes")
        assert [report["job"] for report in reports] == [None, ref.id, ref.id, ref.id]
        newest = reports[1]
        assert (newest["reason"], newest["signal"], newest["exit_code"]) == ("crash", signal.SIGSEGV, None)
        words = (
            "crashes", f"crashes --job {ref.id}", f"crashes {newest['id']}", f"crashes {newest['id']} --json",
            "crashes --worker faulty:0 --json", "crashes --limit 1", f"crashes --before {reports[2]['id']}",
        )  # fmt: skip
        listed, of_job, one, data, of_worker, first, rest = (told.stdout for told in together(world, *words))
        assert len(listed.splitlines()) == 5
        assert "SIGSEGV" in listed
        assert "SIGKILL" in listed
        assert (of_job.count(ref.id), len(of_job.splitlines())) == (3, 4)
        for text in (newest["component"], ref.id, "signal 11", "Fatal Python error: Segmentation fault"):
            assert text in one
        assert "faults_deeds.py" in one  # where it stood
        for text in ("line 1 to stdout", "line 1 to stderr", "line 1 to the log", "last log lines:"):
            assert text in one
        assert {**json.loads(data), "age_ms": 0} == {**newest, "age_ms": 0}
        assert {report["component"] for report in json.loads(of_worker)} == {"worker:faulty:0"}
        assert f"more: --before {reports[0]['id']}" in first
        assert reports[3]["id"] in rest
        assert reports[1]["id"] not in rest
        for told in together(world, "crashes nothing", "crashes --before nothing"):
            assert (told.returncode, told.stdout) == (1, "")
            assert "there is no crash report 'nothing'" in told.stderr
    # They can be read without a node.
    assert [report["id"] for report in answered(world, "crashes")] == [report["id"] for report in reports]


def test_what_status_shows(world: World) -> None:  # spec: CL-3 RP-8 SV-4 HP-8 WP-10
    crews = f"hand.crew('wrong', '{FAULTY}', environment={WRONG}); hand.crew('burn', '{FAULTY}')"
    settings = (
        "restart=RestartPolicy(first_pause=0.01, longest_pause=0.02), "
        "liveness=LivenessPolicy(beat=0.2, silent=1.0, grace=0.3, terminate=0.2)"  # one burns to the end
    )
    with serving(world, crews, settings) as served:
        hand = served.hand
        become(hand, {"wrong:0": "failed", "burn:0": "healthy"})
        burn = hand.crew("burn", FAULTY)
        killed = pids(hand)["burn:0"]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: workers(hand)["burn:0"]["restart_count"] == 1)
        wrong = hand.crashes(CrashFilter(crew="wrong"))[0].pid
        for event, crew, pid in ((Event.WORKER_DELAYED, "burn", killed), (Event.WORKER_GIVEN_UP, "wrong", wrong)):
            said = (f"event={event}", f"component=worker:{crew}:0", f"pid={pid} ")
            eventually(lambda said=said: served.logged(*said), what=str(said))
        become(hand, {"wrong:0": "failed", "burn:0": "healthy"})
        ref = burn.enqueue({"fault": "burn in c", "seconds": 300})
        eventually(lambda: workers(hand)["burn:0"]["flags"] == ["unresponsive"])
        told = command(world, "status")
        assert (told.returncode, told.stderr) == (0, "")
        rows = {line.split()[0]: line for line in told.stdout.splitlines() if line.startswith("worker:")}
        assert "healthy (unresponsive)" in rows["worker:burn:0"]
        assert ref.id in rows["worker:burn:0"]
        assert "4/19" in rows["worker:burn:0"].split()  # what is left of 5 and 20
        assert "failed" in rows["worker:wrong:0"]
        assert "the model's name is wrong, as told" in rows["worker:wrong:0"]
        assert "verdict error" in told.stdout.splitlines()
        assert "  crew wrong: 1 of 1 given up: configuration error" in told.stdout
        data = answered(world, "status")["node"]
        assert data["verdict"]["status"] == "error"
        assert any("worker:burn:0 is unresponsive" in text for text in data["verdict"]["reasons"])
        assert [w["budget"] for w in data["workers"] if w["crew"] == "burn"] == [{"rapid_left": 4, "lifetime_left": 19}]
        burning = pids(hand)["burn:0"]
    for event in (Event.WORKER_TERMINATED, Event.WORKER_KILLED):
        assert served.logged(f"event={event}", "component=worker:burn:0", f"pid={burning}")
