"""A module whose import goes wrong, in the way that HOW says."""

import os
import signal
import subprocess
import sys

from chargehand import clock

match os.environ["HOW"]:
    case "raise":
        raise RuntimeError("no licence found")
    case "die":
        sys.stderr.write("libmodel: illegal something\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGABRT)
    case "hang":
        subprocess.Popen(["sleep", "300"])
        clock.sleep(300)
    case _:
        from tryjobs import hand

        hand.host()
