"""The application of the tests with several nodes; how many workers each crew has is a setting of each node."""

import os

from scripted_app import chargehand

from chargehand import DiscoveryPolicy, LivenessPolicy

QUICK = LivenessPolicy(
    beat=0.2, silent=10.0, grace=1.0, terminate=0.2, cancel=0.2, stacks=0.1, lease=float(os.environ["TEST_LEASE"])
)

hand = chargehand("unused", liveness=QUICK, discovery=DiscoveryPolicy(interval=60.0))
do = hand.crew("do", "scripted_handlers:Doer", takes=dict, limit=3)
gpu = hand.crew("gpu", "scripted_handlers:Doer", takes=dict, gpus=int(os.environ.get("TEST_GPUS", "0")))
alone = hand.crew("alone", "scripted_handlers:Doer", takes=dict, when_cut_off="stop")
if "TEST_LEDGER" in os.environ:
    hand.recurring("tick", gpu, {"ledger": os.environ["TEST_LEDGER"]}, every=1)
if "TEST_FOUND" in os.environ:
    find = hand.crew("find", "several_handlers:Finder", discovers=True)
