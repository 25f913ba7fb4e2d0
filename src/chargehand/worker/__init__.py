"""The worker process. Every worker loads this package, so it imports nothing heavy."""
