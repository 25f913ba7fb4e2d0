"""The command line: one file per group of commands, light imports, no logic of its own."""
