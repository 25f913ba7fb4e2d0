"""Processes of the operating system: start, signal, look at and record them. Nothing heavy is imported here."""
