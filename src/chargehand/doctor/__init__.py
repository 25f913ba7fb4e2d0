"""Collects the facts for `chargehand doctor` in a separate process, which is killed if it hangs."""
