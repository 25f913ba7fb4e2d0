"""How fast Chargehand is here, beside what this machine allows: `python -m bench`, or `make bench`."""
