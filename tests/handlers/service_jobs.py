"""The crews and types of the web service, without its handlers."""

from pydantic import BaseModel

from chargehand import Chargehand, LivenessPolicy, RestartPolicy


class Song(BaseModel):
    path: str
    gate: str | None = None


class Labels(BaseModel):
    scores: dict[str, float]
    pid: int


hand = Chargehand(
    liveness=LivenessPolicy(grace=4.0), restart=RestartPolicy(first_pause=0.05, longest_pause=0.1, breaker_window=0)
)
tag = hand.crew("tag", "service_handlers:Tagger", takes=Song, gives=Labels)
