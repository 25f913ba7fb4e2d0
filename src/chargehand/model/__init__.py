"""The decisions of the node and the data they work on: pure functions and values, without I/O, clock, threads or
logging."""
