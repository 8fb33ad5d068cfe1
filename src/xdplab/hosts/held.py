"""What a host holds for this program: a lock, a switched setting, or a device's former state.

    with Held(host, Holder("the former settings", script)) as held:
        ...                           # a beat tells the host that this program lives, if it is wanted
        held.require()                # it is still held

The script takes what it holds, and defines how to let go. It lets go when its input closes, which happens however this
program ends; after a time of silence, if the holder has one; or on a signal.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from xdplab.errors import HostError
from xdplab.hosts import BASH, Host, Process, Result

LIFE_S = 14 * 86400.0
"""The longest time that anything is held: a search may take days."""
ANSWER_S = 30.0  # a guest under emulation, on a busy machine
HELD = "held"

# A script redefines these functions once it has something to let go of, or to do at each beat; they use no "$1".
_HEAD = """\
export LC_ALL=C
silence=$1; shift
let_go() { :; }
beat() { :; }
trap 'trap "" TERM HUP INT; let_go' EXIT
trap 'exit 0' TERM HUP INT
"""
# Built-in commands only: nothing is started on the host while a window is measured, and no child shares a lock.
_TAIL = f"""
echo {HELD}
while read -r -t "$silence" word; do
    [ "$word" = dismissed ] && {{ trap - EXIT; exit 0; }}
    beat
    echo {HELD}
done
"""


@dataclass(frozen=True)
class Holder:
    """``script`` (bash, with its ``arguments``) takes what it holds, which ``what`` names in messages.

    The controller sends a beat every ``beat_s``; after ``silence_s`` without one the script lets go. Each line of the
    script must come within ``answer_s``.
    """

    what: str
    script: str
    arguments: tuple[str, ...] = ()
    beat_s: float | None = None
    silence_s: float = LIFE_S
    answer_s: float = ANSWER_S

    @property
    def argv(self) -> list[str]:
        """The command on the host."""
        return [*BASH, f"{_HEAD}{self.script}{_TAIL}", "bash", f"{self.silence_s:.0f}", *self.arguments]


class Held:
    """A holder at work. The end of its block lets go, and raises HostError with what the script could not put back."""

    def __init__(self, host: Host, holder: Holder, hear: Callable[[str], object] | None = None) -> None:
        """``hear`` is called with each line that the script prints before it holds, and may raise.

        Raises HostError with the script's own message if it ends before it holds.
        """
        self._host, self._holder = host, holder
        self._process: Process = host.start(holder.argv, deadline_s=LIFE_S)
        self._asking, self._closing = threading.Lock(), threading.Event()
        try:
            while (line := self._process.read_line(holder.answer_s)) != HELD:
                if line is None or hear is None:
                    reason = self._process.wait(holder.answer_s).error_text[-400:] or line or "its holder has ended"
                    raise HostError(f"{host.name}: {holder.what} cannot be held: {reason}")
                hear(line)
        except BaseException:
            with contextlib.suppress(HostError):
                self._end()
            raise
        if holder.beat_s is not None:
            threading.Thread(target=self._beat, args=(holder.beat_s,), daemon=True).start()

    def _beat(self, beat_s: float) -> None:
        while not self._closing.wait(beat_s):
            with contextlib.suppress(HostError):  # whoever measures asks by himself
                self.require()

    def require(self) -> None:
        """Raise HostError unless it is still held: otherwise the host has let go during the measurement."""
        with self._asking:
            try:
                self._process.write_line("alive")
                answer, reason = self._process.read_line(self._holder.answer_s), "its holder has ended"
            except HostError as error:
                answer, reason = None, error.message
        if answer != HELD:
            raise HostError(
                f"{self._host.name}: {self._holder.what} is no longer held: {reason}",
                remedy="the trial is repeated, and `xdplab resume` continues a run",
            )

    def dismiss(self) -> None:
        """End the holder without letting go; harmless if the connection is gone (then it lets go)."""
        self._closing.set()
        with contextlib.suppress(HostError):
            self._process.write_line("dismissed")
            self._end()

    def close(self) -> None:
        """Let go. Raises HostError with what the script could not put back."""
        ended = self._end()
        if not ended.ok:
            reason = ended.error_text[-400:] or "its holder was ended"
            raise HostError(f"{self._host.name}: {self._holder.what} is not put back: {reason}")

    def _end(self) -> Result:
        self._closing.set()
        self._process.close_stdin()
        return self._process.wait(self._holder.answer_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(HostError) if error else contextlib.nullcontext():  # what happened first is told
            self.close()
