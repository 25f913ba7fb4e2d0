"""Mutants of the shipped source: each breaks one promise in a way that a tired author might. The simulator must see it.

Every one is a patch: the old text must stand in the shipped file exactly once, or the mutant is out of date.
"""

from mutants_batches import BATCHES
from mutants_cancel import CANCEL
from mutants_cluster import CLUSTER_MUTANTS
from mutants_concurrency import CONCURRENCY
from mutants_discovery import DISCOVERY
from mutants_flows import FLOWS
from mutants_hands import HANDS
from mutants_liveness import LIVENESS
from mutants_restarts import RESTARTS
from mutants_trust import TRUST
from mutants_work import WORK

MUTANTS = (
    *WORK, *RESTARTS, *LIVENESS, *DISCOVERY, *CANCEL, *BATCHES, *HANDS, *CONCURRENCY, *TRUST, *FLOWS, *CLUSTER_MUTANTS
)  # fmt: skip
