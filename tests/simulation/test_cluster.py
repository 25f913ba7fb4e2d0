"""The first seeds of the histories of several nodes that `make simulate` runs, and that each is told again exactly."""

from cluster import LEASES, simulate_cluster

from campaign import cluster_histories

SEEDS = 28


# spec: MN-2 MN-5 WK-4 WK-12
def test_the_promises_hold_in_seeded_histories_of_several_nodes() -> None:
    tally, _, broken = cluster_histories(range(SEEDS))
    assert broken is None, broken
    met = ("expired", "new life", "cut off", "failover that forgets", "outcome refused", "turn failed", "worker killed")
    assert all(tally[what] for what in met), f"nothing of it was met: {[what for what in met if not tally[what]]}"


def test_a_history_of_several_nodes_is_told_again_exactly() -> None:
    for seed in range(len(LEASES)):
        assert simulate_cluster(seed).history == simulate_cluster(seed).history
