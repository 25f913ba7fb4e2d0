"""The chaos campaign: real processes, killed and stopped at random, and a count of what became of every job."""
