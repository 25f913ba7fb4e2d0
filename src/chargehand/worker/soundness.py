"""Recognises errors after which this process can do no job any more, such as a lost CUDA context.

Errors are recognised by class and text, without importing the library that raised them. Running out of GPU memory is
not among them: the next job may need less. Workers load this module, so it imports nothing heavy.
"""

from chargehand.errors import WorkerBroken
from chargehand.worker.failures import message

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


def culprit(error: BaseException) -> BaseException | None:
    """Returns this exception, or one that it followed, if it leaves the process unable to do any job."""
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
