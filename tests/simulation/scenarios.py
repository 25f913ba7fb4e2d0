"""Small histories that are told on purpose: the examples of the specification, and what once went wrong."""

from scenarios_cluster import CLUSTER
from scenarios_hands import HANDS
from scenarios_work import FOUND_AND_CANCELLED
from scenarios_workers import WORKERS

SCENARIOS = {**WORKERS, **FOUND_AND_CANCELLED, **HANDS, **CLUSTER}
