"""One program for each system, run in an environment of its own. Nothing here may import more than that system."""
