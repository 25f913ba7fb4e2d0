"""Which library computes the networks, and how they are loaded."""

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Literal

from tonearm.ear import network
from tonearm.ear.net_numpy import NumpyNet
from tonearm.errors import TonearmError
from tonearm.heard import LISTENER, MODELS

Provider = Literal["auto", "numpy", "cpu", "gpu"]
Chosen = Literal["numpy", "cpu", "gpu"]

GRAPH = 1
"""Counted up when the way in which ONNX files are built changes."""


def choose(provider: Provider) -> Chosen:
    """What computes: a GPU if there is one, else onnxruntime if it is installed, else numpy."""
    if provider == "numpy":
        return "numpy"
    if importlib.util.find_spec("onnxruntime") is None:
        if provider == "auto":
            return "numpy"
        raise TonearmError(f"{provider!r} needs onnxruntime: install tonearm[onnx], or choose 'numpy'")
    from tonearm.ear import net_onnx  # here: onnxruntime need not be installed

    gpu = net_onnx.gpu_is_there()
    if provider == "gpu" and not gpu:
        raise TonearmError("'gpu' needs an onnxruntime with CUDA: install onnxruntime-gpu, or choose 'cpu'")
    return "gpu" if gpu and provider != "cpu" else "cpu"


def load_all(wheel: Path, provider: Provider, threads: int) -> tuple[Chosen, dict[str, network.Net]]:
    """Every model, ready to listen, and what computes it.

    `threads` are onnxruntime's; numpy's are set in the environment, before it is imported.
    """
    chosen = choose(provider)
    if chosen == "numpy":
        return "numpy", {model: NumpyNet(network.load(wheel, model)) for model in MODELS}
    from tonearm.ear.net_onnx import OnnxNet

    files = {model: onnx_file(wheel, model) for model in MODELS}
    nets = {model: OnnxNet(file, threads=threads, gpu=chosen == "gpu") for model, file in files.items()}
    on_gpu = all(net.on_gpu for net in nets.values())
    if provider == "gpu" and not on_gpu:
        raise TonearmError("onnxruntime could not use the GPU: see what it said above, or choose 'cpu'")
    return "gpu" if on_gpu else "cpu", dict[str, network.Net](nets)


def onnx_file(wheel: Path, model: str) -> Path | bytes:
    """The model as an ONNX file beside the weights, built if it is not there yet; where none can be kept, its bytes."""
    from tonearm.ear import net_onnx

    file = wheel.with_name(f"{LISTENER}-{model}-{GRAPH}.onnx")
    if file.is_file():
        return file
    content = net_onnx.model(network.load(wheel, model))
    try:
        _place(content, file)
    except OSError:  # a cache that is read-only or full costs a moment at every start, no more
        return content
    return file


def _place(content: bytes, file: Path) -> None:
    """Whole or not at all; several workers may do that at once: all of them place the same."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix="building-")
    try:
        with os.fdopen(handle, "wb") as built:
            built.write(content)
            built.flush()
            os.fchmod(built.fileno(), 0o644)
            os.fsync(built.fileno())
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise
