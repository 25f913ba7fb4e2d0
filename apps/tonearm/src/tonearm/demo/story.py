"""The songs of the demo, and the bad one. Must not import anything heavy."""

BAD = "05 crashes its decoder.wav"
SONGS: tuple[tuple[str, str, float], ...] = (
    ("Garden/01 Piano.mp3", "piano", 30),
    ("Garden/02 Long piano.flac", "piano", 60),
    ("Night/03 Warehouse.mp3", "techno", 60),
    ("Night/04 Strobe.ogg", "techno", 30),
    (f"Night/{BAD}", "techno", 10),
    ("Woods/06 One flute.flac", "flute", 45),
    ("Woods/07 Another flute.ogg", "flute", 45),
    ("Chapel/08 Evening violin.flac", "violin", 60),
    ("Chapel/09 Morning violin.aiff", "violin", 30),
    ("Chapel/10 Choir.mp3", "choir", 60),
    ("Chapel/11 Small choir.wav", "choir", 30),
    ("Garden/12 Piano again.mp3", "piano", 40),
)
"""File, style, seconds. The networks recognise every style; a test verifies it."""
