"""The GPUs of a node: which of them the node may use, and which of them a worker gets.

Pure: the output of NVIDIA's tool comes in as text, assignments and their reasons go out.
"""

from collections.abc import Iterable, Sequence

import msgspec

VISIBLE = "CUDA_VISIBLE_DEVICES"
MIB = 1 << 20


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. Sizes are bytes; None if they are not known."""

    uuid: str
    index: int | None = None
    """Its number on this machine; None for a part of a GPU (MIG)."""
    name: str = ""
    memory: int | None = None
    free: int | None = None
    """The memory that no process uses."""
    utilization: int | None = None
    """Per cent of the time in which the GPU was busy."""

    @property
    def title(self) -> str:
        """The GPU as people name it."""
        return self.uuid if self.index is None else f"GPU {self.index} ({self.name})"


class CardUse(msgspec.Struct, frozen=True):
    """The memory that one process uses on one GPU, in bytes, with the session of the process."""

    session: int
    uuid: str
    memory: int


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What the tool reported at one time."""

    at: float
    """When the reading began, in monotonic seconds."""
    cards: tuple[Card, ...] = ()
    why: str | None = None
    """Why there are no GPUs; None if there are."""
    uses: tuple[CardUse, ...] = ()

    def after(self, before: "Reading | None") -> "Reading":
        """Returns this reading; if it failed and an earlier one did not, the known GPUs without measurements."""
        if before is None or self.cards or not before.cards:
            return self
        known = [msgspec.structs.replace(card, free=None, utilization=None) for card in before.cards]
        return msgspec.structs.replace(self, cards=tuple(known))


class WorkerGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that is assigned to a worker, and how it is used. Sizes are bytes; null if they are not known."""

    uuid: str
    index: int | None = None
    name: str = ""
    memory: int | None = None
    memory_used: int | None = None
    """The memory in use by all processes."""
    worker_memory: int | None = None
    """The memory in use by this worker and its child processes."""
    utilization: int | None = None
    """Per cent of the time in which the GPU was busy, for whatever process."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What each worker of a crew needs: so many GPUs and, on each, so much memory. None: each GPU for itself."""

    count: int
    memory: int | None = None
    required: bool = True
    """Whether the worker must not start on a node without GPUs."""


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that a living worker has. `settled`: its memory is part of the last reading."""

    uuids: frozenset[str]
    memory: int | None
    settled: bool


class Lack(msgspec.Struct, frozen=True):
    """Why a worker cannot start now; `permanent` if nothing that other workers do can change it."""

    text: str
    permanent: bool = False
    memory: str = ""
    """Which of the node's limits is exhausted by its own workers: `memory` or `gpu_memory`; empty: neither."""


# what the tool reports


def parse_cards(text: str) -> tuple[Card, ...]:
    """Reads `index,uuid,name,memory.total,memory.free,utilization.gpu`. Raises ValueError."""
    found: list[Card] = []
    for row in _rows(text):
        if len(row) != 6:
            raise ValueError(f"unexpected line {','.join(row)!r}")
        index, uuid, name, memory, free, utilization = (cell.strip() for cell in row)
        found.append(
            Card(
                uuid=uuid, index=int(index), name=name, memory=_bytes(memory), free=_bytes(free),
                utilization=_number(utilization),
            )
        )  # fmt: skip
    return tuple(found)


def parse_uses(text: str) -> list[tuple[int, str, int]]:
    """Reads `pid,gpu_uuid,used_memory`; leaves out processes whose memory is not known. Raises ValueError."""
    found: list[tuple[int, str, int]] = []
    for row in _rows(text):
        if len(row) != 3:
            raise ValueError(f"unexpected line {','.join(row)!r}")
        memory = _bytes(row[2])
        if memory is not None:
            found.append((int(row[0]), row[1].strip(), memory))
    return found


def _rows(text: str) -> Iterable[list[str]]:
    import csv  # here: most nodes have no GPUs

    return csv.reader(text.splitlines(), skipinitialspace=True)


def _number(text: str) -> int | None:
    """Returns a whole number; None for `[N/A]` and its like."""
    return int(text) if text.strip().isdecimal() else None


def _bytes(text: str) -> int | None:
    found = _number(text)
    return None if found is None else found * MIB


