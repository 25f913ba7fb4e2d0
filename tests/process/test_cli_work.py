"""The command line for work: retry and cancel of many jobs, claims, recurring jobs, run, check."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from terminal import answered, chargehand, chargehand_at_a_keyboard
from world import Started, World

from chargehand import Chargehand, JobFilter, UnknownCrew
from chargehand.model.batch import Want
from chargehand.model.job import Claim, State
from chargehand.model.job import Settlement as Ended
from chargehand.model.records import Holder
from chargehand.testing import eventually

Work = Callable[..., Started]
NODE = Holder("here", "life")


def claim(hand: Chargehand, queue: str, count: int) -> list[Claim]:
    """Hold jobs as a node does."""
    with hand.transaction() as tx:
        (grant,) = tx.jobs.claim([Want(crew=queue, queue=queue, limit=count)], NODE)
    return list(grant.claims)


def fail(hand: Chargehand, claims: Sequence[Claim], reason: str = "raised", error: str = "as told") -> None:
    with hand.transaction() as tx:
        ends = [
            Ended(
                id=c.id, seq=c.seq, claim=c.number, queue=c.queue, state=State.FAILED, outcome="raised", reason=reason,
                error=error, failures=1,
            )
            for c in claims
        ]  # fmt: skip
        assert tx.jobs.settle(ends, NODE) == []


def failed(hand: Chargehand, queue: str, count: int, reason: str = "raised", **options: Any) -> list[str]:
    crew = hand.crews.get(queue) or hand.crew(queue, "scripted_handlers:Doer")
    crew.enqueue_many([{}] * count, **options)
    claims = claim(hand, queue, count)
    fail(hand, claims, reason)
    return [c.id for c in claims]


def states(hand: Chargehand) -> dict[str, int]:
    found: dict[str, int] = {}
    for job in hand.jobs(JobFilter(limit=10_000)):
        found[job.state.value] = found.get(job.state.value, 0) + 1
    return found


def test_retry_by_ids(world: World, hand: Chargehand) -> None:  # spec: CL-2 CL-3 CL-5
    one, two = failed(hand, "do", 2)
    waiting = hand.crews["do"].enqueue({})
    told = chargehand("jobs", "retry", one, cwd=world.folder)
    assert (told.returncode, told.stdout, told.stderr) == (0, f"{one}: is queued again\n", "")
    told = chargehand("jobs", "retry", two, waiting.id, "nothing", two, cwd=world.folder)
    assert told.returncode == 1
    assert told.stdout.splitlines() == [
        f"{two}: is queued again",
        f"{waiting.id}: does not exist, or is neither failed nor cancelled",
        "nothing: does not exist, or is neither failed nor cancelled",
        "2 no longer failed or cancelled, 1 queued again",
    ]
    assert states(hand) == {"queued": 3}


def test_retry_by_filters_in_pages(world: World, hand: Chargehand) -> None:  # spec: CL-5
    failed(hand, "do", 1203)
    failed(hand, "other", 3, reason="poison", label="the odd ones")
    plain = chargehand("jobs", "retry", "--queue", "do", "--dry-run", cwd=world.folder)
    assert plain.returncode == 0
    assert len(plain.stdout.splitlines()) == 1204
    assert plain.stdout.endswith("1203 jobs in total; nothing was changed\n")
    foreseen = answered("jobs", "retry", "--text", "ODD", "--dry-run", "--json", cwd=world.folder)
    assert (foreseen["dry_run"], foreseen["count"]) == (True, 3)
    assert {job["text"] for job in foreseen["jobs"]} == {"would be queued again"}
    assert states(hand) == {"failed": 1206}
    told = chargehand("jobs", "retry", "--queue", "do", cwd=world.folder)
    assert (told.returncode, told.stdout, told.stderr) == (0, "1203 queued again\n", "")
    assert states(hand) == {"queued": 1203, "failed": 3}
    done = answered("jobs", "retry", "--reason", "poison", "--json", cwd=world.folder)
    assert (done["count"], done["not_done"], done["summary"], len(done["jobs"])) == (3, 0, "3 queued again", 3)
    nothing = chargehand("jobs", "retry", "--all", cwd=world.folder)
    assert (nothing.returncode, nothing.stdout) == (0, "no failed job matches: there is nothing to retry\n")


def test_a_taken_key_stops_nobody_else(world: World, hand: Chargehand) -> None:  # spec: CL-5
    keyed: list[str] = []
    crew = hand.crew("do", "scripted_handlers:Doer")
    for key in ("a", "b"):
        keyed.append(crew.enqueue({}, key=key).id)
    fail(hand, claim(hand, "do", 2))
    failed(hand, "do", 40)
    holders = [crew.enqueue({}, key=key).id for key in ("a", "b")]
    told = chargehand("jobs", "retry", "--all", cwd=world.folder)
    assert told.returncode == 1
    *lines, summary = told.stdout.splitlines()
    assert summary == "40 queued again, 2 not possible"
    found = zip(keyed, "ab", holders, strict=True)
    wanted = [f"{job}: cannot be retried: its key {key!r} is held by job {holder}" for job, key, holder in found]
    assert sorted(lines) == sorted(wanted)
    assert states(hand) == {"queued": 42, "failed": 2}


def test_a_taken_key_among_more_ids_than_one_transaction_has(world: World, hand: Chargehand) -> None:  # spec: CL-5
    plain = failed(hand, "do", 520)
    (keyed,) = failed(hand, "other", 1, label="keyed")
    with hand.transaction() as tx:
        tx.execute("UPDATE chargehand_job SET key = 'k' WHERE id = ?", (keyed,))
    hand.crews["other"].enqueue({}, key="k")
    told = chargehand("jobs", "retry", *plain, keyed, cwd=world.folder)
    assert (told.returncode, told.stdout.splitlines()[-1]) == (1, "520 queued again, 1 not possible")
    assert states(hand) == {"queued": 521, "failed": 1}


def test_cancel_by_ids_and_filters(world: World, hand: Chargehand) -> None:  # spec: WK-8 CL-5
    crew = hand.crew("do", "scripted_handlers:Doer")
    refs = crew.enqueue_many([{}] * 25)
    (running,) = claim(hand, "do", 1)
    foreseen = chargehand("jobs", "cancel", running.id, refs[1].id, "--dry-run", cwd=world.folder)
    assert "would be asked to stop" in foreseen.stdout
    assert "would be cancelled" in foreseen.stdout
    assert states(hand) == {"queued": 24, "running": 1}
    told = chargehand("jobs", "cancel", refs[1].id, cwd=world.folder)
    assert (told.returncode, told.stdout) == (0, f"{refs[1].id}: is cancelled\n")
    told = chargehand("jobs", "cancel", refs[1].id, cwd=world.folder)
    assert (told.returncode, told.stdout) == (1, f"{refs[1].id}: does not exist, or has ended already\n")
    told = chargehand("jobs", "cancel", "--all", cwd=world.folder)  # the waiting ones; whoever works is left alone
    assert (told.returncode, told.stdout) == (0, "23 cancelled\n")
    assert hand.job(running.id).cancel_ms is None
    told = chargehand("jobs", "cancel", "--state", "running", cwd=world.folder)
    assert (told.returncode, told.stdout.partition(":")[0]) == (0, running.id)
    assert hand.job(running.id).cancel_ms is not None
    shown = chargehand("jobs", "show", running.id, cwd=world.folder)
    assert "cancel asked" in shown.stdout
    told = chargehand("jobs", "retry", "--state", "cancelled", cwd=world.folder)
    assert told.stdout == "24 queued again\n"


def test_many_by_a_filter_are_asked_about_at_a_terminal(world: World, hand: Chargehand) -> None:  # spec: CL-5
    failed(hand, "do", 21)
    words, here = ("jobs", "retry", "--all"), world.folder
    refused = chargehand_at_a_keyboard(*words, typed="n\n", cwd=here)
    assert refused.returncode == 1
    assert "retry 21 failed jobs?" in refused.stderr
    assert states(hand) == {"failed": 21}
    agreed = chargehand_at_a_keyboard(*words, typed="y\n", cwd=here)
    assert (agreed.returncode, agreed.stdout) == (0, "21 queued again\n")
    failed(hand, "other", 21)
    unasked = chargehand_at_a_keyboard(*words, "--yes", typed="", cwd=here)
    assert (unasked.returncode, unasked.stdout) == (0, "21 queued again\n")
    assert "?" not in unasked.stderr
    failed(hand, "few", 20)
    few = chargehand_at_a_keyboard(*words, typed="", cwd=here)
    assert (few.returncode, few.stdout.splitlines()[-1]) == (0, "20 queued again")


REFUSED = [
    (
        "jobs retry",
        "no jobs are selected: give ids, a filter, or --queue, --state, --reason, --tag, --text; --all selects",
    ),
    ("jobs cancel", "--all selects all queued jobs"),
    ("jobs retry abc --all", "give ids or filters, not both"),
    ("jobs retry --state done", "cannot retry jobs that are done; allowed are failed and cancelled jobs"),
    ("jobs cancel --state failed", "cannot cancel jobs that are failed; allowed are queued and running jobs"),
    ("wake nobody", "there is no crew 'nobody'"),
]


@pytest.mark.parametrize(("words", "sentence"), REFUSED, ids=[words for words, _ in REFUSED])
def test_what_is_not_meant_is_refused(world: World, hand: Chargehand, words: str, sentence: str) -> None:  # spec: CL-3
    failed(hand, "do", 1)
    told = chargehand(*words.split(), cwd=world.folder)
    assert (told.returncode, told.stdout) == (2, "")
    assert sentence in told.stderr
    assert states(hand) == {"failed": 1}


def test_list_by_reason_and_text_and_show_with_crash_reports(world: World, work: Work) -> None:  # spec: CL-3
    started = work()
    started.ready()
    do = started.hand.crew("do", "scripted_handlers:Doer")
    bad = world.put(do, end="exit", code=7, options={"label": "the bad one", "max_attempts": 1, "limit_key": "k"})
    eventually(lambda: bad.job().state == "failed", 60)
    good = world.put(do)
    good.wait(20)
    here: dict[str, Any] = {"cwd": world.folder}
    for words in (["--reason", "poison"], ["--text", "BAD"], ["--queue", "do", "--text", "bad", "--state", "failed"]):
        assert [job["id"] for job in answered("jobs", "list", "--json", *words, **here)] == [bad.id]
    shown = answered("jobs", "show", bad.id, "--json", **here)
    assert len(shown["crash_reports"]) == shown["crashes"] == 3
    assert {report["exit_code"] for report in shown["crash_reports"]} == {7}
    told = chargehand("jobs", "show", bad.id, **here)
    assert told.returncode == 0
    for text in ("limit_key      k", "exit code 7", shown["crash_reports"][0]["id"]):
        assert text in told.stdout
    assert answered("jobs", "show", good.id, "--json", **here)["crash_reports"] == []


def test_claims_and_their_release(world: World, hand: Chargehand) -> None:  # spec: CL-2 CL-3
    hand.crew("do", "scripted_handlers:Doer").enqueue({}, label="mine")
    (held,) = claim(hand, "do", 1)
    here: dict[str, Any] = {"cwd": world.folder}
    (row,) = answered("claims", "--json", **here)
    assert (row["id"], row["claim"], row["node"], row["label"]) == (held.id, str(held.number), "here", "mine")
    assert held.id in chargehand("claims", **here).stdout
    refused = chargehand("claims", "release", held.id, **here)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "may still run it: if released, it is queued again and may run twice; confirm with --yes" in refused.stderr
    other = chargehand("claims", "release", held.id, "--claim", "7", "--yes", **here)
    assert (other.returncode, other.stdout) == (1, "")
    assert f"claim 7 has ended, the present claim is {held.number}" in other.stderr
    doubtful = chargehand_at_a_keyboard("claims", "release", held.id, typed="n\n", **here)
    assert doubtful.returncode == 1
    assert hand.job(held.id).state == "running"
    done = chargehand("claims", "--store", str(world.store), "release", held.id, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "is queued again" in done.stdout
    assert hand.job(held.id).state == "queued"
    again = chargehand("claims", "release", held.id, "--yes", **here)
    assert again.returncode == 1
    assert "no worker holds job" in again.stderr
    (held,) = claim(hand, "do", 1)
    assert answered("claims", "release", held.id, "--claim", str(held.number), "--yes", "--json", **here)[
        "claim"
    ] == str(held.number)
    assert answered("claims", "--json", **here) == []


def test_recurring_jobs_are_shown(world: World, hand: Chargehand) -> None:  # spec: CL-3
    crew = hand.crew("do", "scripted_handlers:Doer", workers=0)
    none = chargehand("recurring", "--store", str(world.store))
    assert none.returncode == 4  # there is no store yet
    hand.recurring("nightly", crew, {"a": 1}, cron="0 3 * * *", zone="Europe/Berlin")
    hand.recurring("often", crew, {"b": 2}, every=1)
    with hand.running():
        eventually(lambda: {plan.name for plan in hand.recurrences() if plan.last_job} == {"often"})
    nightly, often = answered("recurring", "--json", cwd=world.folder)
    assert (nightly["name"], nightly["in_words"]) == ("nightly", "At 03:00 every day (Europe/Berlin)")
    assert (often["in_words"], often["schedule"]) == ("every 1 s", {"every_ms": 1000})
    assert hand.job(often["last_job"]).queue == often["job"]["queue"] == "do"
    assert hand.job(often["last_job"]).label == "often"
    told = chargehand("recurring", cwd=world.folder)
    assert told.returncode == 0
    assert "At 03:00 every day" in told.stdout
    assert f"{often['last_job']}  queued" in told.stdout


def test_a_recurring_job_is_paused_run_and_resumed(world: World, hand: Chargehand) -> None:  # spec: WK-11 CL-2
    hand.recurring("nightly", hand.crew("do", "scripted_handlers:Doer", workers=0), cron="0 3 * * *")
    with hand.running():
        eventually(hand.recurrences)
    here: Any = {"cwd": world.folder}
    assert chargehand("recurring", "pause", "nightly", "--reason", "new disk", **here).returncode == 0
    (paused,) = answered("recurring", "--json", **here)
    assert (paused["pause_reason"], paused["paused_by"]) == ("new disk", hand.operations()[0].who)
    assert "new disk" in chargehand("recurring", **here).stdout
    made = answered("recurring", "run", "nightly", "--json", **here)["job"]
    assert (hand.job(made).label, hand.recurrences()[0].runs[0].id) == ("nightly", made)
    assert chargehand("recurring", "resume", "nightly", **here).stdout == "nightly: is no longer paused\n"
    assert chargehand("recurring", "resume", "nightly", **here).stdout == "nightly: was not paused\n"
    refused = chargehand("recurring", "run", "weekly", **here)
    assert (refused.returncode, "recurring-not-found" in refused.stderr) == (1, True)


def test_wake(world: World, work: Work, hand: Chargehand) -> None:  # spec: WK-10 CL-2
    started = work()
    started.ready()
    for more in ((), ("--app", "scripted_app:hand")):
        refused = chargehand("wake", "do", *more, CHARGEHAND_URL=str(world.store))
        assert refused.returncode == 2
        assert "crew 'do' is not declared discovers=True" in refused.stderr
    with pytest.raises(UnknownCrew, match="there is no crew 'nobody'; there are: do, other"):
        hand.wake("nobody")
    started.kill(15)
    started.end()
    told = chargehand("wake", "do", cwd=world.folder)
    assert told.returncode == 0
    assert "no node runs" in told.stdout


# one job in the foreground


def run(world: World, *words: str, **settings: Any) -> Any:
    return chargehand("run", "runnable_app:hand", *words, CHARGEHAND_URL=str(world.store), **settings)


def test_run_performs_one_job_here(world: World) -> None:  # spec: CL-5 WK-5
    done = run(world, "tag", '{"path": "a.flac", "seconds": 2}')
    assert (done.returncode, json.loads(done.stdout)) == (0, {"scores": {"a.flac": 2, "m0": 3}})
    assert done.stderr.splitlines() == [
        "set up",
        "progress: 1/2 net \\x1b[2J",
        'would enqueue in queue does: {"of":"a.flac"}',
        "would enqueue in queue rows: null",
        "torn down",
    ]
    assert not world.store.exists()
    piped = run(world, "late", "-", stdin='{"path": "a.flac", "seconds": 21}')
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, "42.0\n", "torn down\n")


def test_run_settles_in_a_transaction_that_is_taken_back(world: World, hand: Chargehand) -> None:  # spec: CL-5 WK-7
    with hand.transaction() as tx:
        tx.execute("CREATE TABLE song (title TEXT)")

    def songs() -> list[Any]:
        with hand.transaction() as tx:
            return [title for (title,) in tx.execute("SELECT title FROM song")]

    done = run(world, "settles", '"one"')
    assert (done.returncode, json.loads(done.stdout)) == (0, {"title": "one"})
    assert "rolled back" in done.stderr
    spoilt = run(world, "settles", '"spoil"', "--commit")
    assert (spoilt.returncode, spoilt.stdout) == (1, "")
    assert (songs(), states(hand)) == ([], {})
    kept = run(world, "settles", '"two"', "--commit")
    assert (kept.returncode, songs(), states(hand)) == (0, ["two"], {"queued": 1})
    refused = run(world, "refused", '"three"')
    assert refused.returncode == 2
    assert "crew 'refused' is not declared transactional=True" in refused.stderr
    assert run(world, "tag", '{"path": "a.flac"}', "--commit").returncode == 0
    assert states(hand) == {"queued": 3}


ENDS = [
    ("raise", 1, "RuntimeError: as told", "a worker would run the job 4 times, then the job would fail"),
    ("retry", 1, "retry in 7 s", "a worker would retry the job after 7 s, 4 attempts at most"),
    ("give up", 1, "it is hopeless", "in a worker the job would fail without a retry"),
    ("exit", 1, "SystemExit: 7", "a worker would run the job"),
    ("object", 1, "the result cannot be written as JSON", "in a worker the job would fail without a retry"),
    ("unknown crew", 1, "there is no crew 'nobody'; there are: does, late", "a worker would run the job"),
    ("configuration", 2, "the model is for another card", "a worker would exit and be given up"),
    ("unrecoverable", 3, "the card is broken", "a worker would exit and be given up"),
]


@pytest.mark.parametrize(("end", "status", "text", "follows"), ENDS, ids=[end for end, *_ in ENDS])
def test_run_shows_what_a_handler_raises(  # spec: CL-5 WK-5
    world: World, end: str, status: int, text: str, follows: str
) -> None:
    done = run(world, "does", json.dumps({"end": end}))
    assert (done.returncode, done.stdout) == (status, "")
    assert "Traceback" in done.stderr
    assert text in done.stderr
    assert follows in done.stderr
    assert done.stderr.endswith("torn down\n")


def test_run_with_a_debugger(world: World) -> None:  # spec: CL-5
    done = run(world, "does", '{"end": "debug"}', stdin="p value\nvalue = 'from the debugger'\ncontinue\n")
    assert done.returncode == 0
    assert "'from the handler'" in done.stdout
    assert done.stdout.endswith('"from the debugger"\n')


def test_run_one_item_of_a_discovering_crew(world: World) -> None:  # spec: CL-5 WK-10
    found = run(world, "rows", "--item", "1100")  # on the third page
    assert (found.returncode, json.loads(found.stdout)) == (0, ["1100", {"row": "1100"}, "row 1100"])
    given = run(world, "rows", '"mine"', "--item", "elsewhere")
    assert (given.returncode, json.loads(given.stdout)) == (0, ["elsewhere", "mine", None])
    for words, sentence in (
        (("rows", "--item", "elsewhere"), "discover does not return 'elsewhere'"),
        (("rows",), "give --item KEY or a payload"),
        (("does", "--item", "x"), "has no discover(after, limit): give a payload"),
    ):
        refused = run(world, *words)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert sentence in refused.stderr


def test_run_checks_types_as_a_worker_does(world: World) -> None:  # spec: CL-5
    for words, status, sentence in (
        (("tag", '{"path": 5}'), 2, "Expected `str`, got `int`"),
        (("tag", "{"), 2, "the payload for crew 'tag' is not JSON"),
        (("does", "5"), 2, "wrong type"),  # the crew takes anything, its handler does not
        (("nobody", "5"), 2, "there is no crew 'nobody'; there are: "),
        (("unready", "5"), 5, "RuntimeError: the model file is missing"),
        (("unlicensed", "5"), 5, "SystemExit: no licence\nchargehand: the handler could not be set up"),
        (("lies", "5"), 2, "the job would be done, but a caller that waits for it would get this error"),
    ):
        done = run(world, *words)
        assert done.returncode == status, done
        assert sentence in done.stderr
    assert json.loads(done.stdout) == {"marks": 5}


# check


def test_check_imports_every_handler_in_a_process_of_its_own(world: World) -> None:  # spec: CL-5 WP-2
    settings: dict[str, Any] = {"CHARGEHAND_URL": str(world.store)}
    fine = chargehand("check", "runnable_app:hand", **settings)
    assert (fine.returncode, fine.stderr) == (0, "")
    assert "runnable_handlers:Tagger" in fine.stdout
    told = chargehand("check", "runnable_app:wrong", "--json", **settings)
    assert (told.returncode, told.stderr) == (2, "")
    found = {each["crew"]: each for each in json.loads(told.stdout)}
    wrong = {name: " / ".join(each["wrong"]) for name, each in found.items()}
    assert (wrong["fine"], wrong["loose"]) == ("", "")
    assert found["fine"]["ok"]
    assert found["fine"]["seconds"] > 0
    assert 0 < found["fine"]["memory"] < 1 << 30
    assert wrong["types"] == (
        "the crew takes runnable_app.Labels, but the handler takes runnable_app.Song / "
        "the crew gives int, but the handler gives float"
    )
    assert "a different class with the same name" in wrong["twin"]
    assert "has no discover(after, limit)" in wrong["blind"]
    assert "handler 'no_such_module:Handler' cannot be imported: ModuleNotFoundError" in wrong["missing"]
    assert "has no perform(job)" in wrong["idle"]
    assert "the import raised RuntimeError: no licence found (" in wrong["raises"]
    assert wrong["dies"] == "the process was ended by signal SIGABRT; its last lines: libmodel: illegal something"
    table = chargehand("check", "runnable_app:wrong", "--crew", "idle", "--crew", "fine", **settings)
    assert (table.returncode, len(table.stdout.splitlines())) == (2, 3)
    assert not world.store.exists()


def test_check_has_a_limit_and_leaves_nothing_behind(world: World) -> None:  # spec: CL-5
    words = ("check", "runnable_app:slow", "--json", "--crew")
    told = chargehand(*words, "slow", "--limit", "1", CHARGEHAND_URL=str(world.store))
    assert told.returncode == 2
    (slow,) = json.loads(told.stdout)
    assert slow["wrong"] == ["the import took longer than 1 s"]
    told = chargehand(*words, "hosts", CHARGEHAND_URL=str(world.store))
    assert told.returncode == 2
    (hosts,) = json.loads(told.stdout)
    assert "the import of a handler in a worker starts a node" in hosts["wrong"][0]


def test_check_sets_up_if_it_is_told_to(world: World) -> None:  # spec: CL-5
    words = ("check", "runnable_app:ready", "--json")
    late, unready = answered(*words, CHARGEHAND_URL=str(world.store))
    assert late["ok"]
    assert unready["ok"]
    told = chargehand(*words, "--set-up", CHARGEHAND_URL=str(world.store))
    assert told.returncode == 2
    late, unready = json.loads(told.stdout)
    assert late["set_up_seconds"] >= 0
    assert "set_up raised RuntimeError: the model file is missing" in unready["wrong"][0]


def test_handlers_stay_out_of_the_command_line(world: World, tmp_path: Path) -> None:  # spec: WP-2 CL-5
    """`check` itself imports none of them: each writes down the process that it is in."""
    (tmp_path / "many_app.py").write_text(
        "from chargehand import Chargehand\nhand = Chargehand()\n"
        "for name in 'abc': hand.crew(name, 'many_hands:Hand')\n"
    )
    (tmp_path / "many_hands.py").write_text(
        "import os\nfrom chargehand import Handler\n"
        f"open({str(tmp_path / 'importers')!r}, 'a').write(f'{{os.getpid()}} {{os.getppid()}}\\n')\n"
        "class Hand(Handler):\n    def perform(self, job): return None\n"
    )
    assert chargehand("check", "many_app:hand", cwd=tmp_path).returncode == 0
    rows = [line.split() for line in (tmp_path / "importers").read_text().splitlines()]
    assert len({pid for pid, _ in rows}) == 3
    assert len({parent for _, parent in rows}) == 1
    assert os.getpid() not in {int(pid) for row in rows for pid in row}
