"""The supervisor's decisions: events about worker processes in, actions out. Pure."""
