"""Computes CRC-32C (Castagnoli), the checksum of TensorFlow's checkpoints, fast enough for megabytes with numpy.

The register is a linear function of the input. Several lanes of the data are therefore computed in parallel, and
combined by shifting the register of each lane over the number of zero bytes that follow it.
"""

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78
LANES = 1024
SHORT = 16 * LANES
"""Up to this number of bytes, plain Python is faster than lanes."""

Words = NDArray[np.uint32]


def crc32c(data: bytes) -> int:
    """Returns the checksum of `data`."""
    if len(data) < SHORT:
        register = 0xFFFFFFFF
        for byte in data:
            register = _PLAIN[(register ^ byte) & 0xFF] ^ (register >> 8)
        return register ^ 0xFFFFFFFF
    width = -(-len(data) // LANES)
    fed = np.zeros(LANES * width, np.uint8)  # leading zeros leave a register of zero unchanged
    own = fed[-len(data) :]
    own[:] = np.frombuffer(data, np.uint8)
    own[:4] ^= 0xFF  # the initial register, all ones, treated as data
    register = np.zeros(LANES, np.uint32)
    for column in np.ascontiguousarray(fed.reshape(LANES, width).T):
        register = _TABLE[(register ^ column) & 0xFF] ^ (register >> np.uint32(8))
    return int(_together(register, width)) ^ 0xFFFFFFFF


def unmasked(stored: int) -> int:
    """Removes the mask that the format applies to stored checksums."""
    turned = (stored - 0xA282EAD8) & 0xFFFFFFFF
    return ((turned >> 17) | (turned << 15)) & 0xFFFFFFFF


def _table() -> Words:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ np.where(table & 1, np.uint32(POLYNOMIAL), np.uint32(0))
    return table


_TABLE = _table()
_PLAIN: list[int] = _TABLE.tolist()


def _together(register: Words, width: int) -> np.uint32:
    """Combines the registers of lanes of `width` bytes, halving their number in every step."""
    over = _over_zeros(width)
    while len(register) > 1:
        register = _moved(over, register[0::2]) ^ register[1::2]
        over = _moved(over, over)
    return register[0]


def _over_zeros(count: int) -> Words:
    """Returns the effect of `count` zero bytes on each single bit of a register."""
    bits = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32))
    step = _TABLE[bits & 0xFF] ^ (bits >> np.uint32(8))
    while count:
        if count & 1:
            bits = _moved(step, bits)
        step = _moved(step, step)
        count >>= 1
    return bits


def _moved(over: Words, register: Words) -> Words:
    """Applies a linear map, given by its effect on single bits, to each register."""
    out = np.zeros_like(register)
    for bit in range(32):
        out ^= np.where((register >> np.uint32(bit)) & 1, over[bit], np.uint32(0))
    return out
