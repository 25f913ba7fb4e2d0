"""Adreel analyses films: scenes, text on screen, QR codes and a category."""

__version__ = "0.1.0"
