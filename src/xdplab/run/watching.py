"""Watching a run that another process measures: a bar in a notebook or on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from xdplab.lazy import lazily
from xdplab.run.progress import to_go
from xdplab.run.state import RunState
from xdplab.text import colour_system, visible

with lazily():
    from rich import console as consoles
    from rich import progress as bars

POLL_S = 0.5
LINE_S = 5.0
"""Seconds between two plain lines: a log is read later."""
SHARE = 0.1
"""Share of the time that counting verdicts may take: it derives the table of an unfinished run."""

INTERRUPTED = (
    "watching ended; the run continues: run.watch() shows it again, run.stop() ends it; "
    "on a terminal `xdplab status {name}`"
)


class Bar(Protocol):
    def show(self, done: int, total: int, text: str) -> None: ...

    def close(self) -> None: ...


class WidgetBar:
    """A bar of ipywidgets below the cell; it disappears when it is closed."""

    def __init__(self) -> None:
        import ipywidgets
        from IPython.display import display

        self._bar = ipywidgets.IntProgress(layout={"width": "40%"})
        self._words = ipywidgets.Label()
        self._box = ipywidgets.HBox([self._bar, self._words])
        display(self._box)  # type: ignore[no-untyped-call]

    def show(self, done: int, total: int, text: str) -> None:
        self._bar.max, self._bar.value, self._words.value = max(total, 1), done, text

    def close(self) -> None:
        self._box.close()


class TerminalBar:
    """A bar of rich; it disappears when it is closed."""

    def __init__(self, console: consoles.Console) -> None:
        self._progress = bars.Progress(
            bars.BarColumn(), bars.TextColumn("{task.description}"), console=console, transient=True
        )
        self._task = self._progress.add_task("", total=None)
        self._progress.start()

    def show(self, done: int, total: int, text: str) -> None:
        self._progress.update(self._task, completed=done, total=total, description=text)

    def close(self) -> None:
        self._progress.stop()


class Lines:
    """A line after a change, at most every `LINE_S`; the caller prints the last one when the run has ended."""

    def __init__(self) -> None:
        self._last, self._next_s = -1, 0.0

    def show(self, done: int, total: int, text: str) -> None:
        if self._last != done < total and time.monotonic() >= self._next_s:
            self._last, self._next_s = done, time.monotonic() + LINE_S
            print(text, flush=True)  # noqa: T201

    def close(self) -> None:
        """There is nothing to close."""


def bar() -> Bar:
    """Return the bar that fits this process's output; widgets need the notebook extra."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None and getattr(shell, "kernel", None) is not None:
        try:
            return WidgetBar()
        except ImportError:
            return Lines()
    console = consoles.Console(color_system=colour_system())
    return TerminalBar(console) if console.is_terminal else Lines()


def watch(
    state: Callable[[], RunState], under_way: Callable[[], bool], verdicts: Callable[[], dict[str, int]], name: str
) -> bool:
    """Show how far a run is until it is no longer under way. Return False if an interrupt ended the watching.

    ``verdicts`` counts them. It may be slow, so it is called only often enough to take a tenth of the time.
    """
    shown = bar()
    counts: dict[str, int] = {}
    tried, next_s = 0, 0.0
    try:
        while under_way():
            now = state()
            if len(now.attempts) != tried and time.monotonic() >= next_s:
                began = time.monotonic()
                counts = verdicts()
                next_s = time.monotonic() + (time.monotonic() - began) / SHARE
                now = state()  # read after the verdicts, so there are never more verdicts than trials
                tried = len(now.attempts)
            shown.show(len(now.last), now.total, progress_line(now, counts))
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        shown.close()
        print(INTERRUPTED.format(name=name))  # noqa: T201
        return False
    shown.close()
    print(progress_line(state(), verdicts()))  # noqa: T201
    return True


def progress_line(state: RunState, verdicts: dict[str, int]) -> str:
    """Return how many trials have ended, their verdicts, and how long the rest will take."""
    if not verdicts:
        line = state.text
    else:
        line = f"{len(state.last)} of {state.total} trials: " + ", ".join(f"{n} {name}" for name, n in verdicts.items())
    return visible(", ".join(filter(None, (line, to_go(state) if state.owed else ""))))


def counted(rows: Any) -> dict[str, int]:
    """Return how many rows of a table have each verdict; empty for a table without verdicts."""
    return {} if "verdict" not in rows else {str(k): int(n) for k, n in rows["verdict"].value_counts().items()}
