"""Measures the performance of Chargehand next to the limits of the machine: `python -m bench`, or `make bench`."""
