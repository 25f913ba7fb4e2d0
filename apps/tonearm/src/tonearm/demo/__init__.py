"""The demo of `make run`: analyses a dozen generated songs while workers crash."""
