"""The command for Django."""
