"""What listening to a track gave. Light: plain numbers, so that it crosses from a worker to the API as JSON."""

import msgspec

LISTENER = "musicnn-0.1.0"
"""Which networks listened, and how: results of another listener are not comparable with these."""

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
"""Each network's words, in the order of its scores."""

EMBEDDING = 200
"""How many numbers each network's embedding has."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One track, listened to: everything that labels, calibration and likeness are made from."""

    scores: dict[str, list[float]]
    """By model: a score from 0 to 1 for each of its words."""
    embedding: dict[str, list[float]]
    """By model: where the track stands among all music, as that model hears it."""
    duration: float
    """Seconds of audio that were decoded."""
    decoder: str
    """Which decoder got through the file."""
    patches: int
    """How many pieces of three seconds were listened to."""
    listener: str = LISTENER
    """Which networks listened."""
