"""How an attempt ended, as a worker tells its node: one frame a job. Loaded in every worker: nothing heavy."""

from typing import Any

from chargehand import errors
from chargehand.protocol.frame import WORK_FRAME_LIMIT, encode, encode_done
from chargehand.worker import perform

ERROR_LIMIT = 64 * 1024
LONGEST_RETRY = 100 * 365 * 86_400


def cut(text: str) -> str:
    """A text that fits into a frame: its beginning, and its end, which says most."""
    if len(text) <= ERROR_LIMIT:
        return text
    return f"{text[: ERROR_LIMIT // 2]}\n… cut …\n{text[-ERROR_LIMIT // 2 :]}"


def done(about: dict[str, Any], result: Any, follow: list[dict[str, Any]], gives: Any) -> bytes:
    """The handler returned this, and enqueued those; a PayloadError if that cannot be told."""
    frame = encode_done(about["id"], about["fence"], perform.result_text(result, gives), follow)
    if len(frame) > WORK_FRAME_LIMIT:
        raise errors.PayloadError(
            f"the result and the {len(follow)} jobs that it enqueues have {len(frame):,} bytes; "
            f"allowed are {WORK_FRAME_LIMIT:,}"
        )
    return frame


def is_cancellation(error: BaseException) -> bool:
    """Ours, or asyncio's own, which a coroutine is interrupted with."""
    return isinstance(error, errors.Cancelled) or type(error).__name__ == "CancelledError"


def cancelled(about: dict[str, Any], error: BaseException) -> bytes:
    """The job was cancelled, and has ended because of that."""
    return encode("CANCELLED", {**about, "error": cut(str(error))})


def failure(about: dict[str, Any], error: BaseException) -> bytes:
    """The handler raised this."""
    import traceback

    text = cut("".join(traceback.format_exception(error)))
    match error:
        case errors.Retry():
            seconds = min(max(0.0, error.after), LONGEST_RETRY) if error.after == error.after else 0.0
            return encode("RETRY", {**about, "after_ms": int(seconds * 1000), "error": cut(str(error))})
        case errors.GiveUp():
            return encode("GAVEUP", {**about, "error": cut(str(error.reason))})
        case errors.PayloadError():
            return encode("GAVEUP", {**about, "error": text})
        case _:
            return encode("RAISED", {**about, "error": text})
