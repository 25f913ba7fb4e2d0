"""Reads QR codes in key frames."""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

LONGEST = 2000
"""Characters of a code's content that are kept."""


def read_codes(picture: NDArray[np.uint8]) -> list[str]:
    """Returns the contents of the QR codes in a picture, without repetitions."""
    # It finds small, tilted and noisy codes that QRCodeDetector does not, and is faster.
    detector: Any = cv2.QRCodeDetectorAruco()
    grey: Any = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
    try:
        found, contents, _, _ = detector.detectAndDecodeMulti(grey)
    except (cv2.error, UnicodeDecodeError):  # OpenCV fails on some patterns that only look like codes, and on bytes
        return []
    return list(dict.fromkeys(each[:LONGEST] for each in contents if each)) if found else []
