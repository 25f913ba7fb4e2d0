"""Prepares the weights of a network for the forward pass in net_numpy.py and net_onnx.py.

The network takes a spectrogram patch. Five parallel convolutions (timbre: 7 frames wide and 38 or 67 bands high;
rhythm: 128, 64 and 32 frames long) are each reduced to their maximum over bands. Three convolutions of 7 frames follow,
the second and third with residual connections; then maximum and mean over time; a dense layer, which is the embedding;
and a score for each word.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tonearm.ear import bundle

Floats = NDArray[np.float32]

FRONT = (7, 7, 128, 64, 32)
"""Width in frames of each of the five first convolutions."""
EPSILON = 1e-3


class Net(Protocol):
    """A network that is ready to run."""

    batch: int
    """Preferred number of patches per call."""

    def __call__(self, patches: Floats) -> tuple[Floats, Floats]:
        """Returns the scores of all words and the embedding for each patch."""
        ...


@dataclass(frozen=True, slots=True)
class Affine:
    """x · scale + shift: a trained batch normalisation."""

    scale: Floats
    shift: Floats


@dataclass(frozen=True, slots=True)
class Front:
    """A first convolution, reduced to its maximum: relu(sign · max over bands of (kernel * x) + bias), then `norm`.

    Where the scale of the normalisation is negative, the maximum becomes a minimum. The kernel is negated there, so
    that both implementations compute a maximum everywhere before bias and relu, for one band instead of all.
    """

    kernel: Floats
    """frames × bands × channels"""
    sign: Floats
    bias: Floats
    norm: Affine


@dataclass(frozen=True, slots=True)
class Middle:
    """A later convolution: relu(kernel * x + bias), then `norm`."""

    kernel: Floats
    """7 × channels in × channels out"""
    bias: Floats
    norm: Affine


@dataclass(frozen=True, slots=True)
class Dense:
    """x @ kernel + bias."""

    kernel: Floats
    bias: Floats


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a network."""

    entry: Affine
    front: tuple[Front, ...]
    middle: tuple[Middle, ...]
    pooled: Affine
    dense: Dense
    embedding: Affine
    words: Dense


def load(wheel: Path, model: str) -> Weights:
    """Reads the weights of a model from musicnn's wheel."""
    return weights(bundle.read(wheel, model, lambda name: "Adam" not in name and "_power" not in name))


def weights(tensors: bundle.Tensors) -> Weights:
    """Returns the weights of a network from the tensors of its checkpoint."""
    norms = [_norm(tensors, _name("batch_normalization", n)) for n in range(11)]

    def pair(kind: str, n: int) -> tuple[Floats, Floats]:
        return tensors[f"{_name(kind, n)}/kernel"], tensors[f"{_name(kind, n)}/bias"]

    return Weights(
        entry=norms[0],
        front=tuple(_front(*pair("conv2d", n), norms[1 + n]) for n in range(5)),
        middle=tuple(_middle(*pair("conv2d", 5 + n), norms[6 + n]) for n in range(3)),
        pooled=norms[9],
        dense=Dense(*pair("dense", 0)),
        embedding=norms[10],
        words=Dense(*pair("dense", 1)),
    )


def padding(frames: int) -> tuple[int, int]:
    """Returns the zero frames before and after a patch that give one result per frame for this window width."""
    return (frames - 1) // 2, frames // 2


def _name(kind: str, n: int) -> str:
    return f"{kind}_{n}" if n else kind


def _norm(tensors: bundle.Tensors, name: str) -> Affine:
    gamma, beta, mean, variance = (
        tensors[f"{name}/{part}"] for part in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    scale = (gamma / np.sqrt(variance + EPSILON)).astype(np.float32)
    return Affine(scale, (beta - mean * scale).astype(np.float32))


def _front(kernel: Floats, bias: Floats, norm: Affine) -> Front:
    sign = np.where(norm.scale < 0, np.float32(-1), np.float32(1))
    return Front(kernel[:, :, 0, :] * sign, sign, bias, norm)


def _middle(kernel: Floats, bias: Floats, norm: Affine) -> Middle:
    return Middle(kernel[:, :, 0, :], bias, norm)
