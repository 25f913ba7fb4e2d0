"""Which songs there are, and which of them is bad. Light."""

BAD = "05 crashes its decoder.wav"
SONGS: tuple[tuple[str, str, float], ...] = (
    ("Campfire/01 Plucked strings.mp3", "guitar", 30),
    ("Campfire/02 Slow fingers.flac", "guitar", 60),
    ("Night/03 Warehouse.mp3", "techno", 60),
    ("Night/04 Strobe.ogg", "techno", 30),
    (f"Night/{BAD}", "techno", 10),
    ("Woods/06 One flute.flac", "flute", 45),
    ("Woods/07 Two flutes.ogg", "flute", 45),
    ("Chapel/08 Evening organ.flac", "organ", 60),
    ("Chapel/09 Morning organ.aiff", "organ", 30),
    ("Chapel/10 Choir.mp3", "choir", 60),
    ("Street/11 March.wav", "march", 30),
    ("Street/12 Parade.mp3", "march", 40),
)
"""File, style, seconds."""
