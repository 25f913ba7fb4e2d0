"""The watchdog is watched: errors in the supervision loop itself."""

from pathlib import Path

from operating import pids, serving
from world import World

from chargehand.log import Event
from chargehand.testing import eventually

PATCH = """
import os
from pathlib import Path
import chargehand.node.node

step = chargehand.node.node.Node.step

def faulty(self):
    step(self)
    for trap in sorted(Path(os.environ["TRAPS"]).glob("trap-*")):
        trap.unlink()
        raise RuntimeError(f"as told by {trap.name}")

chargehand.node.node.Node.step = faulty
"""


def test_supervision_goes_on_after_an_error_and_is_handed_over_after_three(world: World) -> None:  # spec: SV-13 SV-11
    traps = world.folder / "traps"
    traps.mkdir()
    patched = f"import sys\nif 'chargehand.node.main' in ' '.join(sys.orig_argv):\n    exec({PATCH!r})\n"
    (world.folder / "sitecustomize.py").write_text(patched)
    with serving(world, "do = hand.crew('do', 'scripted_handlers:Doer', workers=2)", TRAPS=str(traps)) as served:
        served.ready()
        node, before = served.ready_pid(), pids(served.hand)
        do = served.hand.crew("do", "scripted_handlers:Doer")

        def spring(number: int) -> None:
            trap = Path(traps / f"trap-{number}")
            trap.touch()
            world.put(do)  # something for the node to do
            eventually(lambda: not trap.exists(), what="the node ran into it")

        for number in (1, 2):
            spring(number)
            eventually(lambda number=number: f"as told by trap-{number}" in served.log.read_text())
        assert world.put(do).wait(20) == 1
        assert (served.ready_pid(), pids(served.hand)) == (node, before), "nobody is touched"
        spring(3)
        eventually(lambda: served.logged(f"event={Event.SUPERVISION_ABORTED}"))
        eventually(lambda: (served.view() or {}).get("pid", node) != node, what="another node takes over")
        assert world.put(do).wait(20) == 1
        assert served.log.read_text().count(f"event={Event.SUPERVISION_ERROR}") == 3
