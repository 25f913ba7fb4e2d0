"""The settings of an application: read from code, files and the environment, and checked once."""
