"""The command line in a process of its own, quickly: forked from one that has imported it already.

Starting an interpreter and importing the command line takes longer than most commands do, and there are hundreds of
them. The forked process has its own environment, folder, standard streams and end, as if it had been started.
"""

import atexit
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import NoReturn

TIMEOUT = 60.0
_SERVER = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import warm; warm.serve(int(sys.argv[1]))"


class Warm:
    """The process that forks. It ends with its parent, whose socket it reads."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._sending = threading.Lock()
        env = {key: value for key, value in os.environ.items() if key != "CHARGEHAND_TEST_RUN"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=env
            )

    def run(self, words: list[str], cwd: str, env: dict[str, str], files: list[int]) -> int:
        """Run one command with these standard streams; its exit status, as `subprocess` has it. Several may at once."""
        request = json.dumps({"words": words, "cwd": cwd, "env": env}).encode()
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, self._sending:
                socket.send_fds(self._socket, [len(request).to_bytes(4)], [*files, theirs.fileno()])
                self._socket.sendall(request)
            ours.settimeout(TIMEOUT)
            answer = ours.recv(4)
        if not answer:
            raise RuntimeError("the process that runs commands has died")
        return int.from_bytes(answer, signed=True)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


_warm: list[Warm] = []


def run(
    words: list[str], cwd: Path | None, env: dict[str, str], stdin: str, stdout: int | None = None
) -> "subprocess.CompletedProcess[str]":
    """`python -m chargehand` with these words, as `subprocess.run` would have it; `stdout` is another descriptor."""
    if not _warm:
        _warm.append(Warm())
        atexit.register(_warm[0].close)
    files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        os.write(files[0], stdin.encode())
        os.lseek(files[0], 0, os.SEEK_SET)
        given = files if stdout is None else [files[0], stdout, files[2]]
        code = _warm[0].run(words, str(cwd or Path.cwd()), env, given)
        out, err = (os.pread(file, os.fstat(file).st_size, 0).decode() for file in files[1:])
    finally:
        for file in files:
            os.close(file)
    return subprocess.CompletedProcess(words, code, out, err)


def _warm_up() -> None:
    """Have everything imported that commands import when they are used."""
    from chargehand.__main__ import main

    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere), suppress(SystemExit):
        sys.argv = ["chargehand", "status", "--store", "/nowhere/at/all", "--json"]
        main()


def serve(descriptor: int) -> None:
    """Fork for every request, until the caller is gone."""
    _warm_up()
    gc.freeze()
    with socket.socket(fileno=descriptor) as caller:
        while True:
            size, files, _, _ = socket.recv_fds(caller, 4, 4)
            if not size:
                return
            request = json.loads(caller.recv(int.from_bytes(size), socket.MSG_WAITALL))
            if not os.fork():
                caller.close()
                attend(request, files[:3], files[3])
            for file in files:
                os.close(file)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    continue  # those whose commands have ended meanwhile


def attend(request: dict[str, object], files: list[int], answer: int) -> NoReturn:
    """In a forked process: have the command run by another, and tell how it ended."""
    pid = os.fork()
    if not pid:
        os.close(answer)
        perform(request, files)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(answer, code.to_bytes(4, signed=True))
    os._exit(0)


def perform(request: dict[str, object], files: list[int]) -> NoReturn:
    """In the forked process: become what was asked for."""
    from chargehand.__main__ import main

    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(request["env"])  # pyright: ignore[reportArgumentType, reportCallIssue]
    path = os.environ.get("PYTHONPATH", "")
    sys.path[:0] = [str(request["cwd"]), *filter(None, path.split(os.pathsep))]
    sys.argv = ["chargehand", *request["words"]]  # pyright: ignore[reportGeneralTypeIssues]
    code: object = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    # What an interpreter does at its end, but for taking itself apart, which takes longer than the command.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)
