"""Answers requests for the stacks of a running worker, without waiting for the worker.

`model/fleet/stacks.py` decides. This module asks the worker, reads what it writes and what the kernel knows, and
replies.
"""

import signal
from collections.abc import Mapping

import msgspec

from chargehand import clock, log
from chargehand.model.fleet import stacks
from chargehand.model.fleet.fleet import Fleet
from chargehand.model.fleet.stacks import SignalState, StackCode, Why, WorkerStacks
from chargehand.model.fleet.usage import Usage, cores
from chargehand.node.handle import Handle
from chargehand.node.replies import Token, answer_stacks
from chargehand.processes import proc
from chargehand.protocol.control import Call

NEVER = float("inf")


class Dump:
    """A dump in progress, and the callers that wait for it."""

    def __init__(self, handle: Handle, job: str | None, now: float) -> None:
        self.handle, self._job, self.tokens = handle, job, list[Token]()
        self._threads = proc.thread_states(handle.child.pid)
        self._since, self._usage = now, self._usage_now()
        self._signalled: tuple[float, SignalState] | None = None
        """When the signal was sent, and what the kernel knew about it before."""
        self.look_at, self._interval = now, stacks.FIRST_LOOK
        self._dumped: WorkerStacks | None = None
        """The answer with the stacks, while the CPU use is measured."""
        handle.ask_stacks()

    def _answer(self, why: Why, text: str = "") -> WorkerStacks:
        handle = self.handle
        return WorkerStacks(
            component=handle.component, pid=handle.child.pid, job=self._job, code=why[0], text=why[1], stacks=text,
            threads=self._threads,
        )  # fmt: skip

    def look(self, now: float) -> WorkerStacks | None:
        """Returns the answer; None if the worker has more time, or its CPU use is measured, until `look_at`."""
        found = self._dumped or self._read(now)
        if found is None or found.code != StackCode.DUMPED:
            return found
        if now < self._since + stacks.MEASURED:
            self._dumped, self.look_at = found, self._since + stacks.MEASURED
            return None
        return self._measured(found, now)

    def _measured(self, found: WorkerStacks, now: float) -> WorkerStacks:
        """Adds the memory and the CPU use of the process to the answer."""
        before, after = self._usage, self._usage_now()
        return msgspec.structs.replace(
            found,
            memory=proc.memory_of(self.handle.child.pid),
            cpu=None if before is None or after is None else cores(before, after, now - self._since),
            cpu_s=None if after is None else round(after.total, 2),
        )

    def _read(self, now: float) -> WorkerStacks | None:
        """Returns what the worker wrote, or why it wrote nothing; None if it has more time."""
        if self.handle.exit is not None:
            return self._answer(stacks.exited())
        found = self.handle.asked_stacks()
        if found.on_request is not None:
            return self._answer((StackCode.DUMPED, "wrote its stacks"), found.on_request)
        seen = proc.signal_state(self.handle.child.pid, signal.SIGUSR1)
        why = stacks.why_still(seen)
        if why is not None:
            return self._answer(why)
        if self._signalled is None and now >= self._since + stacks.PATIENCE:
            why = self._signal(seen, now)
        elif self._signalled is not None:
            since, before = self._signalled
            if stacks.is_complete(found, before, seen):
                how = (StackCode.DUMPED, "wrote its stacks while C code holds the interpreter")
                # Read again: the handler may have written the rest after `found` was read and before `seen` was.
                return self._answer(how, self.handle.asked_stacks().on_signal)
            if now >= since + stacks.LIMIT:
                why = stacks.why_incomplete(found, seen)
        self.look_at, self._interval = now + self._interval, min(2 * self._interval, stacks.LONGEST_LOOK)
        return None if why is None else self._answer(why)

    def _signal(self, seen: SignalState, now: float) -> Why | None:
        """Sends the signal if that is safe. Otherwise returns why not."""
        why = stacks.why_no_signal(
            seen, self._usage, self._usage_now(), now - self._since,
            ready=self.handle.health is not None, has_file=self.handle.has_stack_file(),
        )  # fmt: skip
        if why is None:
            self._signalled, self._interval = (now, seen), stacks.FIRST_LOOK
            self.handle.signal_stacks()
        return why

    def _usage_now(self) -> Usage | None:
        return proc.usage_of(self.handle.child.pid, self.handle.health.pulse if self.handle.health else 0)


class StackRequests:
    """The dumps in progress: callers that ask for the same worker at the same time receive the same dump."""

    def __init__(self, fleet: Fleet, handles: Mapping[str, Handle]) -> None:
        self._fleet, self._handles = fleet, handles
        self._dumps: dict[Handle, Dump] = {}

    def due(self) -> float:
        """Returns when `step` has something to do."""
        if not self._dumps:
            return NEVER
        return min(dump.look_at for dump in self._dumps.values())

    def ask(self, token: Token, call: Call) -> None:
        """Answer the caller with the stacks of a worker, now or later. UnknownCrew if there is no such worker."""
        place = stacks.worker_of(self._fleet, call.scope or "")
        log.info("stacks requested", component=place.component, pid=place.pid, who=call.who)
        handle = self._handles.get(place.component)
        why = stacks.why_no_dump(place)
        if handle is None or why is not None:
            code, text = why or stacks.exited()
            answer_stacks(token, WorkerStacks(component=place.component, pid=place.pid, code=code, text=text))
            return
        if handle not in self._dumps:
            self._dumps[handle] = Dump(handle, place.job, clock.monotonic())
        self._dumps[handle].tokens.append(token)

    def step(self, now: float) -> None:
        """Check the dumps that are due, and answer those that are complete or have failed."""
        for dump in [dump for dump in self._dumps.values() if dump.look_at <= now]:
            answer = dump.look(now)
            if answer is not None:
                del self._dumps[dump.handle]
                for token in dump.tokens:
                    answer_stacks(token, answer)
