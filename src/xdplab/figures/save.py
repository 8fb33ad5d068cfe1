"""A figure on disk: SVG, PDF, PNG, the marks it was drawn from, its caption; the same marks give the same bytes.

Draws in several processes: figures are independent of each other, and one takes half a second of a CPU.

There are no threads: an interrupt could catch one of those of `concurrent.futures` with a lock that nobody releases.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from xdplab.errors import HostError
from xdplab.figures.factors import FigureFiles
from xdplab.figures.marks import View
from xdplab.figures.styles import Style, applied
from xdplab.lazy import lazily
from xdplab.run.disk import write_whole
from xdplab.text import visible

with lazily():
    from xdplab.figures import draw as drawing
    from xdplab.figures import letters, pointer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from xdplab.figures.draw import Panels

# A date in the file would make equal figures differ.
UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
NOTE_KEY = {"svg": "Description", "pdf": "Subject", "png": "Description"}


def provenance(trials: pd.DataFrame) -> dict[str, str]:
    """Return what leads from a figure back to its trials: run ids and the version of the rules that judged them."""
    names = {"run": "run_id", "rules": "rules_version"}
    return {word: ", ".join(sorted(trials[column].dropna().unique())) for word, column in names.items()}


def render(sheet: Figure, suffix: str, style: Style, title: str, source: Mapping[str, str]) -> bytes:
    """Return the figure's bytes in one format, with ``source`` in its metadata."""
    note = "; ".join(f"{word} {value}" for word, value in source.items() if value)
    metadata = UNDATED[suffix] | {"Title": title, NOTE_KEY[suffix]: f"xdplab; {note}"}
    stream = io.BytesIO()
    shown = sheet.shown if isinstance(sheet, drawing.Sheet) and suffix == "svg" else None
    fonts = _outlines_only() if suffix == "pdf" else letters.known_letters()
    with applied(style), fonts, pointer.named(sheet, shown) if shown else nullcontext():
        sheet.savefig(stream, format=suffix, metadata=metadata)
    if suffix != "svg":
        return stream.getvalue()
    svg = stream.getvalue().decode()
    return visible(pointer.with_tooltips(svg, sheet, shown) if shown else svg).encode()


@contextmanager
def _outlines_only() -> Iterator[None]:
    """Embed fonts without the tables that lay text out: a PDF says where each of its glyphs stands.

    To read and subset these tables of DejaVu Sans took a fifth of the time of a figure's files. Matplotlib has no
    option for it; a version that does not load fonts in this way embeds them with these tables.
    """
    from fontTools import subset  # type: ignore[import-untyped]

    usual = subset.load_font

    def bare(*args: Any, **options: Any) -> Any:
        font = usual(*args, **options)
        for table in LAYOUT_TABLES:
            if table in font:
                del font[table]
        return font

    subset.load_font = bare
    try:
        yield
    finally:
        subset.load_font = usual


LAYOUT_TABLES = ("GSUB", "GPOS", "GDEF", "MATH", "kern")


