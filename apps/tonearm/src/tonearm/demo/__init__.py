"""The first sixty seconds with Tonearm: a dozen songs made on the spot, and what happens when workers die."""
