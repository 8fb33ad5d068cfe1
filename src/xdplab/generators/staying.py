"""A generator that keeps running across the trials of a block, as long as its settings stay the same."""

from __future__ import annotations

from contextlib import suppress

from xdplab.errors import XdplabError
from xdplab.generators.session import Sender


class Staying:
    """At most one generator, between two trials. A trial takes it for itself, and does not give it back if it fails.

    Starting and ending one takes 0.1 s of a trial.
    """

    def __init__(self) -> None:
        self._kept: Sender | None = None

    def take(self, new: Sender) -> Sender:
        """Return the one that stayed if it is what ``new``, which has not started, would be; end it otherwise.

        One that was killed meanwhile costs no trial: a new one takes its place.
        """
        kept = self._kept
        if kept is not None and (kept.host, kept.argv) == (new.host, new.argv):
            with suppress(XdplabError):
                kept.go_on()
                self._kept = None
                return kept
        self.end()
        return new

    def give(self, generator: Sender) -> None:
        """Have it stay, its trial's end marked. Raises HostError."""
        generator.release()
        self._kept = generator

    def has(self, generator: Sender) -> bool:
        return self._kept is generator

    def end(self) -> None:
        """End the generator before settings change that it depends on; harmless if there is none."""
        if self._kept is not None:
            _end(self._kept)
        self._kept = None


def _end(generator: Sender) -> None:
    """Its trials are over and whole: however it ends, nothing of theirs is lost."""
    with suppress(XdplabError):
        generator.stop()
    generator.close()
