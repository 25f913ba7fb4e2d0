"""The commands of Adreel: serve, and those that speak to a running server over HTTP."""
