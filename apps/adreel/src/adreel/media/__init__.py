"""Everything that touches film. Only workers import this package."""
