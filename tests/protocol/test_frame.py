"""Frames: whatever bytes come, in whatever pieces, the same lines come out and nothing else happens."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chargehand import codec
from chargehand.protocol.frame import KEPT_OF_A_BAD_LINE, BadFrame, Decoder, Frame, encode, encode_done

steady = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

LIMIT = 256
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
kinds = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=1, max_size=32)
lines = st.one_of(
    st.binary(max_size=100),
    st.builds(lambda kind, body: kind.encode() + b"|" + body, kinds, st.binary(max_size=60)),
    st.builds(lambda size: b"HEALTH|" + b"x" * size, st.integers(0, 600)),
    st.sampled_from([b"", b"|", b"HEALTH|{}", b"health|{}", b"HEALTH", b"\r", b"A|B|C"]),
)


def decode(*pieces: bytes, limit: int = LIMIT) -> list[Frame | BadFrame]:
    decoder = Decoder(limit)
    return [frame for piece in pieces for frame in decoder.feed(piece)] + list(decoder.end())


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places)]


# in pieces


# spec: WP-4, SV-8
@steady
@given(stream=st.lists(lines, max_size=12).map(b"\n".join), cuts=st.lists(st.integers(0, 5000), max_size=12))
def test_any_split_of_any_stream_gives_the_same_frames(stream: bytes, cuts: list[int]) -> None:
    assert decode(*split(stream, cuts)) == decode(stream)


# spec: WP-4, SV-8
@steady
@given(stream=st.lists(lines, max_size=5).map(b"\n".join))
def test_byte_by_byte_gives_the_same_frames(stream: bytes) -> None:
    assert decode(*(stream[n : n + 1] for n in range(len(stream)))) == decode(stream)


# spec: WP-4, SV-8
@steady
@given(stream=st.lists(lines, max_size=12))
def test_every_line_gives_exactly_one_frame_good_or_bad(stream: list[bytes]) -> None:
    data = b"".join(line.replace(b"\n", b" ") + b"\n" for line in stream)
    assert len(decode(data)) == len(stream)


# spec: WP-4, SV-8
@steady
@given(before=st.lists(lines, max_size=6), kind=kinds, body=plain)
def test_a_good_line_is_read_whatever_came_before_it(before: list[bytes], kind: str, body: Any) -> None:
    junk = b"".join(line + b"\n" for line in before)
    assert decode(junk + encode(kind, body), limit=1 << 20)[-1] == Frame(kind, encode(kind, body)[len(kind) + 1 : -1])


# what is a frame


# spec: WP-4
@pytest.mark.parametrize("line", [b"HEALTH|{}", b"A|", b"X|not json", b"A|B|C", b"A" * 32 + b"|1", b"A|\xff\r"])
def test_a_kind_and_a_bar_make_a_frame(line: bytes) -> None:
    kind, _, body = line.partition(b"|")
    assert decode(line + b"\n") == [Frame(kind.decode(), body)]


# spec: SV-8
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\r",
        b"|",
        b"|{}",
        b"HEALTH",
        b"health|{}",
        b"Health|{}",
        b"HEALTH2|{}",
        b" HEALTH|{}",
        b"HEALTH |{}",
        b"H\xc3\x84LTH|{}",
        b"\x00|{}",
        b"\xff\xfe|{}",
        b"A" * 33 + b"|1",
    ],
)
def test_anything_else_is_a_bad_frame_that_keeps_the_line(line: bytes) -> None:
    assert decode(line + b"\n") == [BadFrame("not KIND|{json}", line)]


# spec: SV-8
@pytest.mark.parametrize("body", [b"", b"{", b"nope", b"\xff", b'"\xff"', b"{}{}", b"[" * 100_000, b'{"a":' * 100_000])
def test_a_body_that_is_not_json_is_a_value_error_for_whoever_reads_it(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Frame("HEALTH", body).read()


# spec: SV-8
def test_a_number_of_a_million_digits_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="digits"):
        Frame("HEALTH", b"1" * 1_000_000).read()


# limits


# spec: SV-8, SE-3
@pytest.mark.parametrize(("length", "good"), [(LIMIT - 1, True), (LIMIT, True), (LIMIT + 1, False), (9999, False)])
@pytest.mark.parametrize("pieces", [1, 7])
def test_a_line_may_be_as_long_as_the_limit(length: int, good: bool, pieces: int) -> None:
    line = b"A|" + b"x" * (length - 2)
    size = len(line) // pieces + 1
    found = decode(*(line[n : n + size] for n in range(0, len(line), size)), b"\n")
    too_long = BadFrame(f"longer than {LIMIT} bytes", line[:KEPT_OF_A_BAD_LINE])
    assert found == [Frame("A", line[2:]) if good else too_long]


# spec: SV-8
def test_after_a_line_that_is_too_long_the_next_one_is_read() -> None:
    found = decode(b"A|" + b"x" * 500, b"x" * 500, b"tail\nB|1\n")
    assert [type(frame) for frame in found] == [BadFrame, Frame]
    assert found[1] == Frame("B", b"1")


# spec: SV-8
def test_a_line_that_never_ends_is_told_once_and_takes_no_room() -> None:
    decoder = Decoder(LIMIT)
    found = [frame for _ in range(1000) for frame in decoder.feed(b"x" * 50)]
    assert len(found) == 1
    assert len(decoder._tail) <= LIMIT
    assert decoder.end() == []


# spec: SV-8
@steady
@given(pieces=st.lists(st.binary(max_size=400), max_size=30))
def test_no_more_than_the_limit_is_ever_kept(pieces: list[bytes]) -> None:
    decoder = Decoder(LIMIT)
    for piece in pieces:
        for frame in decoder.feed(piece):
            assert not isinstance(frame, BadFrame) or len(frame.line) <= KEPT_OF_A_BAD_LINE
        assert len(decoder._tail) <= LIMIT


# spec: SV-8
def test_a_bad_line_is_cut_for_the_report() -> None:
    (bad,) = decode(b"x" * 1000 + b"\n", limit=5000)
    assert bad == BadFrame("not KIND|{json}", b"x" * KEPT_OF_A_BAD_LINE)


# the end


# spec: SV-2, SV-8
def test_half_a_frame_at_the_end_is_a_bad_one() -> None:
    assert decode(b'A|1\nDONE|{"id"') == [
        Frame("A", b"1"),
        BadFrame("the stream ended in the middle of a line", b'DONE|{"id"'),
    ]


# spec: SV-2
@pytest.mark.parametrize("stream", [b"", b"A|1\n", b"x" * 1000])
def test_a_stream_that_ends_between_lines_leaves_nothing(stream: bytes) -> None:
    decoder = Decoder(LIMIT)
    decoder.feed(stream)
    assert decoder.end() == []


# spec: SV-2
def test_the_end_is_told_once() -> None:
    decoder = Decoder(LIMIT)
    decoder.feed(b"half")
    assert len(decoder.end()) == 1
    assert decoder.end() == []


# encoding


# spec: WP-4
@steady
@given(kind=kinds, body=plain)
def test_what_is_encoded_is_one_line_that_reads_as_the_same(kind: str, body: Any) -> None:
    data = encode(kind, body)
    assert data.count(b"\n") == 1
    (frame,) = decode(data, limit=1 << 20)
    assert isinstance(frame, Frame)
    assert (frame.kind, frame.read()) == (kind, body)


# spec: WP-4
@steady
@given(
    job=st.text(), claim=st.integers(0), result=plain, follow=st.lists(st.dictionaries(st.text(), plain), max_size=2)
)
def test_what_came_out_of_a_job_reads_like_any_other(
    job: str, claim: int, result: Any, follow: list[dict[str, Any]]
) -> None:
    (frame,) = decode(encode_done(job, claim, json.dumps(result), follow), limit=1 << 20)
    assert isinstance(frame, Frame)
    more = {"follow": follow} if follow else {}
    assert (frame.kind, frame.read()) == ("DONE", {"id": job, "fence": claim, **more, "result": result})


# spec: WP-4
def test_the_result_is_put_in_as_it_is() -> None:
    assert encode_done("ü", 7, '[1, "2"]', []) == 'DONE|{"id":"ü","fence":7,"result":[1, "2"]}\n'.encode()


# spec: WP-4
@pytest.mark.parametrize("body", [b"", b"{", b"1 2", b"{}x", b"\xff", b'{"a":1}  ', b"[" * 100_000])
def test_what_is_not_one_value_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expect|Extra|after|decode|nested"):
        Frame("A", body).read()


# spec: WP-4
@pytest.mark.parametrize("body", [float("nan"), float("inf"), {"a": -float("inf")}, {"a": b"x"}, {1, 2}, object()])
def test_what_is_not_json_is_not_sent(body: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        encode("A", body)


# spec: WP-4
def test_text_is_sent_as_it_is() -> None:
    assert encode("A", "ü💥\u2028\n") == 'A|"ü💥\u2028\\n"\n'.encode()


# spec: WP-4
@pytest.mark.parametrize("text", ["caf\udce9.mp3", "\udcff\0", "\U0010fade", "\U0010fadexe9", "ordinary ü"])
def test_a_text_of_the_application_is_restored_for_the_application_alone(text: str) -> None:
    body = {"after": codec.escape(text), "payload": codec.to_json({text: [text]}, "it")}
    (frame,) = decode(encode("LOOK", body), limit=1 << 20)
    assert isinstance(frame, Frame)
    assert frame.read() == body
    assert frame.read_restored()["after"] == text


# spec: WP-4
def test_a_text_that_nobody_escaped_is_sent_in_a_valid_form() -> None:
    data = encode("RAISED", {"error": "no such file: caf\udce9.mp3"})
    assert codec.readable(msgspec.json.decode(data.partition(b"|")[2])["error"]) == "no such file: caf\\xe9.mp3"
