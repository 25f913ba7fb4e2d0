"""The command line: one file a group of commands, light imports, no logic of its own."""
