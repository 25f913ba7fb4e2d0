"""What listens: decoding, spectrograms, networks. Heavy; imported in the workers only."""
