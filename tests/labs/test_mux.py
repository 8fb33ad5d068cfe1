"""Streams over one line: nothing is lost or mixed up, and a client that does not read delays no other."""

import os
import selectors
import socket
import threading
from collections.abc import Iterator

import pytest

from xdplab.labs.guests.mux import FULL, HEAD, Mux


class End(threading.Thread):
    """One end of a line with its own event loop, which ends when the line is closed."""

    def __init__(self, line: socket.socket, *, inside: bool) -> None:
        super().__init__(daemon=True)
        self.selector = selectors.DefaultSelector()
        self.wake, waker = socket.socketpair()
        self.selector.register(waker, selectors.EVENT_READ, lambda _: waker.recv(1))
        self.opened: dict[int, socket.socket] = {}
        self.mux = Mux(line.fileno(), self.selector, self.open if inside else None)
        self.line = line
        self.start()

    def open(self, number: int) -> socket.socket:
        self.opened[number], theirs = socket.socketpair()
        return theirs

    def run(self) -> None:
        while self.line.fileno() in self.selector.get_map():
            for key, _ in self.selector.select():
                key.data(key.fileobj)
        assert not self.mux.streams


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    ours, theirs = socket.socketpair()
    ends = End(ours, inside=False), End(theirs, inside=True)
    yield ends
    ours.shutdown(socket.SHUT_RDWR)
    for end in ends:
        end.join(2.0)
        assert not end.is_alive()


def stream(end: End, number: int) -> socket.socket:
    ours, theirs = socket.socketpair()
    ours.settimeout(5.0)
    end.mux.attach(number, theirs)
    end.wake.send(b".")
    return ours


def echo(end: socket.socket) -> None:
    while data := end.recv(1 << 16):
        end.sendall(data)
    end.close()


def far_end(end: End, number: int) -> socket.socket:
    for _ in range(500):
        if number in end.opened:
            return end.opened[number]
        threading.Event().wait(0.01)
    raise AssertionError(f"stream {number} was not opened")


def read(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (chunk := end.recv(1 << 16)):
        data += chunk
    return data


def exchange(end: socket.socket, far: socket.socket, data: bytes) -> bytes:
    threading.Thread(target=echo, args=(far,), daemon=True).start()
    threading.Thread(target=end.sendall, args=(data,), daemon=True).start()
    return read(end, len(data))


def test_streams_come_back_as_they_went(ends: tuple[End, End]) -> None:
    near, far = ends
    pairs = []
    for number in range(4):
        end = stream(near, number)
        end.sendall(bytes([number]))
        pairs.append((end, far_end(far, number)))
        assert pairs[-1][1].recv(1) == bytes([number])
    contents = [os.urandom(3 * FULL) for _ in pairs]
    answers: dict[int, bytes] = {}

    def go(number: int) -> None:
        answers[number] = exchange(*pairs[number], contents[number])

    threads = [threading.Thread(target=go, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert [answers[number] == content for number, content in enumerate(contents)] == [True] * 4


def test_a_client_that_does_not_read_delays_no_other(ends: tuple[End, End]) -> None:
    near, far = ends
    lazy, busy = stream(near, 1), stream(near, 2)
    lazy.sendall(b".")
    busy.sendall(b".")
    assert far_end(far, 2).recv(1) == far_end(far, 1).recv(1) == b"."
    content = os.urandom(4 * FULL)
    threading.Thread(target=far_end(far, 1).sendall, args=(content,), daemon=True).start()
    assert exchange(busy, far_end(far, 2), b"x" * FULL) == b"x" * FULL
    assert read(lazy, len(content)) == content


def test_a_stream_ends_at_both_ends_after_its_last_byte(ends: tuple[End, End]) -> None:
    near, far = ends
    end = stream(near, 7)
    end.sendall(b"y" * FULL)
    other = far_end(far, 7)
    other.settimeout(5.0)
    end.close()
    assert read(other, FULL + 1) == b"y" * FULL
    assert other.recv(1) == b""


def test_a_stream_that_the_line_ends_may_be_ready_in_the_same_round() -> None:
    line, far_line = socket.socketpair()
    end, inner = socket.socketpair()
    selector = selectors.DefaultSelector()
    mux = Mux(line.fileno(), selector)
    mux.attach(3, inner)
    end.send(b"x")
    far_line.send(HEAD.pack(3, 0))
    ready = sorted((key for key, _ in selector.select(1.0)), key=lambda key: key.fd != line.fileno())
    assert len(ready) == 2
    for key in ready:
        key.data(key.fileobj)
    assert not mux.streams
    for each in (line, far_line, end):
        each.close()
