"""The SQLite store: one file, one node, any number of processes that enqueue and read."""
