"""The command line: one file for each command, or for a group of commands. It parses, calls, and prints."""
