"""Reads text in key frames with the networks of PP-OCR (package rapidocr). Never uses the network."""

import logging
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adreel.records import Line

LEAST_SCORES = ((2, 0.97), (4, 0.8))
"""The least score of a line with up to so many letters and digits: the network sees short words in grass and clouds."""
LEAST_SCORE = 0.6
"""The least score of a longer line."""
AT_A_TIME = 6
"""Lines that are recognised between two calls of `tell`."""
LONGEST_SIDE = 960
"""Pixels of the longer side of the picture in which lines are searched."""


class Reader:
    """The two networks: one finds lines of text, the other one reads a line."""

    def __init__(self, threads: int = 1) -> None:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reads it when it is loaded
        from rapidocr import RapidOCR
        from rapidocr.ch_ppocr_det import TextDetector
        from rapidocr.ch_ppocr_rec import TextRecInput, TextRecognizer

        logging.getLogger("RapidOCR").setLevel(logging.ERROR)
        quiet = {"Global.log_level": "error", "Det.limit_type": "max", "Det.limit_side_len": LONGEST_SIDE}
        base: Any = RapidOCR(params=quiet)
        self._crop: Any = base.crop_text_regions
        self._detect: Any = TextDetector(_with_session(base.cfg, "Det", "PP-OCRv6_det_small.onnx", threads))
        self._recognise: Any = TextRecognizer(_with_session(base.cfg, "Rec", "PP-OCRv6_rec_small.onnx", threads))
        self._input: Any = TextRecInput

    def read(self, picture: NDArray[np.uint8], tell: Callable[[], None]) -> list[Line]:
        """Returns the lines of text, from top to bottom. Calls `tell` every few lines."""
        found = self._detect(picture)
        tell()
        if found.boxes is None or not len(found.boxes):
            return []
        crops = self._crop(picture, found.boxes)
        lines: list[Line] = []
        for start in range(0, len(crops), AT_A_TIME):
            part = slice(start, start + AT_A_TIME)
            read = self._recognise(self._input(img=crops[part], return_word_box=False))
            tell()
            pairs = zip(read.txts or (), read.scores or (), found.boxes[part], strict=False)
            lines += [_line(text, score, box, picture) for text, score, box in pairs if _is_text(text, score)]
        return lines


def _with_session(whole: Any, section: str, model: str, threads: int) -> Any:
    """Returns the configuration of a network with a session whose threads are limited and never spin."""
    from omegaconf import OmegaConf

    onnxruntime: Any = import_module("onnxruntime")  # it has no types
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False  # the arena keeps the memory of the largest picture for ever
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    path = whole.Global.model_root_dir / model
    config: Any = OmegaConf.create(dict(whole[section]), flags={"allow_objects": True})
    config.engine_cfg = whole.EngineConfig.onnxruntime
    config.model_root_dir, config.font_path = whole.Global.model_root_dir, None
    config.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return config


def _is_text(text: str, score: float) -> bool:
    length = sum(sign.isalnum() for sign in text)
    least = next((least for most, least in LEAST_SCORES if length <= most), LEAST_SCORE)
    return length > 0 and score >= least


def _line(text: str, score: float, box: Any, picture: NDArray[np.uint8]) -> Line:
    height, width = picture.shape[:2]
    tall = (np.linalg.norm(box[3] - box[0]) + np.linalg.norm(box[2] - box[1])) / 2
    x, y = box.mean(axis=0)
    return Line(
        text=" ".join(text.split()), score=round(float(score), 3), height=round(float(tall) / height, 4),
        x=round(float(x) / width, 4), y=round(float(y) / height, 4),
    )  # fmt: skip
