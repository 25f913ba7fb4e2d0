"""A module whose import fails in the way that the environment variable HOW names."""

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
        from runnable_app import hand

        hand.host()
