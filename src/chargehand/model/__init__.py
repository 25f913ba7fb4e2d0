"""The mind: decisions as pure functions and values. No input or output, no clock, no thread, no log."""
