"""The diagnosis behind `chargehand doctor`: facts in, causes and remedies out. Pure."""
