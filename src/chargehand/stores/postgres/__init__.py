"""The store in PostgreSQL: one database, any number of nodes and of processes that enqueue and read."""
