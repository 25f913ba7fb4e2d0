"""Selects the library that runs the networks, and loads them."""

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
"""Increased when the generated ONNX files change."""


def choose(provider: Provider) -> Chosen:
    """Returns the provider: a GPU if available, otherwise onnxruntime if installed, otherwise numpy."""
    if provider == "numpy":
        return "numpy"
    if importlib.util.find_spec("onnxruntime") is None:
        if provider == "auto":
            return "numpy"
        raise TonearmError(f"{provider!r} requires onnxruntime: install tonearm[onnx], or choose 'numpy'")
    from tonearm.ear import net_onnx  # imported here: onnxruntime is optional

    gpu = net_onnx.gpu_is_there()
    if provider == "gpu" and not gpu:
        raise TonearmError("'gpu' requires onnxruntime with CUDA: install onnxruntime-gpu, or choose 'cpu'")
    return "gpu" if gpu and provider != "cpu" else "cpu"


def load_all(wheel: Path, provider: Provider, threads: int) -> tuple[Chosen, dict[str, network.Net]]:
    """Returns all loaded models and the provider.

    `threads` applies to onnxruntime; those of numpy are set in the environment before it is imported.
    """
    chosen = choose(provider)
    if chosen == "numpy":
        return "numpy", {model: NumpyNet(network.load(wheel, model)) for model in MODELS}
    from tonearm.ear.net_onnx import OnnxNet

    files = {model: onnx_file(wheel, model) for model in MODELS}
    nets = {model: OnnxNet(file, threads=threads, gpu=chosen == "gpu") for model, file in files.items()}
    on_gpu = all(net.on_gpu for net in nets.values())
    if provider == "gpu" and not on_gpu:
        raise TonearmError("onnxruntime could not use the GPU: see its output above, or choose 'cpu'")
    return "gpu" if on_gpu else "cpu", dict[str, network.Net](nets)


def onnx_file(wheel: Path, model: str) -> Path | bytes:
    """Returns the ONNX file next to the weights, generated if necessary; its bytes if it cannot be stored."""
    from tonearm.ear import net_onnx

    file = wheel.with_name(f"{LISTENER}-{model}-{GRAPH}.onnx")
    if file.is_file():
        return file
    content = net_onnx.model(network.load(wheel, model))
    try:
        _place(content, file)
    except OSError:  # a read-only or full cache only makes every start slower
        return content
    return file


def _place(content: bytes, file: Path) -> None:
    """Writes a file atomically. Several workers may do so at once: all write the same content."""
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
