"""GPUs with real processes and a stand-in for nvidia-smi: assignment, memory, release, figures."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from operating import become, workers
from world import World

from chargehand import Chargehand, clock
from chargehand.processes.nvidia import Tool
from chargehand.testing import eventually

VISIBLE = "CUDA_VISIBLE_DEVICES"
MIRROR = "reporting_handlers:Mirror"
UUIDS = ["GPU-11111111-aaaa", "GPU-22222222-bbbb"]


class Smi:
    """The stand-in and its two cards of 80 GiB."""

    def __init__(self, folder: Path) -> None:
        self.state, self.path = folder / "gpus.json", folder / "nvidia-smi"
        script = Path(__file__).with_name("nvidia_stand_in.py")
        self.path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{script}" "{self.state}" "$@"\n')
        self.path.chmod(0o755)
        self.set()

    def set(self, free: tuple[int, int] = (80, 80), apps: Sequence[tuple[int, str, int]] = (), **more: Any) -> None:
        """Changes the answers: free memory in GiB, and what processes use in MiB."""
        cards = [
            {"index": n, "uuid": UUIDS[n], "name": "NVIDIA A100", "memory.total": 81920, "memory.free": free[n] * 1024,
             "utilization.gpu": 17}
            for n in (0, 1)
        ]  # fmt: skip
        rows = [{"pid": pid, "gpu_uuid": uuid, "used_memory": memory} for pid, uuid, memory in apps]
        fresh = self.state.with_suffix(".new")
        fresh.write_text(json.dumps({"cards": cards, "apps": rows, **more}))
        fresh.rename(self.state)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    made = Smi(tmp_path)
    monkeypatch.setenv("CHARGEHAND_NVIDIA_SMI", str(made.path))
    monkeypatch.delenv(VISIBLE, raising=False)
    # The node reads the GPUs more often than usual.
    (tmp_path / "sitecustomize.py").write_text("import chargehand.node.gpus as gpus\ngpus.EVERY = 0.3\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    return made


MakeHand = Callable[..., Chargehand]


def test_workers_get_cards_of_their_own_and_what_does_not_fit_waits(  # spec: WP-14 SV-9
    make_hand: MakeHand, smi: Smi, world: World
) -> None:
    hand = make_hand()
    big = hand.crew("big", MIRROR, workers=4, gpu_memory="60 GiB")
    other = hand.crew("other", MIRROR, workers=1)
    with hand.running():
        first = {"big:0": "healthy", "big:1": "healthy", "big:2": "stopped", "big:3": "stopped", "other:0": "healthy"}
        found = become(hand, first)
        assert [found[name]["gpus"][0]["uuid"] for name in ("big:0", "big:1")] == UUIDS
        for name in ("big:2", "big:3"):
            assert (found[name]["shortage"], found[name]["gpus"]) == ("temporary", [])
            text = "waits for GPU memory: needs 60.0 GiB; 20.0 GiB of 80.0 GiB are free on GPU 0 (NVIDIA A100)"
            assert found[name]["text"] == text
        seen = {found["pid"]: found[VISIBLE] for found in (ref.wait(30) for ref in big.enqueue_many([[VISIBLE]] * 8))}
        pids = {found[name]["pid"]: found[name]["gpus"][0]["uuid"] for name in ("big:0", "big:1")}
        assert seen.items() <= pids.items()
        assert other.enqueue([VISIBLE]).wait(30)[VISIBLE] is None
        # figures: those of its own process and those of the card
        pid = found["big:0"]["pid"]
        smi.set(free=(30, 80), apps=[(pid, UUIDS[0], 512), (1, UUIDS[0], 9)])

        def figures(name: str) -> list[Any]:
            (gpu,) = workers(hand)[name]["gpus"]
            return [gpu[field] for field in ("memory_used", "worker_memory", "utilization", "name")]

        eventually(lambda: figures("big:0") == [50 << 30, 512 << 20, 17, "NVIDIA A100"])
        assert workers(hand)["big:1"]["gpus"][0]["worker_memory"] is None
        # a card is free when its worker has exited, and what others use on it counts
        hand.stop("big:0")
        eventually(lambda: "30.0 GiB of 80.0 GiB are free on GPU 0" in (workers(hand)["big:2"]["text"] or ""))
        smi.set()
        eventually(lambda: workers(hand)["big:2"]["gpus"])
        assert workers(hand)["big:2"]["gpus"][0]["uuid"] == UUIDS[0]


def test_whole_cards_within_an_inherited_list(  # spec: WP-14 WP-3 SV-4
    make_hand: MakeHand, smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE, "GPU-2222")
    hand = make_hand()
    one = hand.crew("one", MIRROR, workers=1, gpus=1, idle_exit=0.5)
    two = hand.crew("two", MIRROR, workers=1, gpus=1)
    hand.crew("never", MIRROR, workers=1, gpus=2)
    with hand.running():
        found = become(hand, {"one:0": "asleep", "two:0": "healthy", "never:0": "stopped"})  # it let go of its card
        assert found["two:0"]["gpus"][0]["uuid"] == UUIDS[1]
        assert (found["never:0"]["shortage"], found["never:0"]["text"]) == (
            "permanent", "needs 2 GPUs; this node has 1",
        )  # fmt: skip
        assert two.enqueue([VISIBLE]).wait(30)[VISIBLE] == UUIDS[1]
        ref = one.enqueue([VISIBLE])
        text = "waits for a GPU: needs 1; 0 of 1 are free"
        eventually(lambda: workers(hand)["one:0"]["text"] == text)
        assert workers(hand)["one:0"]["status"] == "asleep"
        hand.stop("two")
        assert ref.wait(30)[VISIBLE] == UUIDS[1]


def test_a_tool_that_fails_or_hangs_or_is_missing(smi: Smi) -> None:  # spec: WP-14
    tool = Tool(str(smi.path))
    smi.set(error="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver")
    found = tool.read(None)
    assert found.cards == ()
    assert found.why is not None
    assert found.why.startswith(f"{smi.path}: exit status 1: NVIDIA-SMI has failed")
    smi.set(pause=60)
    began = clock.monotonic()
    assert tool.read(None, limit=0.3).why == f"{smi.path}: no answer within 0.3 s"
    assert clock.monotonic() - began < 5
    assert Tool("/nowhere/nvidia-smi").read(None).why == "/nowhere/nvidia-smi: not found"
    assert Tool("/").read(None).why == "/: Permission denied"
    smi.set()
    assert len(tool.read(None).cards) == 2
    assert tool.read("").why == "CUDA_VISIBLE_DEVICES is '', which names no GPU of this machine"


def test_a_tool_that_hangs_holds_nobody_up_and_does_not_outlive_the_node(  # spec: WP-14 SV-3 WP-7
    make_hand: MakeHand, smi: Smi
) -> None:
    smi.set(pause=60)
    hand = make_hand()
    hand.crew("gpu", MIRROR, workers=1, gpus=1)
    other = hand.crew("other", MIRROR, workers=1)
    with hand.running():
        assert other.enqueue(None).wait(30)
        assert workers(hand)["gpu:0"]["text"] == "waits for the list of GPUs"
        began = clock.monotonic()
    assert clock.monotonic() - began < 5
    # the fixture `nothing_is_left_behind` finds a tool that still runs
