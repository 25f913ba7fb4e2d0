"""The column of `status` and `top` for GPUs."""

from io import StringIO
from typing import Any

from msgspec import to_builtins
from rich.console import Console

from chargehand.cli import show
from chargehand.cli.board import Board, drawn
from chargehand.live.bodies import WorkerBody
from chargehand.model.fleet.cards import WorkerGpu

GIB = 2**30
GPU = WorkerGpu(uuid="GPU-1", index=3, memory=80 * GIB, memory_used=61 * GIB, utilization=97)


def test_the_gpus_of_a_worker_in_a_few_words() -> None:  # spec: WP-14 CL-3
    assert show.gpus([]) is None
    assert show.gpus([to_builtins(GPU), to_builtins(WorkerGpu(uuid="MIG-1"))]) == "3: 61/80 GiB 97 %, MIG-1:"


def text_of(*workers: WorkerBody) -> str:
    board = Board("/x.db")
    for worker in workers:
        body: dict[str, Any] = to_builtins(worker)
        board.add({"type": "worker_update", "worker": body})
    console = Console(file=StringIO(), width=300)
    console.print(drawn(board))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_column_is_there_only_with_gpus() -> None:  # spec: WP-14 CL-3
    plain = WorkerBody(component="worker:a:0", crew="a", index=0, status="asleep", node="n")
    assert "GPU" not in text_of(plain)
    with_gpu = WorkerBody(component="worker:b:0", crew="b", index=0, status="healthy", node="n", gpus=(GPU,))
    shown = text_of(plain, with_gpu)
    assert "MEMORY  GPU" in shown
    assert "3: 61/80 GiB 97 %" in shown
