"""What Chargehand needs of the operating system: Linux, private files, and forks that leave it usable."""
