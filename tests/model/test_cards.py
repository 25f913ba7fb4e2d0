"""GPUs: what the tool reports, what CUDA_VISIBLE_DEVICES allows, and which of them a worker gets."""

from typing import Any

import pytest
from fleet_world import ONE, THREE, TWO, World
from hypothesis import given
from hypothesis import strategies as st

from chargehand.errors import ConfigurationError
from chargehand.model.fleet.admission import FRESH
from chargehand.model.fleet.cards import (
    Card,
    CardUse,
    Holding,
    Lack,
    Need,
    Reading,
    WorkerGpu,
    assign,
    figures,
    parse_cards,
    parse_uses,
    visible,
)
from chargehand.model.fleet.lifecycle import GpusRead, NotStarted, Spawn, Started
from chargehand.model.fleet.orders import Verb
from chargehand.model.fleet.place import Shortage
from chargehand.model.fleet.policy import StartPolicy, Terms
from chargehand.model.health import will_work
from chargehand.settings.plan import CrewPlan, check_crew

GIB = 2**30
FOUR = "worker:tag:3"
TOOL = """\
0, GPU-aaaa1111, NVIDIA A100-SXM4-80GB, 81920, 81000, 7
1, GPU-aaaa2222, "NVIDIA, RTX", 24576, [N/A], [Not Supported]
"""


def card(index: int, memory: int | None = 80, free: int | None = None, **more: Any) -> Card:
    """A GPU; sizes are GiB. All of its memory is free unless another figure is given; -1: not known."""
    total = None if memory is None else memory * GIB
    left = total if free is None else None if free < 0 else free * GIB
    return Card(uuid=f"GPU-{index}", index=index, name="X", memory=total, free=left, **more)


def reading(*cards: Card, at: float = 0.0, **more: Any) -> Reading:
    return Reading(at=at, cards=cards, **more)


def held(*indices: int, memory: int | None = 60, settled: bool = True) -> Holding:
    uuids = frozenset(f"GPU-{index}" for index in indices)
    return Holding(uuids=uuids, memory=None if memory is None else memory * GIB, settled=settled)


def need(memory: int | None = 60, count: int = 1, *, required: bool = True) -> Need:
    return Need(count=count, memory=None if memory is None else memory * GIB, required=required)


def given_to(found: tuple[WorkerGpu, ...] | Lack) -> list[int | None]:
    assert not isinstance(found, Lack), found
    return [gpu.index for gpu in found]


# the tool


# spec: WP-14
def test_the_list_of_the_tool() -> None:
    one, two = parse_cards(TOOL)
    assert (one.uuid, one.index, one.memory, one.free, one.utilization) == (
        "GPU-aaaa1111", 0, 80 * GIB, 81000 << 20, 7,
    )  # fmt: skip
    assert (two.name, two.memory, two.free, two.utilization) == ("NVIDIA, RTX", 24 * GIB, None, None)
    assert parse_cards("") == ()
    assert parse_uses("4711, GPU-aaaa1111, 512\n4712, GPU-aaaa1111, [N/A]\n") == [(4711, "GPU-aaaa1111", 512 << 20)]


# spec: WP-14
@pytest.mark.parametrize("text", ["No devices were found", "x, GPU-1, A, 1, 1, 1", "0, GPU-1, A, 1, 1"])
def test_what_is_no_list_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"unexpected line|invalid literal"):
        parse_cards(text)


