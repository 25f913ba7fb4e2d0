"""The frames on the sockets between host, node and worker. Workers load this package, so it imports nothing heavy."""
