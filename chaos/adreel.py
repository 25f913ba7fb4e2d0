"""`APP=adreel python -m chaos`: films are analysed while the processes of Adreel are killed at every stage.

Each film must end with the result of an undisturbed analysis, once. In the end no file, flow or process may be left
that belongs to no film. Environment variables: FILMS, KILLS, SEED, KEEP.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adreel.records import STAGES
from chaos import account, judge, processes
from chaos.account import Analysis
from chaos.campaign import TABLES
from chaos.killer import CALL_SHARE, CONTINUED_AFTER, Stops, wait_for_a_call
from chaos.output import folder, table, violations
from chaos.studio import Studio, Uploader, Webhook
from chargehand import ChargehandError, clock
from chargehand.model.job import State
from chargehand.model.records import JobFilter
from chargehand.testing import eventually

FILMS, KILLS, MOST = 50, 200, 1e6
CREWS = (*STAGES, "upkeep")
WHOLE = {"node": 12, "host": 14, "both": 6, "stop node": 4, "stop host": 4, "any": 10}
"""Signals to other processes than workers, of 200; `any`: kill -9 of whichever process of the run."""
SAID = {
    "stop": "SIGSTOP of workers", "stop node": "SIGSTOP of the node", "stop host": "SIGSTOP of the server",
    "host": "kill -9 of the server", "node": "kill -9 of the node", "both": "kill -9 of both at once",
    "any": "kill -9 of any process",
}  # fmt: skip
STOPPED = 30
"""The number of stopped workers, of 200; the rest is kill -9 of workers, evenly for the crews."""
SPACING = (0.02, 0.3)
"""Seconds between two signals, so that work goes on."""
AIM = 0.7
"""Seconds within which a worker of the wanted crew must have a job; otherwise one of another crew is hit."""
OPEN = 4
"""How many films are analysed at the same time."""
DELETED_EVERY, CUT_OFF_EVERY = 6, 16
"""Every sixth film is deleted during a stage; after every 16th, an upload is cut off by its client."""
HALF_SHARE = 0.4
"""The share of kills of the server that hit an upload under way."""
POISON = "poison"
"""The reason of a job that was quarantined because its worker crashed three times."""
FOUND_WITHIN = 60.0
PATIENCE = 240.0
"""Seconds that the last films may take after the kills, and in which a film must end or a signal find its target."""
LOOK_EVERY = 0.1
"""Seconds between two looks at the table of films."""
TOLD_EVERY = 10.0


@dataclass
class Found:
    """The result of the run."""

    films: int = 0
    deleted: int = 0
    struck: Counter[str] = field(default_factory=Counter[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    lost: list[str] = field(default_factory=list[str])
    """Films and jobs that did not end, or not as an undisturbed analysis does."""
    twice: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    """Files, flows and rows that belong to no film."""
    unexpected: list[str] = field(default_factory=list[str])
    orphans: list[str] = field(default_factory=list[str])

    @property
    def good(self) -> bool:
        return not (self.lost or self.twice or self.left or self.unexpected or self.orphans)


@dataclass
class Wish:
    """A film that is to be deleted when it is in this stage."""

    name: str
    stage: str
    answered: bool = False


def planned(kills: int, chance: random.Random) -> list[str]:
    """Returns the kinds of all signals, in a random order."""
    whole = [kind for kind, count in WHOLE.items() for _ in range(round(count * kills / KILLS))][:kills]
    stops = ["stop"] * round(STOPPED * kills / KILLS)
    workers = [CREWS[number % len(CREWS)] for number in range(max(0, kills - len(whole) - len(stops)))]
    plan = [*whole, *stops, *workers][:kills]
    chance.shuffle(plan)
    return plan


class Adreel:
    """Runs films on one data folder."""

    def __init__(self, place: Path, films: int, kills: int, seed: int) -> None:
        self._place, self._films, self._chance = place, films, random.Random(seed)
        self._plan = planned(kills, self._chance)
        self._kills = kills
        self._webhook = Webhook()
        self._world = Studio(place, self._webhook.url)
        self._found = Found()
        self._stops = Stops(self._world.run, self._chance, self._found.counts, FOUND_WITHIN)
        self._names: list[str] = []
        """The films that were submitted."""
        self._wishes: list[Wish] = []
        self._next = 0.0
        """When the next signal is due."""
        self._told = 0.0
        self._states: dict[str, str] = {}
        """The state of each film that is there, by its id."""
        self._looked = 0.0
        self._expected: dict[str, Analysis] = {}

    def run(self) -> Found:
        """Analyses each kind of film undisturbed, then many of them during the kills, and accounts for everything."""
        found, world = self._found, self._world
        with ExitStack() as stack:
            stack.enter_context(self._webhook)
            stack.enter_context(world)
            with world.hand.transaction() as tx:
                tx.execute(TABLES)
            self._content = self._make_films()
            self._uploader = stack.enter_context(Uploader(world))
            world.start_host()
            try:
                self._expected = self._undisturbed()
                self._go_on(lambda: not self._plan and len(self._names) == self._films)
                print("  kills finished; waiting for the remaining films", flush=True)
                self._go_on(self._over)
            except (AssertionError, ChargehandError) as error:
                found.lost += [str(error), *self._open()]
            self._judge_store()
            world.stop()
            world.hand.close()
            world.look_for_orphans()
        self._judge_files()
        found.unexpected += [*world.wrong, *self._stops.wrong, *self._uploader.wrong]
        found.orphans += world.orphans
        found.counts += self._uploader.counts
        return found

    def _make_films(self) -> dict[str, bytes]:
        films = self._place / "films"
        films.mkdir()
        subprocess.run([sys.executable, "-m", "chaos.films", str(films)], check=True, cwd=Path(__file__).parent.parent)
        return {path.name: path.read_bytes() for path in sorted(films.iterdir())}

    def _undisturbed(self) -> dict[str, Analysis]:
        """Returns what the analysis of each kind of film leaves while nothing is killed."""
        service, expected = self._world.service, dict[str, Analysis]()
        for kind, content in self._content.items():
            self._uploader.upload(kind, content)
        eventually(lambda: len(self._uploader.accepted) == len(self._content), PATIENCE, what="all films are accepted")
        for kind, film in self._uploader.accepted.items():
            eventually(lambda f=film: self._row(f).state != "open", PATIENCE, what="an undisturbed film ends")
            row = self._row(film)
            assert row.state == "done", f"the undisturbed analysis of {kind} is {row.state}: {row.error}"
            flow = service.crews.hand.find_flow(row.flow).status()
            expected[kind] = Analysis(account.left_by(service.folder(film)), flow.counts.done)
        return expected

    def _row(self, film: str) -> Any:
        return self._world.service.films.get(film)

    # steps of the loop

    def _go_on(self, over: Callable[[], bool]) -> None:
        """Takes turns until this is so. Raises AssertionError if no film ends and no signal is sent for long."""
        before, since = (-1, -1), clock.monotonic()
        while not over():
            self._turn()
            now = clock.monotonic()
            if (progress := (self._ended(), len(self._plan))) != before:
                before, since = progress, now
            assert now - since < PATIENCE, f"no film ended, and no signal found a target, for {PATIENCE:g} s"

    def _turn(self) -> None:
        self._world.watch_host()
        self._stops.look()
        self._world.look_for_ghosts(self._world.view())
        if clock.monotonic() - self._looked > LOOK_EVERY:
            self._states = {row.id: row.state for row in account.rows_of(self._world.service)}
            self._looked = clock.monotonic()
        self._submit()
        self._delete()
        self._release()
        if self._is_due() and (kind := self._strike(self._plan[-1])) is not None:
            del self._plan[len(self._plan) - 1 - self._plan[::-1].index(kind)]
            self._found.struck[kind] += 1
            self._next = clock.monotonic() + self._chance.uniform(*SPACING)
        self._tell()
        clock.sleep(0.01)

    def _submit(self) -> None:
        """Uploads the next film if few are open, and the kills have come as far as the films."""
        done = len(self._names)
        if done == self._films:
            return
        behind = done / self._films <= 1 - len(self._plan) / max(1, self._kills)
        if len(self._names) - self._ended() >= OPEN or (not behind and self._ended() < done):
            return
        kind = sorted(self._content)[done % len(self._content)]
        name = f"{done:03}-{kind}"
        self._names.append(name)
        if done % DELETED_EVERY == DELETED_EVERY - 1:
            self._wishes.append(Wish(name, STAGES[done // DELETED_EVERY % len(STAGES)]))
        if done % CUT_OFF_EVERY == CUT_OFF_EVERY - 1:
            with self._world.upload_under_way(self._content[kind]) as arrives:
                self._found.counts["uploads cut off by the client"] += arrives
        self._uploader.upload(name, self._content[kind])

    def _ended(self) -> int:
        """Returns how many films have ended, or are gone."""
        return sum(self._has_ended(name) for name in self._names)

    def _has_ended(self, name: str) -> bool:
        film = self._uploader.accepted.get(name)
        if film is None:
            return False
        return self._states.get(film, "open") == "done" or self._is_gone(name)

    def _is_gone(self, name: str) -> bool:
        """Returns whether a film that was deleted is gone."""
        film = self._uploader.accepted.get(name)
        return (
            film is not None
            and any(each.name == name and each.answered for each in self._wishes)
            and (self._row(film) is None)
        )

    def _delete(self) -> None:
        """Deletes films that are in the stage in which they are to be deleted, or that have ended before."""
        for wish in self._wishes:
            film = self._uploader.accepted.get(wish.name)
            if wish.answered or film is None:
                continue
            stage = any(each.label == wish.name and each.queue == wish.stage for each in self._world.hand.claims())
            if not stage and not self._has_ended(wish.name):
                continue
            answer = self._world.ask("DELETE", f"/jobs/{film}")
            if answer is None:
                self._found.counts["interrupted deletions"] += 1
            elif answer.status_code in (202, 204):
                wish.answered = True
                self._found.counts[f"deleted during {wish.stage}" if stage else "deleted after the end"] += 1
            elif answer.status_code < 500:
                self._found.unexpected.append(f"DELETE of {wish.name}: {answer.status_code} {answer.text}")

    def _release(self) -> None:
        """Retries what failed as poison: the kills are not the fault of the film. A person would do the same."""
        hand, service = self._world.hand, self._world.service
        for job in hand.jobs(JobFilter(queue="upkeep", state=State.FAILED, limit=1000)):
            if job.reason == POISON:
                self._found.counts["quarantined and released by hand"] += len(hand.internal.retry(job.id))
        for row in service.films.find(state="failed"):
            if row.deleting_ms is None and service.get(row.id, result=False).code == POISON:
                answer = self._world.ask("POST", f"/jobs/{row.id}/retry")
                again = answer is not None and answer.status_code == 202
                self._found.counts["quarantined and released by hand"] += again

    # signals

    def _is_due(self) -> bool:
        """Returns whether the next signal is due. Signals wait for films to end, so that they are spread over all."""
        share = 1 - len(self._plan) / max(1, self._kills)
        return bool(self._plan) and clock.monotonic() >= self._next and share <= (self._ended() + OPEN) / self._films

    def _strike(self, kind: str) -> str | None:
        """Sends a signal of this kind, or of another one that finds a target sooner. Returns the kind that was sent."""
        if kind in CREWS or kind == "stop":
            return self._strike_worker(kind)
        return kind if self._strike_whole(kind) else None

    def _strike_whole(self, kind: str) -> bool:
        world = self._world
        if kind == "any":
            return self._strike_any()
        if kind.startswith("stop "):
            pid = world.node_pid() if kind == "stop node" else world.host and world.host.pid
            return pid is not None and self._pause(pid)
        if kind == "host" and self._chance.random() < HALF_SHARE:
            with world.upload_under_way(next(iter(self._content.values()))) as arrives:
                self._found.counts["uploads cut off by a kill"] += arrives
                return world.kill(kind)
        if self._chance.random() < CALL_SHARE:
            self._found.counts["kills aimed at an upload under way"] += wait_for_a_call(self._place, self._chance)
        return world.kill(kind)

    def _pause(self, pid: int) -> bool:
        """Stops a process for a moment. This one only waits meanwhile: the process may hold the lock of the store."""
        if not processes.send(pid, signal.SIGSTOP, self._world.run):
            return False
        clock.sleep(self._chance.uniform(*CONTINUED_AFTER))
        return processes.send(pid, signal.SIGCONT, self._world.run)

    def _strike_worker(self, kind: str) -> str | None:
        """Hits a worker that has a job; one without a job only if no film is left to work on."""
        without = self._ended() == len(self._names) == self._films
        until = clock.monotonic() + (0 if without else AIM)
        while True:
            workers = (self._world.view() or {"workers": []})["workers"]
            idle = [each for each in workers if each["pid"] and each["pid"] not in self._stops]
            busy = [each for each in idle if each["current_job"]]
            wanted = [each for each in busy if kind in ("stop", each["crew"])]
            if wanted or clock.monotonic() > until:
                break
            clock.sleep(0.001)
        others = [each for each in busy if each["crew"] in self._plan]
        if not (victims := wanted or others or idle * without):
            return None
        victim = self._chance.choice(victims)
        if victim in others and not wanted:
            kind = str(victim["crew"])
        if kind == "stop":
            struck = self._stops.stop(int(victim["pid"]))
        else:
            struck = processes.send(int(victim["pid"]), signal.SIGKILL, self._world.run)
        if not struck:
            return None
        at = f"hit during {victim['crew']}" if victim["current_job"] else "hit without a job"
        self._found.counts[at] += 1
        return kind

    def _strike_any(self) -> bool:
        """Kills whichever process of the run, and starts another server if it was that."""
        pids = processes.all_of(self._world.run)
        if not pids:
            return False
        pid = self._chance.choice(pids)
        if self._world.host is not None and pid == self._world.host.pid:
            return self._world.kill("host")
        return processes.send(pid, signal.SIGKILL, self._world.run)

    # the end

    def _over(self) -> bool:
        queues = self._world.hand.counts()
        gone = all(self._is_gone(wish.name) for wish in self._wishes)
        idle = all(each.queued == each.running == each.failed == 0 for each in queues if each.queue != "upkeep")
        ends = [each for each in queues if each.queue == "upkeep"]
        told = all(each.running == each.failed == 0 and each.queued <= 1 for each in ends)  # one recurs
        return not self._stops and gone and idle and told and self._ended() == len(self._names)

    def _open(self) -> list[str]:
        rows = [self._row(film) for film in self._uploader.accepted.values()]
        return [
            f"{row.name}: {row.state}, deleting: {row.deleting_ms is not None}"
            for row in rows
            if row is not None and (row.state != "done" or row.deleting_ms is not None)
        ]

    def _judge_store(self) -> None:
        found, service = self._found, self._world.service
        rows, flows = account.rows_of(service), account.flows_of(service)
        found.films = len(rows)
        deleted = {wish.name for wish in self._wishes}
        gone = {self._uploader.accepted.get(name, "") for name in deleted}
        found.deleted = len(deleted)
        names = Counter(row.name for row in rows)
        found.twice += [
            f"{name} was submitted once, and is there {count} times" for name, count in names.items() if count > 1
        ]
        wanted = {*self._content, *self._names} - deleted
        found.lost += [f"{name} was accepted, and is not there" for name in sorted(wanted - set(names))]
        found.left += [f"{name} was deleted, and is there" for name in sorted(deleted & set(names))]
        found.left += account.wrong_flows(rows, flows)
        for row in rows:
            if (expected := self._expected.get(_kind(row.name))) is None:
                continue  # the undisturbed analysis has failed, which is said above
            if row.flow in flows:
                found.lost += account.wrong_end(row, flows[row.flow], self._webhook.calls, expected.jobs)
            differences = account.differences(account.left_by(service.folder(row.id)), expected.files)
            found.lost += [f"{row.name}: {each}" for each in differences]
        found.unexpected += account.wrong_calls(rows, self._webhook.calls, gone)
        found.counts["calls of the webhook that were repeated"] = sum(self._webhook.calls.values()) - len(
            self._webhook.calls
        )
        self._ids = {row.id for row in rows}

    def _judge_files(self) -> None:
        """Compares the data folder, the attempts of all jobs and the logs, after all processes have exited."""
        found, world = self._found, self._world
        kept = world.kept()
        if kept.integrity != "ok":
            found.unexpected.append(f"integrity_check: {kept.integrity}")
        done = {job: len(kept.done(job)) for job, state in kept.state.items() if state == "done"}
        found.counts["jobs"] = len(kept.state)
        found.twice += [f"job {job} was done {count} times" for job, count in done.items() if count != 1]
        found.left += account.strangers(world.home, world.temporary, self._ids)
        lines = (path.read_text(errors="replace").splitlines() for path in sorted((self._place / "logs").iterdir()))
        logs = [judge.fields_of(line) for part in lines for line in part if not account.NOTICE.match(line)]
        found.unexpected += judge.in_the_logs(logs)

    def _tell(self) -> None:
        now = clock.monotonic()
        if now - self._told < TOLD_EVERY:
            return
        self._told = now
        struck = self._kills - len(self._plan)
        print(f"  films: {self._ended()} of {len(self._names)} ended  signals: {struck} of {self._kills}", flush=True)


def _kind(name: str) -> str:
    """Returns the name of the content of a film."""
    number, _, kind = name.partition("-")
    return kind if number.isdigit() else name


def report(found: Found) -> dict[str, Any]:
    """Prints the figures and what is wrong, and returns the figures."""
    figures = {
        "films": found.films, "of them deleted": found.deleted, "signals": found.struck.total(),
        **{f"signals: {SAID.get(kind, f'kill -9 of {kind}')}": count for kind, count in sorted(found.struck.items())},
        **dict(sorted(found.counts.items())), "lost": len(found.lost), "completed twice": len(found.twice),
        "left": len(found.left), "unexpected": len(found.unexpected), "orphans": len(found.orphans),
    }  # fmt: skip
    table(figures)
    for kind in ("lost", "twice", "left", "unexpected", "orphans"):
        violations(kind, getattr(found, kind))
    return {**figures, "as it must be": found.good}


def main(number: Callable[[str, float], float]) -> int:
    """Runs the films; returns 0 if every promise was kept. `number` reads an environment variable."""
    wanted = number("FILMS", FILMS), number("KILLS", KILLS)
    if not (1 <= wanted[0] < MOST and 0 <= wanted[1] < MOST):
        sys.exit("FILMS={:g} KILLS={:g} is out of range: 1 or more films, 0 or more kills".format(*wanted))
    films, kills = map(int, wanted)
    seed = int(number("SEED", int.from_bytes(os.urandom(3), "big")))
    print(
        f"seed {seed}: {films} films; {kills} kill -9 or SIGSTOP of workers at every stage, node and server", flush=True
    )
    began = clock.monotonic()
    with folder("adreel") as place:
        found = Adreel(place, films, kills, seed).run()
    figures = report(found)
    seconds = round(clock.monotonic() - began)
    print(json.dumps({"seed": seed, "adreel": {**figures, "seconds": seconds}, "good": found.good}))
    return 0 if found.good else 1
