"""Collects the facts for `chargehand doctor` from a process of its own, which may be killed if it hangs."""
