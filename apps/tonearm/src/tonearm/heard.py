"""The result of analysing a track, as plain numbers that pass from worker to API as JSON. Must not import numpy."""

import msgspec

LISTENER = "musicnn-0.1.0"
"""Identifies networks and method. Results with different values are not comparable."""

MTT_WORDS = (
    "guitar", "classical", "slow", "techno", "strings", "drums", "electronic", "rock", "fast", "piano",
    "ambient", "beat", "violin", "vocal", "synth", "female", "indian", "opera", "male", "singing",
    "vocals", "no vocals", "harpsichord", "loud", "quiet", "flute", "woman", "male vocal", "no vocal", "pop",
    "soft", "sitar", "solo", "man", "classic", "choir", "voice", "new age", "dance", "male voice",
    "female vocal", "beats", "harp", "cello", "no voice", "weird", "country", "metal", "female voice", "choral",
)  # fmt: skip

MSD_WORDS = (
    "rock", "pop", "alternative", "indie", "electronic", "female vocalists", "dance", "00s", "alternative rock", "jazz",
    "beautiful", "metal", "chillout", "male vocalists", "classic rock", "soul", "indie rock", "Mellow", "electronica",
    "80s", "folk", "90s", "chill", "instrumental", "punk", "oldies", "blues", "hard rock", "ambient", "acoustic",
    "experimental", "female vocalist", "guitar", "Hip-Hop", "70s", "party", "country", "easy listening", "sexy",
    "catchy", "funk", "electro", "heavy metal", "Progressive rock", "60s", "rnb", "indie pop", "sad", "House", "happy",
)  # fmt: skip

MODELS = {"MTT_musicnn": MTT_WORDS, "MSD_musicnn": MSD_WORDS}
"""The words of each network, in the order of its scores."""

EMBEDDING = 200
"""Embedding size of each network."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """The analysis of one track: the input for labels, calibration and similarity."""

    scores: dict[str, list[float]]
    """By model: a score from 0 to 1 for each word."""
    embedding: dict[str, list[float]]
    """By model: the embedding of the track."""
    duration: float
    """Seconds of decoded audio."""
    decoder: str
    """Name of the decoder that decoded the file."""
    patches: int
    """Number of analysed pieces of three seconds."""
    listener: str = LISTENER
    """Identifies the networks and the method."""
