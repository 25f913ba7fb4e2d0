"""Errors after which a process can do no job any more, by class and text of the libraries that raise them."""

import pytest

from chargehand import WorkerBroken
from chargehand.worker.failures import culprit


def error_of(module: str, name: str, text: str, base: type[Exception] = RuntimeError) -> Exception:
    """An exception of a class with this name, of a library that is not installed here."""
    kind = type(name, (base,), {"__module__": module})
    return kind(text)


TORCH = "CUDA error: {}\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace"
STICKY = {
    "torch 2.11": error_of("torch", "AcceleratorError", TORCH.format("device-side assert triggered")),
    "torch 2.4": RuntimeError(TORCH.format("an illegal memory access was encountered")),
    "torch, launch failure": RuntimeError(TORCH.format("unspecified launch failure")),
    "torch, ROCm": RuntimeError("HIP error: an illegal memory access was encountered"),
    "cupy runtime": error_of(
        "cupy_backends.cuda.api.runtime", "CUDARuntimeError",
        "cudaErrorIllegalAddress: an illegal memory access was encountered",
    ),
    "cupy driver": error_of(
        "cupy_backends.cuda.api.driver", "CUDADriverError", "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"
    ),
    "onnxruntime": error_of(
        "onnxruntime.capi.onnxruntime_pybind11_state", "Fail",
        "[ONNXRuntimeError] : 1 : FAIL : CUDA failure 700: an illegal memory access was encountered ; GPU=0", Exception,
    ),
    "onnxruntime, number alone": error_of(
        "onnxruntime.capi.onnxruntime_pybind11_state", "Fail", "FAIL : CUDA failure 719: ; GPU=0", Exception
    ),
    "jax": error_of(
        "jaxlib.xla_extension", "XlaRuntimeError",
        "INTERNAL: Failed to execute XLA Runtime executable: CUDA_ERROR_ILLEGAL_ADDRESS",
    ),
    "jax, ECC": error_of("jaxlib._jax", "JaxRuntimeError", "INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE"),
    "the handler's word": WorkerBroken("the driver is gone"),
}  # fmt: skip
HARMLESS = {
    "out of memory": error_of("torch", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB"),
    "out of memory, by name": RuntimeError("CUDA error: out of memory"),
    "cupy out of memory": error_of("cupy.cuda.memory", "OutOfMemoryError", "Out of memory allocating 8 bytes"),
    "jax out of memory": error_of("jaxlib.xla_extension", "XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory"),
    "a wrong argument": RuntimeError("CUDA error: invalid argument"),
    "no kernel": RuntimeError("CUDA error: no kernel image is available for execution on the device"),
    "an answer of another machine": RuntimeError("the server said: CUDA error: device-side assert triggered"),
    "another exception that quotes one": ValueError("CUDA error: device-side assert triggered"),
    "a number within a number": error_of("onnxruntime.capi", "Fail", "CUDA failure 7001: no such thing", Exception),
}


@pytest.mark.parametrize("name", STICKY)
def test_the_process_is_broken(name: str) -> None:  # spec: WP-12
    assert culprit(STICKY[name])


@pytest.mark.parametrize("name", HARMLESS)
def test_the_process_is_not_broken(name: str) -> None:  # spec: WP-12
    assert not culprit(HARMLESS[name])


def test_the_cause_is_recognised_behind_another_exception() -> None:  # spec: WP-12
    wrapped = ValueError("tagging failed")
    wrapped.__cause__ = STICKY["torch 2.11"]
    assert culprit(wrapped) is STICKY["torch 2.11"]


def test_exceptions_that_cause_each_other_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not culprit(first)


class Unspeakable(RuntimeError):
    def __str__(self) -> str:
        raise TypeError("no text")


def test_an_exception_without_a_text() -> None:
    assert not culprit(Unspeakable())
