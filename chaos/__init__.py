"""The chaos test: kills and stops real processes at random, and accounts for every job."""
