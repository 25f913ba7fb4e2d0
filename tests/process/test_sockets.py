"""The sockets' own promises, on real socket pairs: lines stay lines, nobody waits for somebody who does not read."""

import socket
from collections.abc import Iterator

import pytest

from chargehand.node.loop import MOST_UNSENT, Channel, Loop
from chargehand.protocol.frame import BadFrame, Decoder, Frame, encode
from chargehand.worker.pulse import FrameWriter

Got = list[Frame | BadFrame]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    for sock in (left, right):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    yield left, right
    left.close()
    right.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def read_all(sock: socket.socket, decoder: Decoder) -> Got:
    sock.setblocking(False)
    got: Got = []
    while True:
        try:
            got += decoder.feed(sock.recv(1 << 16))
        except BlockingIOError:
            return got


def test_health_is_dropped_not_torn_when_the_node_does_not_read(  # spec: WP-5
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    outlet, decoder = FrameWriter(ours.fileno()), Decoder(1 << 16)
    for number in range(2000):
        outlet.send(encode("HEALTH", {"number": number, "text": "x" * 700}))  # returns, though nobody reads
    numbers = [frame.read()["number"] for frame in read_all(theirs, decoder) if isinstance(frame, Frame)]
    assert numbers == list(range(len(numbers)))
    assert 0 < len(numbers) < 2000
    outlet.send(encode("HEALTH", {"number": "newest"}))  # finishes what was begun, then sends this whole
    later = read_all(theirs, decoder)
    assert not [frame for frame in later if isinstance(frame, BadFrame)]
    assert later[-1] == Frame("HEALTH", b'{"number":"newest"}')


def channel(loop: Loop, sock: socket.socket, got: Got, limit: int = 1 << 22) -> tuple[Channel, list[str]]:
    ended: list[str] = []
    made = Channel(loop, sock, limit, lambda _, frames: got.extend(frames), lambda _: ended.append("end"))
    return made, ended


def test_a_large_job_goes_out_in_pieces_while_others_are_served(  # spec: SV-3
    pair: tuple[socket.socket, socket.socket], loop: Loop
) -> None:
    ours, theirs = pair
    sending, _ = channel(loop, ours, [])
    big = encode("JOB", {"payload": "x" * 1_000_000})
    sending.send(big)
    sending.send(encode("STOP", {}))  # behind it, in order
    decoder, got = Decoder(1 << 22), []
    while len(got) < 2:
        loop.handle(loop.wait(0))
        got += read_all(theirs, decoder)
    assert [frame.kind for frame in got if isinstance(frame, Frame)] == ["JOB", "STOP"]


def test_a_peer_that_never_reads_is_cut_off(pair: tuple[socket.socket, socket.socket], loop: Loop) -> None:
    ours, _ = pair
    sending, ended = channel(loop, ours, [])
    for _ in range(MOST_UNSENT // 1_000_000 + 2):
        sending.send(bytes(1_000_000))
    assert not sending.open
    assert ended == ["end"]
    sending.send(b"to nobody\n")


def test_what_was_sent_before_the_end_is_read_before_it_is_told(  # spec: SV-2
    pair: tuple[socket.socket, socket.socket], loop: Loop
) -> None:
    ours, theirs = pair
    got: Got = []
    receiving, ended = channel(loop, ours, got)
    theirs.sendall(encode("DONE", {"id": 1}) + b"half a li")
    theirs.close()
    receiving.drain()
    receiving.drain()
    assert [type(frame) for frame in got] == [Frame]
    assert [type(half) for half in receiving.rest] == [BadFrame]
    assert ended == ["end"]


def test_a_deaf_channel_loses_nothing(pair: tuple[socket.socket, socket.socket], loop: Loop) -> None:
    ours, theirs = pair
    got: Got = []
    receiving, _ = channel(loop, ours, got)
    receiving.listen(False)
    theirs.sendall(encode("HEALTH", {}))
    loop.handle(loop.wait(0))
    assert got == []
    receiving.listen(True)
    loop.handle(loop.wait(0))
    assert got == [Frame("HEALTH", b"{}")]


def test_garbage_is_cut_and_the_next_line_is_read(  # spec: SV-8
    pair: tuple[socket.socket, socket.socket], loop: Loop
) -> None:
    ours, theirs = pair
    got: Got = []
    channel(loop, ours, got, limit=100)
    theirs.sendall(b"\x00\xff" * 200 + b"\n" + b"nonsense\n" + encode("HEALTH", {}))
    loop.handle(loop.wait(0))
    assert [type(frame) for frame in got] == [BadFrame, BadFrame, Frame]
    assert all(len(frame.line) <= 200 for frame in got if isinstance(frame, BadFrame))
