"""The node's decisions and the data they work on: pure functions and values, without I/O, clock, threads or logging."""
