"""The forward pass in numpy, for machines without onnxruntime, and as the reference for net_onnx."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tonearm.ear.network import Affine, Dense, Floats, Front, Middle, Weights, padding


class NumpyNet:
    """A network that processes one patch at a time in float32."""

    batch = 1

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def __call__(self, patches: Floats) -> tuple[Floats, Floats]:
        """Returns the scores of all words and the embedding for each patch."""
        heard = [_listen(self.weights, patch) for patch in patches]
        return np.stack([scores for scores, _ in heard]), np.stack([embedding for _, embedding in heard])


def _listen(weights: Weights, patch: Floats) -> tuple[Floats, Floats]:
    x = _affine(weights.entry, patch)
    seen = np.concatenate([_front(front, x) for front in weights.front], axis=1)
    layers = [seen]
    for n, middle in enumerate(weights.middle):
        out = _middle(middle, layers[-1])
        layers.append(out + layers[-1] if n else out)
    features = np.concatenate(layers, axis=1)
    # Maximum and mean of a channel are interleaved, because the dense layer was trained that way.
    pooled = np.stack([features.max(axis=0), features.mean(axis=0)], axis=1).ravel()
    dense = np.maximum(_dense(weights.dense, _affine(weights.pooled, pooled)), 0)
    embedding = _affine(weights.embedding, dense)
    scores = 1 / (1 + np.exp(-_dense(weights.words, embedding)))
    return scores.astype(np.float32), embedding


def _front(front: Front, x: Floats) -> Floats:
    frames, bands, channels = front.kernel.shape
    windows = sliding_window_view(np.pad(x, (padding(frames), (0, 0))), (frames, bands))
    times, heights = windows.shape[:2]
    kernel = front.kernel.reshape(frames * bands, channels)
    products = windows.reshape(times * heights, frames * bands) @ kernel
    strongest = products.reshape(times, heights, channels).max(axis=1)
    return _affine(front.norm, np.maximum(strongest * front.sign + front.bias, 0))


def _middle(middle: Middle, x: Floats) -> Floats:
    frames, channels, _ = middle.kernel.shape
    windows = sliding_window_view(np.pad(x, (padding(frames), (0, 0))), frames, axis=0)  # times × channels × frames
    kernel = middle.kernel.reshape(frames * channels, -1)
    products = windows.transpose(0, 2, 1).reshape(len(x), frames * channels) @ kernel
    return _affine(middle.norm, np.maximum(products + middle.bias, 0))


def _affine(affine: Affine, x: Floats) -> Floats:
    return x * affine.scale + affine.shift


def _dense(dense: Dense, x: Floats) -> Floats:
    return x @ dense.kernel + dense.bias