# spec: WP-14
@pytest.mark.parametrize(
    ("text", "uuids"),
    [
        (None, ["GPU-aaaa1111", "GPU-aaaa2222"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1", ["GPU-aaaa2222"]),
        ("1,0", ["GPU-aaaa2222", "GPU-aaaa1111"]),
        (" 0 , 1 ", ["GPU-aaaa1111", "GPU-aaaa2222"]),
        ("0,0", ["GPU-aaaa1111"]),
        ("0,7,1", ["GPU-aaaa1111"]),
        ("GPU-aaaa2", ["GPU-aaaa2222"]),
        ("GPU-aaaa1111", ["GPU-aaaa1111"]),
        ("GPU-aaaa", []),
        ("MIG-11/7/0,0", ["MIG-11/7/0", "GPU-aaaa1111"]),
    ],
)
def test_what_an_inherited_list_allows(text: str | None, uuids: list[str]) -> None:
    assert [card.uuid for card in visible(parse_cards(TOOL), text)] == uuids


# assignment


# spec: WP-14
def test_the_card_with_the_most_free_memory_is_assigned() -> None:
    assert given_to(assign(need(10), reading(card(0, 80, 30), card(1, 80, 70)), [])) == [1]
    assert given_to(assign(need(10), reading(card(0), card(1)), [held(0, memory=10)])) == [1]
    assert given_to(assign(need(10), reading(card(0, 80, -1), card(1, 24)), [])) == [0], "free memory may be unknown"
    assert given_to(assign(need(None), reading(card(0, 80, 30), card(1, 80, 70)), [])) == [1]
    assert given_to(assign(need(10, 2), reading(card(0), card(1, 80, 5), card(2)), [])) == [0, 2]


# spec: WP-14
@pytest.mark.parametrize(
    ("wanted", "cards", "holdings", "text"),
    [
        (
            need(60), [card(0, 140)], [held(0), held(0)],
            "waits for GPU memory: needs 60.0 GiB; 20.0 GiB of 140.0 GiB are free on GPU 0 (X)",
        ),
        (
            need(60), [card(0, 80, 30), card(1, 80, 50)], [],
            "waits for GPU memory: needs 60.0 GiB; 50.0 GiB of 80.0 GiB are free on GPU 1 (X)",
        ),
        (
            need(40), [card(0, 80, 70)], [held(0, memory=40, settled=False)],
            "waits for GPU memory: needs 40.0 GiB; 30.0 GiB of 80.0 GiB are free on GPU 0 (X)",
        ),
        (need(None), [card(0), card(1)], [held(0, memory=1), held(1, memory=None)],
         "waits for a GPU: needs 1; 0 of 2 are free"),
        (need(10), [card(0)], [held(0, memory=None)], "waits for a GPU: needs 1; 0 of 1 are free"),
        (need(None, 2), [card(0), card(1)], [held(1)], "waits for GPUs: needs 2; 1 of 2 are free"),
        (need(30, 2), [card(0), card(1)], [held(1)],
         "waits for GPU memory: needs 30.0 GiB of GPU memory on each of 2 GPUs; 1 of 2 have that much free"),
    ],
)  # fmt: skip
def test_what_does_not_fit_now_waits(wanted: Need, cards: list[Card], holdings: list[Holding], text: str) -> None:
    assert assign(wanted, reading(*cards), holdings) == Lack(text)


# spec: WP-14
@pytest.mark.parametrize(
    ("wanted", "cards", "text"),
    [
        (need(90), [card(0), card(1, 24)], "needs 90.0 GiB of GPU memory; the largest GPU has 80.0 GiB"),
        (need(60, 2), [card(0), card(1, 24)],
         "needs 60.0 GiB of GPU memory on each of 2 GPUs; the largest GPU has 80.0 GiB"),
        (need(None, 3), [card(0), card(1)], "needs 3 GPUs; this node has 2"),
        (need(None), [], "needs a GPU; no GPU was found: x"),
    ],
)  # fmt: skip
def test_what_no_card_can_ever_satisfy_is_permanent(wanted: Need, cards: list[Card], text: str) -> None:
    assert assign(wanted, reading(*cards, why="x"), []) == Lack(text, permanent=True)


# spec: WP-14
def test_without_cards_declared_memory_alone_does_not_hold_a_worker_back() -> None:
    assert assign(need(60, required=False), reading(why="nvidia-smi: not found"), []) == ()
    assert isinstance(assign(need(60, required=False), None, []), Lack)


# spec: WP-14
def test_a_part_of_a_gpu_has_one_worker() -> None:
    part = Card(uuid="MIG-1", name="MIG")
    found = assign(need(60), reading(part), [])
    assert not isinstance(found, Lack)
    assert [gpu.uuid for gpu in found] == ["MIG-1"]
    alone = Holding(uuids=frozenset({"MIG-1"}), memory=60, settled=True)
    assert assign(need(60), reading(part), [alone]) == Lack("waits for a GPU: needs 1; 0 of 1 are free")


needs = st.builds(need, st.none() | st.integers(1, 90), st.integers(1, 2))


# spec: WP-14
@given(st.lists(st.integers(10, 90), max_size=3), st.lists(needs, max_size=8))
def test_no_card_is_promised_twice(sizes: list[int], wanted: list[Need]) -> None:
    cards = [card(index, memory) for index, memory in enumerate(sizes)]
    holdings: list[Holding] = []
    for each in wanted:
        found = assign(each, reading(*cards), holdings)
        if not isinstance(found, Lack):
            uuids = frozenset(gpu.uuid for gpu in found)
            assert len(uuids) == each.count
            holdings.append(Holding(uuids=uuids, memory=each.memory, settled=True))
    for each in cards:
        here = [holding.memory for holding in holdings if each.uuid in holding.uuids]
        assert here == [None] or sum(memory or 0 for memory in here) <= (each.memory or 0)
        assert len(here) < 2 or None not in here


# the fleet


def world_of(workers: int, *cards: Card, wanted: Need | None = None, **more: Any) -> World:
    terms = Terms(workers=workers, gpus=wanted or need(), gpu_memory=(wanted or need()).memory, **more)
    starts = StartPolicy(stagger=0.0, most_loading=1000)
    world = World(crews={"tag": terms}, starts=starts)
    assert world.begun == []
    if cards:
        world.tell(GpusRead(reading(*cards, at=world.now)))
    return world


def gpus_of(world: World, component: str) -> list[str]:
    return [gpu.uuid for gpu in world.fleet.places[component].gpus]


# spec: WP-14 SV-9
def test_workers_start_when_the_gpus_are_known_and_no_more_than_fit() -> None:
    world = world_of(4)
    assert world.place.text == "waits for the list of GPUs"
    assert world.fleet.gpus_unread, "it is asked for at once"
    found = world.tell(GpusRead(reading(card(0), card(1), at=world.now)))
    assert found == [Spawn(ONE, 1), Spawn(TWO, 1)]
    assert (gpus_of(world, ONE), gpus_of(world, TWO)) == (["GPU-0"], ["GPU-1"])
    waits = world.fleet.places[FOUR]
    assert waits.shortage is Shortage.TEMPORARY
    assert waits.text == "waits for GPU memory: needs 60.0 GiB; 20.0 GiB of 80.0 GiB are free on GPU 0 (X)"
    assert set(world.fleet.take_waiting()) == {ONE, TWO, THREE, FOUR}
    assert (world.fleet.take_waiting(), will_work(waits)) == ([], True)


# spec: WP-14
def test_a_gpu_is_free_only_when_the_process_and_its_children_are_gone() -> None:
    world = world_of(2, card(0))
    world.ready()
    world.order(Verb.STOP)
    assert world.after(1) == []
    assert gpus_of(world, ONE) == ["GPU-0"], "it may still use it"
    before = reading(card(0, 80, 20), at=world.now)
    world.now += 1
    assert (world.exit(code=0), world.fleet.gpus_unread) == ([], True), "the last reading is older than the exit"
    assert (world.tell(GpusRead(before)), world.fleet.gpus_unread) == ([], True), "and so is this one"
    assert world.tell(GpusRead(reading(card(0), at=world.now))) == [Spawn(TWO, 1)]
    assert (gpus_of(world, ONE), gpus_of(world, TWO)) == ([], ["GPU-0"])
    world.tell(NotStarted(TWO, "no memory"))
    assert gpus_of(world, TWO) == []


# spec: WP-14
def test_what_another_process_uses_is_waited_for() -> None:
    world = world_of(1, card(0, 80, 30))
    assert world.place.shortage is Shortage.TEMPORARY
    world.now += 5
    assert world.tell(GpusRead(reading(card(0, 80, 70), at=world.now))) == [Spawn(ONE, 1)]


# spec: WP-14
def test_an_old_reading_does_not_count() -> None:
    world = world_of(1, card(0), idle_exit=60.0)
    world.ready()
    world.order(Verb.STOP)
    world.exit(code=0)
    world.now += FRESH + 1
    assert world.order(Verb.START)[0] == []
    assert (world.fleet.gpus_unread, world.fleet.uses_gpus()) == (True, True)
    assert world.tell(GpusRead(reading(card(0), at=world.now))) == [Spawn(ONE, 2)]
    assert not world.fleet.gpus_unread


# spec: WP-14
def test_a_reading_that_fails_leaves_the_known_gpus_without_figures() -> None:
    world = world_of(2, card(0, 80, 50, utilization=9))
    assert world.place.shortage is Shortage.TEMPORARY
    failed = Reading(at=world.now, why="driver")
    assert world.tell(GpusRead(failed)) == [Spawn(ONE, 1)], "by what is declared alone"
    (gpu,) = world.place.gpus
    assert (gpu.memory, gpu.memory_used, gpu.utilization) == (80 * GIB, None, None)


# spec: WP-14
def test_without_a_tool_a_worker_that_must_have_a_gpu_says_why() -> None:
    world = world_of(1, wanted=need(None))
    world.tell(GpusRead(Reading(at=world.now, why="nvidia-smi: not found")))
    assert (world.place.shortage, world.place.text) == (
        Shortage.PERMANENT, "needs a GPU; no GPU was found: nvidia-smi: not found",
    )  # fmt: skip
    assert not will_work(world.place)
    assert world.tell(GpusRead(reading(card(0), at=world.now))) == [Spawn(ONE, 1)], "the driver is there now"


# spec: WP-14
def test_the_limit_of_the_node_holds_beside_the_cards() -> None:
    terms = Terms(workers=2, gpus=need(30, 2), gpu_memory=30 * GIB)
    starts = StartPolicy(stagger=0.0, most_loading=1000, gpu_memory=100 * GIB)
    world = World(crews={"tag": terms}, starts=starts)
    assert world.tell(GpusRead(reading(card(0), card(1), at=world.now))) == [Spawn(ONE, 1)]
    text = "waits for GPU memory: needs 60.0 GiB; 40.0 GiB of 100.0 GiB are free"
    assert world.fleet.places[TWO].text == text


# spec: WP-14
def test_the_figures_of_a_worker_and_of_its_gpu() -> None:
    world = world_of(1, card(0))
    world.tell(Started(ONE, 77))
    uses = (CardUse(77, "GPU-0", 5), CardUse(77, "GPU-0", 6), CardUse(77, "GPU-1", 7), CardUse(78, "GPU-0", 8))
    world.tell(GpusRead(reading(card(0, 80, 20, utilization=30), at=world.now, uses=uses)))
    (gpu,) = world.place.gpus
    assert (gpu.memory, gpu.memory_used, gpu.worker_memory, gpu.utilization) == (80 * GIB, 60 * GIB, 11, 30)
    world.tell(GpusRead(reading(card(1), at=world.now)))
    (gpu,) = world.place.gpus
    assert (gpu.uuid, gpu.memory_used, gpu.worker_memory, gpu.utilization) == ("GPU-0", None, None, None)
    assert figures(card(0), reading(card(0), uses=uses), 79).worker_memory is None, "the pids are others: a container"


# the options of a crew


def plan(**options: Any) -> CrewPlan:
    return check_crew(CrewPlan(name="tag", queue="tag", handler="a:B", **options))


# spec: WP-14
def test_what_the_options_mean() -> None:
    assert plan().terms().gpus is None
    assert plan(gpus=2).terms().gpus == Need(count=2)
    assert plan(gpus=1, gpu_memory=5).terms().gpus == Need(count=1, memory=5)
    assert plan(gpu_memory=5).terms().gpus == Need(count=1, memory=5, required=False)
    own = {"CUDA_VISIBLE_DEVICES": "{index}"}
    assert plan(gpu_memory=5, environment=own).terms().gpus is None, "the crew assigns its GPUs itself"
    with pytest.raises(ConfigurationError, match="gpus is 1 and environment sets CUDA_VISIBLE_DEVICES"):
        plan(gpus=1, environment=own)
    for wrong in (-1, 65, True, "1", 1.5):
        with pytest.raises(ConfigurationError, match=r"gpus|Expected `int`"):
            plan(gpus=wrong)
