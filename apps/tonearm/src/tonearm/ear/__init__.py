"""Analysis of audio: decoding, spectrograms, networks. Heavy; imported by the workers only."""
