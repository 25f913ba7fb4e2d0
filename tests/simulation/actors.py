"""Simulated worker processes: what each does with its life, what it says on its sockets, what the kernel knows of it.

The truth about a worker is here; the node sees only the sockets, the deaths and the CPU time.
"""

from typing import TYPE_CHECKING, Protocol

from chargehand.model.fleet.usage import ThreadUsage, Usage
from chargehand.model.job import Claim, Done, Found, Outcome
from chargehand.model.ledger import Begun, Hand, Todo
from chargehand.model.search import Look

if TYPE_CHECKING:
    from stage import World


Message = tuple[object, ...]
AWAKE = 0.0002
"""CPU time that a resting worker uses."""
ASKING = 0.004
"""CPU time of a thread that waits for the interpreter, the pulse among them."""


class Listener(Protocol):
    """The node, as a worker sees it."""

    def readable(self, worker: "Worker", channel: str) -> None: ...


class Worker:
    """One life of a worker. Two threads: the one that works, and the pulse that beats beside it."""

    def __init__(self, world: "World", node: Listener, component: str, pid: int, paused: bool) -> None:
        self.world, self.node, self.component, self.pid, self.paused = world, node, component, pid, paused
        self.crew, self._name = component.split(":")[1], f"{component} pid {pid}"
        self.alive = True
        self.frozen = False
        """Stopped by a signal: nothing that it planned happens."""
        self.gpus: tuple[str, ...] = ()
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.said: str | None = None
        self.broken: str | None = None
        self.sick = False
        """It fails whatever it is given, and does not know why."""
        self.oom = False
        self.status = "starting"
        self.turns = 1
        self.memory = 100 << 20
        self.hand: dict[str, Claim] = {}
        """What it performs, by the job's id; several in crews that take several at once."""
        self.bodies: list[tuple[int, Claim]] = []
        """Short jobs that it was sent, with the numbers of their permits; some may have been called back."""
        self.pipe: list[int] = []
        """The permits that neither it nor the node has taken."""
        self.permit: int | None = None
        """A permit whose job it has not got yet."""
        self._numbers = 0
        self.halted = False
        """It failed a job, and begins no other of those that it has until it is handed one."""
        self.look: Look | None = None
        self.cancelled: set[tuple[str, int]] = set()
        """Jobs, and the numbers of their claims, of which the node said that a person cancelled them."""
        self.swallowing: set[str] = set()
        """Jobs, of several at the same time, that go on though they are told to end."""
        self.stop_told = self.leaving = False
        self.stuck = False
        """The working thread does not come back to its socket."""
        self.mute = False
        """The pulse does not run: C code holds the interpreter, or the process does not run at all."""
        self.unkillable_for = 0.0
        self.garbage = False
        self.work: list[Message] = []
        self.pulse: list[Message] = []
        # the truth, for the oracle
        self.born = self.turned_at = self.rested_since = world.now
        self.sent_at: float | None = None
        self.load_until = world.now + world.profile.liveness.set_up
        self.sigterm_at: float | None = None
        self._cpu, self._rate, self._rate_at, self._since = 0.0, 0.9, world.now, world.now
        self.works_in = "thread"
        """What uses the CPU time: a thread, threads that have ended, or children."""
        self.waiting = 0
        """Threads of the handler that wait for the interpreter."""

    def __repr__(self) -> str:
        return self._name

    @property
    def runs(self) -> bool:
        return self.alive and not self.frozen

    @property
    def busy(self) -> bool:
        return bool(self.hand) or self.look is not None

    # what the kernel knows

    def use(self, rate: float) -> None:
        """From now on it uses so much CPU time a second."""
        now = self.world.now
        self._cpu, self._rate_at = self._cpu + self._rate * (now - self._rate_at), now
        if self._rate > AWAKE:
            self.rested_since = now
        self._rate = rate

    def usage(self) -> Usage | None:
        """As the kernel tells it: who used the CPU time, and who only waited for the interpreter."""
        if not self.alive:
            return None
        worked, asked = (
            self._cpu + self._rate * (self.world.now - self._rate_at),
            ASKING * (self.world.now - self._since),
        )
        waiting = self.waiting if self.mute else 0
        threads = {number: ThreadUsage(asked, waits=True) for number in range(1, waiting + 1)}
        threads[0] = ThreadUsage(worked if self.works_in == "thread" else 0.0)
        return Usage(
            threads=threads,
            own=asked,
            ended=int(worked * 100) / 100 if self.works_in == "ended" else 0.0,
            children=int(worked * 100) / 100 if self.works_in == "children" else 0.0,
        )

    def rests_since(self) -> float | None:
        """Since when it has used no CPU time worth the name; None if it does."""
        return None if self._rate > AWAKE else self.rested_since

    def stood_still(self, seconds: float, forgiven: float) -> None:
        """The machine slept: nothing happened in that time, and so much of it is not held against the worker."""
        self._rate_at += seconds
        self._since += seconds
        self.born += forgiven
        self.turned_at += forgiven
        self.rested_since += forgiven
        self.load_until += forgiven
        if self.sent_at is not None:
            self.sent_at += forgiven

    def die(self, *, code: int | None = None, signal: int | None = None, oom: bool = False) -> None:
        """The process ends; the node will see it by its pidfd."""
        if not self.alive:
            return
        self.world.note(f"{self} dies: {f'exit code {code}' if signal is None else f'signal {signal}'}")
        self.world.tally["deaths"] += 1
        self.alive = False
        self.exit_code, self.signal, self.oom = code, signal, oom
        self.world.processes.remove(self)
        self.node.readable(self, "pidfd")

    def kill(self) -> None:
        """SIGKILL: it dies at once, or when the kernel lets it."""
        self.frozen = True
        self.world.after(self.unkillable_for, lambda: self.die(signal=9))

    @property
    def goes_on(self) -> bool:
        """Whether jobs can do something now."""
        return True

    # what it says

    def report(self) -> None:
        """A frame on the pulse socket."""
        if not self.runs or self.mute:
            return
        self.sent_at = self.world.now
        status = "paused" if self.paused and self.status == "healthy" else self.status
        self.pulse.append(("health", status, self.turns, self.memory))
        self.node.readable(self, "pulse")

    def tell(self, *message: object) -> None:
        """A line on the work socket."""
        self.work.append(message)
        self.node.readable(self, "work")

    def noise(self) -> None:
        """Something on the pulse that is no frame."""
        if self.runs:
            self.pulse.append(("noise",))
            self.node.readable(self, "pulse")

    def beat(self) -> None:
        """The pulse thread's rhythm."""
        if not self.alive:
            return
        if self.runs and not self.mute:
            if not self.busy and self.status != "starting" and not self.stuck and not self.leaving:
                self.turn()
            self.report()
        self.world.after(self.world.profile.liveness.beat, self.beat)

    def turn(self) -> None:
        """The working thread did something."""
        self.turns += 1
        self.turned_at = self.world.now

    def speak_again(self) -> None:
        """The pulse runs again."""
        if self.mute and self.runs:
            self.mute = False
            self.waiting = 0  # nobody waits for an interpreter that is free
            self.world.note(f"{self} speaks again")
            self.report()

    # what it does

    def ready(self) -> None:
        """The set-up is done."""
        if not self.runs:
            return
        self.mute = False
        self.status = "healthy"
        self.use(AWAKE)
        self.turn()
        self.report()
        self.tell("ready")
        self.rest()

    def rest(self) -> None:
        """Nothing in hand: leave, if that was asked for."""
        if self.stop_told and not self.busy and not self.leaving and not self.stuck and self.status != "starting":
            self.leaving = True
            self.status = "stopping"
            self.report()
            self.world.after(self.world.chance.choice([0.001, 0.01, 0.3]), lambda: self.runs and self.die(code=0))

    def told_to_stop(self) -> None:
        """STOP came; the working thread reads it when it next listens."""
        self.stop_told = True
        if self.runs and not self.mute:
            self.rest()

    def told_paused(self, paused: bool) -> None:
        """PAUSE or RESUME came on the pulse."""
        self.paused = paused
        self.report()

    def signalled(self) -> None:
        """Somebody sent it a SIGTERM: its pulse says so, and the node answers with STOP."""
        if self.runs and not self.mute:
            self.sigterm_at = self.world.now
            self.status = "stopping"
            self.report()

    def told_cancelled(self, job_id: str, number: int) -> None:
        """CANCEL came on the pulse: the job sees it when it next says how far it is, if it ever does."""
        self.cancelled.add((job_id, number))

    def told_late(self, job_id: str, number: int) -> None:
        """A job of several has had its time."""
        raise NotImplementedError

    def is_cancelled(self, claim: Claim) -> bool:
        return (claim.id, claim.number) in self.cancelled

    def receive(self, todo: Todo) -> None:
        """A job came, or several, or the wish that it looks for some."""
        if isinstance(todo, Hand):
            permitted = [todo.first, *todo.ahead] if todo.first is not None and todo.permit else list(todo.ahead)
            numbered = list(enumerate(permitted, self._numbers + 1))
            self._numbers += len(permitted)
            self.pipe += [number for number, _ in numbered]
            if self.world.chance.random() < 0.3:
                self.begin_next()  # it takes a permit before the job arrives
            if todo.first is None or todo.permit:
                self.halted &= todo.first is None
                self.bodies += [] if self.halted else numbered
                self.begin_next()
                return
            self.bodies += numbered
            todo = todo.first
        if isinstance(todo, Look):
            self.look = todo
        else:
            self.halted = False
            claims = todo if isinstance(todo, list) else [todo]
            self.hand = {claim.id: claim for claim in claims}
        self._begin(todo)

    def _begin(self, todo: Begun) -> None:
        if self.stuck or not self.runs:
            return
        self.turn()
        self.report()
        self.use(0.8)
        self.world.fates.begin(self, todo)

    def begin_next(self) -> None:
        """It takes the next permit, if there is one and nothing else to do."""
        if not self.runs or self.busy or self.halted or self.stuck or self.mute or self.leaving:
            return
        while self.bodies:
            if self.permit is None:
                if not self.pipe:
                    self.bodies.clear()
                    return
                self.permit = self.pipe.pop(0)
            number, claim = self.bodies.pop(0)
            if number != self.permit:
                continue
            self.permit = None
            self.world.note(f"{self} begins job {claim.id}, claim {claim.number}")
            self.world.oracle.begins(self, claim)
            self.hand = {claim.id: claim}
            self._begin(claim)
            return

    def give_back(self) -> int:
        """The node takes back the permits that it has not taken: how many."""
        count = len(self.pipe)
        self.pipe.clear()
        return count

    def outcome(self, claim: Claim, outcome: Outcome | None = None) -> None:
        """The attempt ends, and the node is told."""
        if not self.runs or self.hand.get(claim.id) is not claim:
            return
        del self.hand[claim.id]
        if outcome is None:
            outcome = self.world.folk.leaves(claim) if self.world.profile.flows else Done()
        self.world.application.ended(self, claim, outcome)
        if not self.hand:
            self._through()
        self.tell("outcome", claim.id, claim.number, outcome)
        if self.hand:
            return
        self.halted = not isinstance(outcome, Done)
        if self.halted:
            self.bodies.clear()
        if self.bodies:
            self.world.after(self.world.chance.choice([0.0] * 10 + [0.0003, 0.004]), self._goes_on)
        else:
            self.report()
            self.rest()

    def _goes_on(self) -> None:
        """It begins its next job, if it still has one."""
        self.begin_next()
        if not self.busy and self.runs:
            self.rest()

    def found(self, items: list[Found] | None, more: bool = False) -> None:
        """It has looked: what it found; None, if that failed."""
        if not self.runs or self.look is None:
            return
        self.look = None
        self._through()
        self.tell("found", items, more)
        self.report()
        self.rest()

    def _through(self) -> None:
        """The working thread is back at its socket."""
        self.cancelled.clear()
        self.stuck = False
        self.use(AWAKE)
        self.speak_again()
        self.turn()
