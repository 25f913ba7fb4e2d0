"""The frames on the sockets between host, node and worker. Workers load it: nothing heavy is imported here."""
