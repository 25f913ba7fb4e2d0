"""Describes exceptions, and recognises those after which this process can do no job any more, such as a lost CUDA
context.

The process may have no free file descriptor and no memory left. Errors are recognised by class and text, without
importing the library that raised them. Every worker loads this module: it imports nothing heavy, and it does not know
jobs.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

from chargehand.errors import WorkerBroken

_reserve = -1
"""A descriptor that is open only to be closed when one is needed; -1: none."""
_LIBRARIES = frozenset(
    {"torch", "cupy", "cupy_backends", "onnxruntime", "jax", "jaxlib", "tensorflow", "numba", "pycuda", "cuda", "warp"}
)
"""The packages whose exceptions are searched for the texts below."""
_NAMES = (
    "Assert", "IllegalAddress", "IllegalInstruction", "LaunchFailure", "LaunchFailed", "LaunchTimeout",
    "MisalignedAddress", "HardwareStackError", "InvalidPc", "InvalidAddressSpace", "ECCUncorrectable",
    "EccUncorrectable", "NvlinkUncorrectable", "ContextIsDestroyed",
)  # fmt: skip
"""The CUDA errors that destroy the context, as they are named after `cudaError` and, in capitals, `CUDA_ERROR_`."""
_NUMBERS = (214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719)
"""Numbers of the CUDA errors that destroy the context, as onnxruntime reports them."""
_TEXTS = (
    "device-side assert triggered",
    "illegal memory access was encountered",
    "illegal instruction was encountered",
    "unspecified launch failure",
    "misaligned address",
    "hardware stack error",
    "invalid program counter",
    "operation not supported on global/shared address space",
    "launch timed out and was terminated",
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "context is destroyed",
)
"""Descriptions of the CUDA errors that destroy the context."""


def reserve_descriptor() -> None:
    """Keeps one file descriptor in reserve, for the imports and the source files of an error's description."""
    global _reserve
    if _reserve < 0:
        try:
            _reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # the handler has used up all descriptors; `describe` does without


@contextmanager
def spare_descriptor() -> Generator[None]:
    """Frees the reserved descriptor for the block, and takes it back afterwards."""
    global _reserve
    if _reserve >= 0:
        os.close(_reserve)
        _reserve = -1
    try:
        yield
    finally:
        reserve_descriptor()


def describe(error: BaseException) -> str:
    """Returns the traceback of an exception as text; without source lines if there is no memory or no descriptor."""
    with spare_descriptor():
        try:
            import traceback

            return "".join(traceback.format_exception(error))
        except Exception:
            return _plain(error)


def message(error: object) -> str:
    """Returns the text of an exception, or of its reason, even if its `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def _plain(error: BaseException) -> str:
    """Returns a traceback made without imports. Frees the memory and the files that the frames' variables hold."""
    lines = ["Traceback (most recent call last):\n"]
    step = error.__traceback__
    while step is not None:
        frame, code = step.tb_frame, step.tb_frame.f_code
        with suppress(RuntimeError):  # frames of the worker itself are running
            frame.clear()
        lines.append(f'  File "{code.co_filename}", line {step.tb_lineno}, in {code.co_name}\n')
        step = step.tb_next
    text = message(error)
    return "".join([*lines, f"{type(error).__qualname__}: {text}\n" if text else f"{type(error).__qualname__}\n"])


def culprit(error: BaseException) -> BaseException | None:
    """Returns this exception, or one that it followed, if it leaves the process unable to do any job.

    Running out of GPU memory does not: the next job may need less.
    """
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        if isinstance(following, WorkerBroken) or _lost_device(following):
            return following
        seen.add(id(following))
        following = following.__cause__ or following.__context__
    return None


def _lost_device(error: BaseException) -> bool:
    """Whether a library reports a CUDA error that destroys the context."""
    text = message(error)
    # Extension modules without an exception class of their own raise RuntimeError; others may quote such a text.
    plain = isinstance(error, RuntimeError) and text.startswith(("CUDA error", "CUDA failure", "HIP error"))
    if not plain and not any(base.__module__.partition(".")[0] in _LIBRARIES for base in type(error).__mro__):
        return False
    return any(sign in text for sign in _TEXTS) or any(sign in text for sign in _signs())


def _signs() -> list[str]:
    """Returns the names and numbers of the errors as they appear in messages."""
    names = [f"cudaError{name}" for name in _NAMES]
    names += ["CUDA_ERROR_" + "".join(f"_{c}" if c.isupper() else c for c in name)[1:].upper() for name in _NAMES]
    return names + [f"CUDA {word} {number}:" for word in ("failure", "error") for number in _NUMBERS]
