"""Chargehand and other systems for background jobs, measured on the same machine, in one run, with the same jobs."""
