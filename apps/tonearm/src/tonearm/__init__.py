"""Tonearm analyses a music library and tags it."""

__version__ = "0.1.0"
