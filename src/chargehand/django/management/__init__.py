"""Holds the command for Django."""
