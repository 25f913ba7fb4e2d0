"""Handlers that load numeric libraries and count the threads that these start."""

import os
from typing import Any

from chargehand import Handler, Job


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def field(number: int, body: bytes | int) -> bytes:
    """One field of a protocol buffer: a number, or bytes with their length."""
    if isinstance(body, int):
        return bytes([number << 3, body])
    return bytes([number << 3 | 2, len(body)]) + body


def identity_model() -> bytes:
    """The smallest ONNX model: y = Identity(x), one float each. Written out by hand, to need no other library."""
    shape = field(1, field(1, 1))
    kind = field(1, field(1, 1) + field(2, shape))
    node = field(1, b"x") + field(2, b"y") + field(4, b"Identity")
    x, y = (field(1, name) + field(2, kind) for name in (b"x", b"y"))
    graph = field(1, node) + field(2, b"g") + field(11, x) + field(12, y)
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


class Numeric(Handler[str, Any]):
    """How many threads a library adds, for the library that the payload names."""

    def perform(self, job: Job[str]) -> Any:
        before = threads()
        if job.payload == "numpy":
            import numpy

            result = float((numpy.ones((64, 64)) @ numpy.ones((64, 64)))[0, 0])
        else:
            import numpy
            import onnxruntime

            before = threads()
            self.session = onnxruntime.InferenceSession(identity_model(), providers=["CPUExecutionProvider"])
            outputs: Any = self.session.run(None, {"x": numpy.ones(1, numpy.float32)})
            (result,) = outputs[0].tolist()
        return {"result": result, "added": threads() - before, "own": self.threads}
