"""Payloads and results of the stages, the final result, and the names of the files. Imports nothing heavy."""

from dataclasses import dataclass, field
from enum import StrEnum

STAGES = ("ingest", "frames", "ocr", "classify", "persist")
"""The stages of an analysis, in order; each is a crew of the same name."""

RESULT = "result.json"
"""The result of an analysis (`Analysis` as JSON), in the folder of the flow."""
CHAPTERS = "chapters.vtt"
"""The scenes as chapters (WebVTT), in the folder of the flow."""
PROBE = "film.json"
SCENES = "scenes.json"
STILLS = "frames"
"""The subfolder of the key frames: `frames/00001.jpg`, numbered from 1 through the whole film."""
TEXTS = "text"
"""The subfolder of the text that was read, one file for each job of the stage ocr."""


def still_name(number: int) -> str:
    """Returns the path of a key frame within the folder of the flow."""
    return f"{STILLS}/{number:05d}.jpg"


class Code(StrEnum):
    """The reasons for which a film is refused."""

    MISSING = "missing"
    NOT_A_FILM = "not-a-film"
    NO_VIDEO = "no-video"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    UNSUPPORTED = "unsupported"
    TOO_LONG = "too-long"
    TOO_MANY_PIXELS = "too-many-pixels"
    TOO_MANY_STREAMS = "too-many-streams"
    MEMORY = "memory"
    CATEGORIES = "categories"
    INCOMPLETE = "incomplete"
    DISK_FULL = "disk-full"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a film was refused: the code for programs, the text for people."""

    code: Code
    text: str

    def __str__(self) -> str:
        return f"{self.code.value}: {self.text}"

    @classmethod
    def parse(cls, error: str | None) -> "Refusal | None":
        """Returns the refusal that `str` made an error text of, or None for any other error."""
        code, found, text = (error or "").partition(": ")
        return cls(Code(code), text) if found and code in {each.value for each in Code} else None


@dataclass(frozen=True, slots=True)
class Film:
    """Payload of all stages but ocr."""

    id: str
    """The id by which the service knows the film."""
    path: str
    name: str
    """The name for people; it is never used as a path."""
    folder: str | None = None
    """The folder of an earlier analysis whose text is classified again; None: the folder of the flow."""
    categories: str | None = None
    """The path of the categories file; None: the one of the package."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What the header of a film says; result of the stage ingest."""

    container: str
    codec: str
    width: int
    """Width and height as displayed: after rotation, with square pixels."""
    height: int
    rotation: int
    """Degrees by which the frames are turned clockwise for display: 0, 90, 180 or 270."""
    pixel_aspect: float
    seconds: float | None
    """The length that the header states; None if it states none."""
    frame_rate: float | None
    video_streams: int
    audio_streams: int
    bytes: int
    took: float = 0.0
    """Seconds that the stage took."""


@dataclass(frozen=True, slots=True)
class Still:
    """A key frame."""

    number: int
    time: float
    flat: bool = False
    """Whether the picture has one colour, so that it contains no text."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A part of the film between two cuts; times are presentation times in seconds from the first frame."""

    number: int
    start: float
    end: float
    stills: list[Still] = field(default_factory=list[Still])


@dataclass(frozen=True, slots=True)
class Cut:
    """Result of the stage frames."""

    scenes: int
    stills: int
    frames: int
    damaged: int
    """Packets that could not be decoded."""
    seconds: float
    variable: bool
    """Whether the frame rate varies."""
    took: float


@dataclass(frozen=True, slots=True)
class Run:
    """Payload of the stage ocr: a scene, or a run of short scenes."""

    film: Film
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text in a key frame."""

    text: str
    score: float
    height: float
    """Height of the line as a share of the picture's height."""
    x: float
    y: float
    """Centre of the line as a share of the picture's width and height."""


@dataclass(frozen=True, slots=True)
class SceneText:
    """What was read in a scene, without repetitions."""

    scene: int
    lines: list[Line]
    codes: list[str]
    """The contents of QR codes."""


@dataclass(frozen=True, slots=True)
class Read:
    """Result of the stage ocr; the text is in the folder."""

    first: int
    last: int
    stills: int
    lines: int
    codes: int
    took: float


@dataclass(frozen=True, slots=True)
class Guess:
    """A category with a confidence from 0 to 1; the category is None if the text does not decide ("not sure")."""

    category: str | None
    confidence: float
    runner_up: str | None = None


@dataclass(frozen=True, slots=True)
class Brand:
    """Text that looks like the name of a brand."""

    text: str
    confidence: float
    scenes: list[int]


@dataclass(frozen=True, slots=True)
class Classified:
    """Result of the stage classify."""

    guess: Guess
    brands: list[Brand]
    codes: list[str]
    took: float


@dataclass(frozen=True, slots=True)
class SceneResult:
    """A scene in the final result."""

    number: int
    start: float
    end: float
    stills: list[Still]
    text: list[str]
    codes: list[str]
    guess: Guess


@dataclass(frozen=True, slots=True)
class Analysis:
    """The final result, stored as `result.json`."""

    id: str
    name: str
    probe: Probe
    cut: Cut
    guess: Guess
    brands: list[Brand]
    codes: list[str]
    scenes: list[SceneResult]
    took: dict[str, float]
    """Seconds of work by stage; those of ocr are the sum over its jobs."""
    categories: str
    """The version of the categories file: the start of its SHA-256."""
    version: str


@dataclass(frozen=True, slots=True)
class Persisted:
    """Result of the stage persist; `folder` contains `result.json`, `chapters.vtt` and the key frames."""

    folder: str
    guess: Guess
    brands: list[Brand]
    codes: list[str]
    scenes: int
    stills: int
    seconds: float
    took: dict[str, float]
