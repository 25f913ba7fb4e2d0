"""What handlers should not do harms their own job at most."""

from collections.abc import Callable

import pytest
from world import World, gone

from chargehand import Chargehand, JobFailed, LivenessPolicy
from chargehand.model.job import State
from chargehand.system.job_files import SCRATCH, names
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]


ROUGH = [
    ("leave", "raised", "SystemExit: 2"),
    ("interrupt", "raised", "KeyboardInterrupt"),
    ("cancelled", "raised", "CancelledError"),
    ("odd_reason", "gave up", "404"),
    ("unreadable_reason", "gave up", "<exception str() failed>"),
    ("long_message", "raised", "ValueError: xxx"),
    ("unreadable_message", "raised", "ValueError"),
    ("ready_again", "poison", "bad frame"),
    ("empty_lines", "poison", "bad frame"),
]
"""What the handler does; why its job failed, and a word of its error."""


def test_it_fails_alone(hand: Chargehand, world: World) -> None:  # spec: WK-5 SV-8
    rough = hand.crew("rough", "misbehaving_handlers:Rough", workers=2, max_attempts=1)
    with hand.running() as host:
        assert host.ready.wait(20)
        node = host.node_pid
        for does, reason, words in ROUGH:
            ref = world.put(rough, do=does)
            with pytest.raises(JobFailed, match=reason):
                ref.wait(30)
            assert words in (ref.job().error or ""), does
            assert world.put(rough, do="nothing").wait(20) == "well", does
            assert ref.job().crashes == (3 if reason == "poison" else 0), does
        assert host.node_pid == node


def test_it_forks_and_ends_its_children(hand: Chargehand, world: World) -> None:  # spec: WP-1
    rough = hand.crew("rough", "misbehaving_handlers:Rough", workers=1)
    with hand.running():
        assert world.put(rough, do="fork_and_terminate").wait(20) == "well"
        ref = world.put(rough, do="fork_and_return")
        assert ref.wait(20) == "from the worker"
        (worker,) = (hand.status() or {})["workers"]
        assert (worker["status"], worker["restart_count"]) == ("healthy", 0)
    assert len(world.starts(ref)) == 1


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("leave", "SystemExit: 4"),
        ("interrupt", "KeyboardInterrupt"),
        ("leave later", None),
        ("leave as it ends", None),
        ("stop the loop", None),
    ],
)
def test_what_would_end_the_loop_is_not_left_for_the_next_job(  # spec: WK-5
    hand: Chargehand, does: str, words: str | None
) -> None:
    rough = hand.crew("rough", "misbehaving_handlers:RoughInItsTasks", workers=1, max_attempts=1)
    refs = rough.enqueue_many([{"do": "nothing"}, {"do": does}, *[{"do": "nothing"}] * 5])
    odd = refs.pop(1) if words is not None else None
    with hand.running():
        assert [ref.wait(20) for ref in refs] == [ref.id for ref in refs]
        if odd is not None:
            with pytest.raises(JobFailed, match=words):
                odd.wait(20)
    assert {ref.job().crashes for ref in refs} == {0}


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_thread_that_it_left_is_told_that_the_job_has_ended(  # spec: WK-5 FL-5
    hand: Chargehand, world: World, concurrency: int
) -> None:
    handler = "misbehaving_handlers:Rough" if concurrency == 1 else "misbehaving_handlers:RoughOnALoop"
    rough = hand.crew("rough", handler, workers=1, concurrency=concurrency)
    gate = world.gate()
    with hand.running():
        assert world.put(rough, gate, do="leave_a_thread").wait(20) == "well"
        gate.touch()
        eventually(lambda: world.lines("left"), what="the thread has ended")
    assert len(world.lines("refused")) == 3
    assert [count.done for count in hand.counts()] == [1]


def test_a_thread_that_it_left_does_not_keep_a_dead_worker_alive(hand: Chargehand, world: World) -> None:  # spec: RP-5
    rough = hand.crew("rough", "misbehaving_handlers:Rough", workers=1)
    with hand.running():
        ref = world.put(rough, do="thread_then_end")
        pid = world.started(ref)
        eventually(lambda: gone(pid))
        eventually(lambda: (hand.status() or {})["workers"][0]["status"] == "failed")
        assert "this machine has no GPU" in (hand.status() or {})["workers"][0]["text"]
    assert ref.job().state is State.QUEUED


def test_an_error_without_a_text_gives_its_worker_up(hand: Chargehand, world: World) -> None:  # spec: RP-5 WP-8
    rough = hand.crew("rough", "misbehaving_handlers:Rough", workers=1)
    with hand.running():
        ref = world.put(rough, do="unreadable_configuration")
        (worker,) = eventually(lambda: [each for each in hand.health("failed") if each.component == "worker:rough:0"])
        assert (worker.reason, worker.exit_code) == ("configuration error", 2)
    assert (ref.job().state, ref.job().crashes) == (State.QUEUED, 0)


def test_its_folders_are_removed_however_deep_they_are(hand: Chargehand, world: World) -> None:  # spec: FL-5
    rough = hand.crew("rough", "misbehaving_handlers:Rough", workers=1)
    root = hand.location.job_files(None)
    assert root is not None
    with hand.running():
        ref = world.put(rough, do="deep_folders")
        assert ref.wait(20) == "well"
        eventually(lambda: not names(root, SCRATCH))
    assert [attempt.outcome for attempt in ref.attempts()] == ["done"]


def test_a_stop_past_the_grace_makes_no_result_of_a_childs_death(  # spec: WP-6 PD-3
    world: World, make_hand: MakeHand
) -> None:
    hand = make_hand(liveness=LivenessPolicy(beat=0.2, grace=0.3, terminate=0.5))
    rough = hand.crew("rough", "misbehaving_handlers:Rough", workers=4)
    with hand.running():
        refs = [world.put(rough, do="wait_for_a_child") for _ in range(4)]
        for ref in refs:
            world.started(ref)
    assert [ref.job().state for ref in refs] == [State.QUEUED] * 4
    assert [(ref.job().interruptions, ref.job().attempts) for ref in refs] == [(1, 0)] * 4
