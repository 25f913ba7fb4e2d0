"""Measures flows on SQLite."""

from bench.flowing import FAN_IN, LATENCY, THROUGHPUT, fan_in_rows, flow_rows, follower_rows
from bench.row import measures

measures(*THROUGHPUT)(flow_rows)
measures(*LATENCY)(follower_rows)
measures(*FAN_IN)(fan_in_rows)