def save(view: View, name: str, output: FigureFiles, source: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Draw a view; write it in each format, its marks as CSV, and its caption as text and for LaTeX.

    Returns the paths; without a folder nothing is drawn. Raises ResultsError naming the file if it cannot be written,
    FigureError as `draw` does.
    """
    if output.folder is None:
        return ()
    sheet = sheet_of(drawing.draw(view, output.style))
    files = {suffix: render(sheet, suffix, output.style, name, source or {}) for suffix in output.formats}
    files["csv"] = view.marks.assign(file=name).to_csv(index=False, lineterminator="\n").encode()
    if view.caption:
        files["txt"] = visible("".join(f"{part}\n" for part in view.caption)).encode()
        files["tex"] = f"{tex_caption(' '.join(view.caption))}\n".encode()
    return tuple(write_whole(output.folder / f"{name}.{suffix}", data) for suffix, data in files.items())


_OF_LATEX = str.maketrans(
    {char: f"\\{char}" for char in "&%$#_{}"}
    | {char: f"\\text{name}{{}}" for char, name in {"\\": "backslash", "~": "asciitilde", "^": "asciicircum"}.items()}
    | {char: f"\\text{name}{{}}" for char, name in {"<": "less", ">": "greater", "|": "bar", "…": "ellipsis"}.items()}
    | {char: f"$\\{name}$" for char, name in {"±": "pm", "×": "times", "·": "cdot", "→": "rightarrow"}.items()}
    | {char: f"$\\{name}$" for char, name in {"≥": "ge", "≤": "le", "µ": "mu", "Δ": "Delta"}.items()}
    | {"−": "$-$", "²": "$^2$", "³": "$^3$", "`": "\\textasciigrave{}"}
)


def tex_caption(text: str) -> str:
    """Return a caption for LaTeX, in one line."""
    return f"\\caption{{{latex(text.replace(chr(10), ' '))}}}"


def latex(text: str) -> str:
    """Return a text as LaTeX that prints it, in any encoding of its fonts; letters beyond ASCII stay (UTF-8)."""
    return visible(text).replace("--", "-\0-").translate(_OF_LATEX).replace("\0", "{}").replace(" \\%", "~\\%")


def sheet_of(axes: Axes | Panels) -> Figure:
    """Return the figure that holds one Axes or several."""
    from matplotlib.figure import Figure

    sheet = axes.figure
    assert isinstance(sheet, Figure)
    return sheet


J = TypeVar("J")
R = TypeVar("R")

DRAWS, COMPUTES_INTERVALS = "xdplab.figures.draw", "scipy.special"
WRITERS = {name: f"matplotlib.backends.backend_{name}" for name in ("svg", "pdf")} | {"png": "PIL.PngImagePlugin"}
"""What writes each format."""
PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when the one that began it has ended."""
COLLECTED = 100_000
"""Objects after which cycles are looked for: a figure makes as many, and to look every 700 took 7 % of the time."""


def mapped(
    draw: Callable[[J], R],
    jobs: Sequence[J],
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
    formats: Sequence[str] = (),
    intervals: bool = True,
) -> Iterator[R]:
    """Yield what ``draw`` returns of each job, in the jobs' order; by default a process draws on each CPU.

    What writes the ``formats`` is loaded once for all processes, and what computes ``intervals``.
    ``progress`` is told how many jobs are done. An error of a job is raised in its turn; no job begins after it, or
    after an interrupt. Raises HostError if a process is killed.
    """
    processes = min(processes or len(os.sched_getaffinity(0)), len(jobs))
    if processes > 1:  # forked, a process has the libraries, the jobs, and what `draw` holds, already
        load_libraries(formats, intervals=intervals)
    for count, drawn in enumerate(map(draw, jobs) if processes < 2 else _forked(draw, jobs, processes), 1):
        if progress is not None:
            progress(count)
        yield drawn


def load_libraries(formats: Sequence[str], *, intervals: bool) -> None:
    """Load what draws, and writes the ``formats``; with ``intervals`` what computes them."""
    with _without_help():
        for name in (DRAWS, *[COMPUTES_INTERVALS] * intervals, *(WRITERS[name] for name in formats)):
            importlib.import_module(name)


@contextmanager
def _without_help() -> Iterator[None]:
    """Let matplotlib make no help on what its artists can be set to, unless a notebook's reader may ask for it.

    It took a third of the CPU time of loading matplotlib, which has no option for it.
    """
    if "IPython" in sys.modules:
        yield
        return
    artist: Any = importlib.import_module("matplotlib.artist").Artist
    usual = artist.__dict__["_update_set_signature_and_docstring"]
    artist._update_set_signature_and_docstring = classmethod(lambda _: None)
    try:
        yield
    finally:
        artist._update_set_signature_and_docstring = usual


def _forked(draw: Callable[[J], R], jobs: Sequence[J], processes: int) -> Iterator[R]:
    context, workers = get_context("fork"), dict[Any, Any]()
    places, done = iter(range(len(jobs))), dict[int, tuple[Any, Exception | None]]()
    try:
        for _ in range(processes):
            near, far = context.Pipe()
            worker = context.Process(target=_work, args=(draw, jobs, far), daemon=True)
            worker.start()
            workers[near] = worker
            far.close()
            near.send(next(places))
        for place in range(len(jobs)):
            while place not in done:
                ready: Any = wait(workers)
                for end in ready:
                    number, *result = _received(end)
                    done[number] = (result[0], result[1])
                    if (following := next(places, None)) is not None:
                        end.send(following)
            drawn, error = done.pop(place)
            if error is not None:
                raise error
            yield drawn
    finally:  # what is in hand is completed: no file stays half written
        for end, worker in workers.items():
            with suppress(OSError):
                end.send(None)
            worker.join()


def _received(end: Any) -> Any:
    try:
        return end.recv()
    except (EOFError, OSError):
        raise HostError(
            "a process that drew figures was killed", remedy="`free` tells how much memory is left"
        ) from None


def _work(draw: Callable[[J], R], jobs: Sequence[J], end: Connection) -> None:
    """Draw what is asked for. A worker ends with the process that began it, to which alone Ctrl-C is said."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    gc.freeze()
    gc.set_threshold(COLLECTED)
    while (place := end.recv()) is not None:
        try:
            end.send((place, draw(jobs[place]), None))
        except Exception as error:  # noqa: BLE001 - raised in its turn
            error.add_note(traceback.format_exc())
            end.send((place, None, error))
