"""Starts, signals, inspects and records processes of the operating system. Imports nothing heavy."""
