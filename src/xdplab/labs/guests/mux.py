"""Many streams over one line: the connection to a guest without a network.

Used at both ends of the line, by scripts, standard library only. A frame is a head (stream, length) and that many
bytes; a frame of length 0 ends its stream. The outside opens a stream by its first frame; numbers are never used twice.
A stream that is not read does not block others: its data waits here, bounded by SSH's own window.

A terminal line of a user-mode Linux stays silent for ever once its reader is 4096 bytes behind (the line is throttled
and never resumes). So the outside never has more than `WINDOW` bytes in flight, and the inside acknowledges received
bytes by a head of stream `TAKEN` whose length is their number; no data follows it.
"""

import os
import selectors
import socket
import struct
from collections.abc import Callable

HEAD = struct.Struct(">II")
CHUNK = 1 << 14
WINDOW = 3072
TAKEN = 0xFFFFFFFF
FULL = 1 << 18
"""Number of bytes waiting for the line above which the streams are not read."""


class MuxStream:
    """One end's socket of a stream, and the data from the line that the socket has not taken yet."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.pending = bytearray()
        self.ending = False
        self.wanted = 0


class Mux:
    """One end of a line: the inside, with ``opened`` for the socket of a stream that was opened, or the outside."""

    def __init__(
        self, line: int, selector: selectors.BaseSelector, opened: Callable[[int], socket.socket] | None = None
    ) -> None:
        self.line, self.selector, self.opened = line, selector, opened
        self.window = WINDOW
        """Bytes the outside may send now."""
        self.streams: dict[int, MuxStream] = {}
        self.incoming, self.outgoing = bytearray(), bytearray()
        self.full = False
        os.set_blocking(line, False)
        selector.register(line, selectors.EVENT_READ, self._on_line)

    def attach(self, number: int, end: socket.socket) -> None:
        """Make ``end`` this side of a stream; it is closed when the stream ends."""
        end.setblocking(False)
        self.streams[number] = MuxStream(end)
        self._listen(number, self.streams[number])

    def _on_line(self, _line: object) -> None:
        self._flush()
        try:
            data = os.read(self.line, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        self.incoming += data
        if self.opened:
            self.outgoing += HEAD.pack(TAKEN, len(data))
            self._flush()
        while len(self.incoming) >= HEAD.size and self._take():
            pass

    def _take(self) -> bool:
        """Remove one frame from the received data. Returns whether it was complete."""
        number, length = HEAD.unpack_from(self.incoming)
        end = HEAD.size if number == TAKEN else HEAD.size + length
        if len(self.incoming) < end:
            return False
        content = bytes(self.incoming[HEAD.size : end])
        del self.incoming[:end]
        if number == TAKEN:
            self.window += length
            self._flush()
        else:
            self._deliver(number, content)
        return True

    def _deliver(self, number: int, content: bytes) -> None:
        if number not in self.streams and content and self.opened:
            self.attach(number, self.opened(number))
        stream = self.streams.get(number)
        if stream is not None:
            stream.pending += content
            stream.ending = not content
            self._hand_on(number, stream)

    def _on_stream(self, number: int) -> None:
        stream = self.streams.get(number)
        if stream is None:
            return  # the line ended it in this same round
        self._hand_on(number, stream)
        if number not in self.streams or self.full:
            return
        try:
            data = stream.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._send(number, data)
        if not data:
            self._forget(number)

    def _hand_on(self, number: int, stream: MuxStream) -> None:
        """Give a stream's socket as much of its pending bytes as it takes."""
        try:
            while stream.pending:
                del stream.pending[: stream.socket.send(stream.pending)]
        except BlockingIOError:
            pass
        except OSError:
            self._send(number, b"")
            self._forget(number)
            return
        if stream.ending and not stream.pending:
            self._forget(number)
        elif stream.wanted != selectors.EVENT_READ or stream.pending:
            self._listen(number, stream)

    def _listen(self, number: int, stream: MuxStream) -> None:
        """Register for the events that the stream can handle now."""
        wanted = selectors.EVENT_WRITE if stream.pending else 0
        wanted |= 0 if self.full else selectors.EVENT_READ
        if stream.wanted:
            self.selector.unregister(stream.socket)
        if wanted:
            self.selector.register(stream.socket, wanted, lambda _: self._on_stream(number))
        stream.wanted = wanted

    def _send(self, number: int, content: bytes) -> None:
        self.outgoing += HEAD.pack(number, len(content)) + content
        self._flush()

    def _flush(self) -> None:
        """Write as much as the line takes, and let the streams wait if that is not enough."""
        try:
            while self.outgoing and self._room():
                written = os.write(self.line, self.outgoing[: self._room()])
                del self.outgoing[:written]
                self.window -= 0 if self.opened else written
        except OSError:
            pass  # it takes no more now, or never again: then there is nothing to read either
        more = selectors.EVENT_WRITE if self.outgoing and self._room() else 0
        self.selector.modify(self.line, selectors.EVENT_READ | more, self._on_line)
        if self.full != (len(self.outgoing) >= FULL):
            self.full = not self.full
            for number, stream in self.streams.items():
                self._listen(number, stream)

    def _room(self) -> int:
        return CHUNK if self.opened else self.window

    def _end(self) -> None:
        """The line is closed, and so is every stream."""
        for number in list(self.streams):
            self._forget(number)
        self.selector.unregister(self.line)

    def _forget(self, number: int) -> None:
        stream = self.streams.pop(number)
        if stream.wanted:
            self.selector.unregister(stream.socket)
        stream.socket.close()
