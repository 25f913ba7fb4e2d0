"""An application for `chargehand work`: its configuration is in the environment."""

import os

import msgspec

from bench.hosting import SPEC, Spec, hand_of

hand = hand_of(msgspec.json.decode(os.environ[SPEC], type=Spec))