def visible(cards: Sequence[Card], text: str | None) -> tuple[Card, ...]:
    """Returns the GPUs that an inherited CUDA_VISIBLE_DEVICES allows, in its order; all if it is not set.

    As in CUDA, the list ends at the first entry that names no GPU. Entries are indices, UUIDs, unique beginnings of
    UUIDs, and ids of parts of a GPU (MIG), of which only the id is known.
    """
    if text is None:
        return tuple(cards)
    found: dict[str, Card] = {}
    for entry in (part.strip() for part in text.split(",")):
        if entry.startswith("MIG-"):
            card = Card(uuid=entry, name="MIG")
        else:
            matching = [each for each in cards if _names(entry, each)]
            if len(matching) != 1:
                break
            card = matching[0]
        found.setdefault(card.uuid, card)
    return tuple(found.values())


def _names(entry: str, card: Card) -> bool:
    return card.uuid.startswith(entry) if entry.startswith("GPU-") else entry.isdecimal() and int(entry) == card.index


# which GPUs a worker gets


def assign(need: Need, reading: Reading | None, holdings: Sequence[Holding]) -> tuple[WorkerGpu, ...] | Lack:
    """Returns the GPUs with the most free memory that satisfy the need, or why there are none.

    A worker that declares its memory shares a GPU with others as long as the sum fits, and as long as that much is free
    by the last reading. A worker that declares none has its GPUs for itself.
    """
    if reading is None:
        return Lack("waits for the list of GPUs")
    cards = reading.cards
    if not cards:
        why = f"needs {_gpus(need.count)}; no GPU was found: {reading.why}"
        return Lack(why, permanent=True) if need.required else ()
    if len(cards) < need.count:
        return Lack(f"needs {_gpus(need.count)}; this node has {len(cards)}", permanent=True)
    able = [card for card in cards if need.memory is None or card.memory is None or card.memory >= need.memory]
    if len(able) < need.count:
        largest = size(max(card.memory or 0 for card in cards))
        return Lack(f"needs {_memory(need)}; the largest GPU has {largest}", permanent=True)
    room = {card.uuid: _room(card, need, holdings) for card in able}
    free = [card for card in able if (have := room[card.uuid]) is not None and have >= (need.memory or 0)]
    if len(free) < need.count:
        return Lack(_waits(need, able, room, len(free)))
    free.sort(key=lambda card: -(room[card.uuid] or 0))
    return tuple(figures(card, reading, None) for card in free[: need.count])


def _room(card: Card, need: Need, holdings: Sequence[Holding]) -> int | None:
    """Returns the memory that is left on a GPU; None if the worker must not share it."""
    here = [holding for holding in holdings if card.uuid in holding.uuids]
    if need.memory is None or card.memory is None:
        return None if here else (card.free or card.memory or need.memory or 0)
    if any(holding.memory is None for holding in here):
        return None
    declared = card.memory - sum(holding.memory or 0 for holding in here)
    if card.free is None:
        return max(0, declared)
    coming = sum(holding.memory or 0 for holding in here if not holding.settled)
    return max(0, min(declared, card.free - coming))


def _waits(need: Need, able: Sequence[Card], room: dict[str, int | None], free: int) -> str:
    if need.memory is None or all(room[card.uuid] is None for card in able):
        return f"waits for {'a GPU' if need.count == 1 else 'GPUs'}: needs {need.count}; {free} of {len(able)} are free"
    if need.count > 1:
        return f"waits for GPU memory: needs {_memory(need)}; {free} of {len(able)} have that much free"
    best = max(able, key=lambda card: room[card.uuid] or 0)
    left, total = size(room[best.uuid] or 0), size(best.memory or 0)
    return f"waits for GPU memory: needs {size(need.memory)}; {left} of {total} are free on {best.title}"


def _gpus(count: int) -> str:
    return "a GPU" if count == 1 else f"{count} GPUs"


def _memory(need: Need) -> str:
    each = f" on each of {need.count} GPUs" if need.count > 1 else ""
    return f"{size(need.memory or 0)} of GPU memory{each}"


def figures(card: Card, reading: Reading, session: int | None) -> WorkerGpu:
    """Returns a GPU as it is shown for the worker with this session; a worker that is starting has none yet."""
    own = [use.memory for use in reading.uses if use.session == session and use.uuid == card.uuid]
    used = None if card.memory is None or card.free is None else card.memory - card.free
    return WorkerGpu(
        uuid=card.uuid, index=card.index, name=card.name, memory=card.memory, memory_used=used,
        worker_memory=sum(own) if own else None, utilization=card.utilization,
    )  # fmt: skip


def unmeasured(gpu: WorkerGpu) -> WorkerGpu:
    """Returns a GPU that the last reading does not have, without its figures."""
    return msgspec.structs.replace(gpu, memory_used=None, worker_memory=None, utilization=None)


def size(count: int) -> str:
    """Formats a number of bytes."""
    for unit, bytes_ in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= bytes_:
            return f"{count / bytes_:.1f} {unit}"
    return f"{count:.1f} B"
