"""The worker process. Every worker loads this package: nothing heavy is imported here."""
