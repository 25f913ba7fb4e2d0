"""The API process: it starts and watches the node, calls it, and reads the store."""
