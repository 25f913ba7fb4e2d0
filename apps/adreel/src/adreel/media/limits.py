"""Limits of a film and of the worker that decodes it, and the caps of native thread pools."""

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass

from adreel.records import Code, Refusal

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
"""The variables that BLAS libraries, OpenMP and the tokenizer read when they are loaded, or start."""


class Refused(Exception):
    """The film cannot be analysed, and another attempt cannot help."""

    def __init__(self, code: Code, text: str) -> None:
        self.refusal = Refusal(code, text)
        super().__init__(str(self.refusal))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a film may need. Every value has an environment variable, `ADREEL_MAX_…`."""

    seconds: float = 4 * 3600
    pixels: int = 36_000_000
    """Pixels of a frame; 8K has 35.4 million."""
    streams: int = 32
    memory: int = 2 << 30
    """Bytes of memory that a worker may allocate while it decodes."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Limits":
        """Returns the limits that the environment sets. Raises ValueError for a value that is no positive number."""
        given = {
            "seconds": _number(environment, "ADREEL_MAX_SECONDS", cls().seconds),
            "pixels": int(_number(environment, "ADREEL_MAX_PIXELS", cls().pixels)),
            "streams": int(_number(environment, "ADREEL_MAX_STREAMS", cls().streams)),
            "memory": int(_number(environment, "ADREEL_MAX_MEMORY", cls().memory)),
        }
        return cls(**given)  # pyright: ignore[reportArgumentType]

    def check_seconds(self, seconds: float) -> None:
        """Raises Refused if a film of this length is too long."""
        if seconds > self.seconds:
            raise Refused(Code.TOO_LONG, f"the film is {seconds:.0f} s long; the limit is {self.seconds:.0f} s")

    def check_pixels(self, width: int, height: int) -> None:
        """Raises Refused if a frame of this size has too many pixels."""
        if width * height > self.pixels:
            size, most = width * height / 1e6, self.pixels / 1e6
            text = f"a frame has {width} × {height} pixels ({size:.1f} million); the limit is {most:g} million"
            raise Refused(Code.TOO_MANY_PIXELS, text)


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive number, not {text!r}")
    return value


def limit_memory(most: int) -> None:
    """Limits the memory that this process can allocate: an allocation beyond it fails instead of filling the machine.

    RLIMIT_DATA is used because RLIMIT_AS also counts address space that is reserved but never used.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def cap_threads(threads: int) -> None:
    """Caps the thread pools of OpenCV, OpenMP, BLAS and the tokenizer; call it before numpy is imported."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    import cv2

    cv2.setNumThreads(threads)
