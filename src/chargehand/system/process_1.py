"""What process 1 of a container owes to it: the kernel gives it every process whose parent has ended, to be reaped."""

import os
import signal
import sys
from contextlib import suppress

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def divide() -> None:
    """Returns at once unless this is process 1; otherwise returns in a child process, which does the work.

    Process 1 stays behind: it forwards signals, reaps every process that has ended, and exits with the child's status.
    """
    if os.getpid() != 1:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # none may arrive before it can be forwarded
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # Ctrl+C reaches process 1 alone, which forwards it once
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        return

    def forward(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in FORWARDED:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
