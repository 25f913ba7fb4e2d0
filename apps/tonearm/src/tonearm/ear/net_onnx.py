"""The forward pass in onnxruntime: faster than numpy on a CPU, and able to use a GPU."""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tonearm.ear.mel import BANDS, FRAMES
from tonearm.ear.network import Affine, Dense, Floats, Front, Middle, Weights, padding
from tonearm.ear.onnxfile import Graph

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reads it when it is loaded
onnxruntime: Any = import_module("onnxruntime")
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
BATCH = 32
"""Number of patches per call on a GPU. On a CPU one patch at a time is faster and uses less memory."""


def gpu_is_there() -> bool:
    """Returns whether this onnxruntime can use a GPU."""
    return CUDA in onnxruntime.get_available_providers()


class OnnxNet:
    """A network that processes several patches at once."""

    def __init__(self, model: Path | bytes, *, threads: int, gpu: bool = False) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model), options, providers=[CUDA, CPU] if gpu else [CPU]
        )
        # onnxruntime falls back to the CPU automatically, for example if a driver is missing.
        self.on_gpu: bool = CUDA in self.session.get_providers()
        self.batch = BATCH if self.on_gpu else 1

    def __call__(self, patches: Floats) -> tuple[Floats, Floats]:
        scores, embedding = self.session.run(["scores", "embedding"], {"patches": patches})
        return scores, embedding


def model(weights: Weights) -> bytes:
    """Returns the network as an ONNX file."""
    graph = Graph("musicnn")
    x = _affine(graph, weights.entry, graph.input("patches", ["batch", FRAMES, BANDS]))
    x = graph.op("Unsqueeze", [x, _axis(graph, 1)])  # batch × 1 × frames × bands
    layers = [graph.op("Concat", [_front(graph, front, x) for front in weights.front], axis=1)]
    for n, middle in enumerate(weights.middle):
        out = _middle(graph, middle, layers[-1])
        layers.append(graph.op("Add", [out, layers[-1]]) if n else out)
    features = graph.op("Concat", layers, axis=1)  # batch × channels × frames
    pools = [graph.op(pool, [features, _axis(graph, 2)], keepdims=1) for pool in ("ReduceMax", "ReduceMean")]
    # Maximum and mean of a channel are interleaved, because the dense layer was trained that way.
    pooled = graph.op("Flatten", [graph.op("Concat", pools, axis=2)], axis=1)
    dense = graph.op("Relu", [_dense(graph, weights.dense, _affine(graph, weights.pooled, pooled))])
    embedding = _affine(graph, weights.embedding, dense, output="embedding")
    graph.op("Sigmoid", [_dense(graph, weights.words, embedding)], output="scores")
    graph.output("scores", ["batch", len(weights.words.bias)])
    graph.output("embedding", ["batch", len(weights.dense.bias)])
    return graph.model()


def _front(graph: Graph, front: Front, x: str) -> str:
    frames, bands, _ = front.kernel.shape
    before, after = padding(frames)
    kernel = graph.constant(front.kernel.transpose(2, 0, 1)[:, None])
    product = graph.op("Conv", [x, kernel], kernel_shape=[frames, bands], pads=[before, 0, after, 0])
    strongest = graph.op("ReduceMax", [product, _axis(graph, 3)], keepdims=0)  # batch × channels × frames
    signed = graph.op("Mul", [strongest, graph.constant(front.sign[:, None])])
    relu = graph.op("Relu", [graph.op("Add", [signed, graph.constant(front.bias[:, None])])])
    return _affine(graph, front.norm, relu, across=True)


def _middle(graph: Graph, middle: Middle, x: str) -> str:
    frames, _, _ = middle.kernel.shape
    kernel = graph.constant(middle.kernel.transpose(2, 1, 0))
    product = graph.op("Conv", [x, kernel, graph.constant(middle.bias)], kernel_shape=[frames], pads=[*padding(frames)])
    return _affine(graph, middle.norm, graph.op("Relu", [product]), across=True)


def _affine(graph: Graph, affine: Affine, x: str, *, across: bool = False, output: str | None = None) -> str:
    """`across`: the channels are before the frames instead of last."""
    scale, shift = (value[:, None] if across else value for value in (affine.scale, affine.shift))
    return graph.op("Add", [graph.op("Mul", [x, graph.constant(scale)]), graph.constant(shift)], output=output)


def _dense(graph: Graph, dense: Dense, x: str) -> str:
    return graph.op("Gemm", [x, graph.constant(dense.kernel), graph.constant(dense.bias)])


def _axis(graph: Graph, axis: int) -> str:
    return graph.constant(np.array([axis], np.int64))
