"""One HTML file for a colleague: question, answer with its interval, limits, figures, tables, provenance.

It loads nothing from a network: figures are SVG images in the page, and its only script is its own. A run's content may
come from another user: jinja2 escapes all of it, and the page's content policy allows only that script. Interactive
figures (plotly: 4.7 MB per page) are left out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd

from xdplab.analysis.conclusions import Doubt, doubts, is_remark
from xdplab.analysis.summary import varying
from xdplab.analysis.verdicts import RULES_VERSION
from xdplab.errors import FigureError, NotApplicableError
from xdplab.figures.factors import FigureFiles
from xdplab.figures.outcome import Drawn
from xdplab.figures.save import save
from xdplab.figures.styles import sized
from xdplab.figures.views_traffic import compare_view
from xdplab.lazy import lazily
from xdplab.plan.model import CLAIMS_FILE, claims_room
from xdplab.run.disk import write_whole
from xdplab.run.listing import note_of
from xdplab.studies import environment, kept
from xdplab.studies.comparing import ComparedRuns
from xdplab.studies.kept import answer_of
from xdplab.studies.kind import Run
from xdplab.studies.points import ONE_MACHINE
from xdplab.studies.tables import Table
from xdplab.studies.traffic import race
from xdplab.studies.traffic.kind import is_race
from xdplab.text import visible

with lazily():
    import jinja2

HERE = Path(__file__).parent
TEMPLATE, STYLE, SCRIPT = "report.html.j2", "report.css", "report.js"
MOST_ROWS = 500
"""Rows of a table in the page; the rest is in the run."""
FACTS = ("kernel", "machine", "Model name", "s CPU(s)", "Hypervisor vendor", "driver driver", "clang", "commit")
"""Words in the name of a fact about the hosts that stands in the page; ``manifest.json`` has all."""
NOT_STATED = "not stated: ask the person who gave you this page"


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, the marks that it was drawn from, and its whole caption."""

    name: str
    svg: str
    marks: Table
    caption: list[str]


@dataclass(frozen=True)
class Part:
    """The page's content about one run."""

    name: str
    run_id: str
    """Empty for a comparison."""
    question: str
    answer: list[str]
    limits: list[str]
    place: list[tuple[str, str]]
    verdicts: dict[str, int]
    doubts: list[Doubt]
    remarks: list[str]
    pictures: list[Picture]
    absent: list[str]
    tables: list[Table]
    plan: str
    again: list[str]
    """How it is measured again: a sentence, and the commands."""
    claims: Sequence[Table] = ()


def write_report(
    runs: Sequence[Run[Any]],
    path: Path,
    *,
    sides: Sequence[str] = (),
    author: str | None = None,
    licence: str | None = None,
    margin: float,
) -> Path:
    """Write the page of one or several runs; two of one kind are compared. ``sides`` name them instead of their
    folders. Raises ResultsError."""
    parts = [part_of(run) for run in runs]
    if sides:
        parts = [replace(part, name=f"{side}: {part.name}") for part, side in zip(parts, sides, strict=True)]
    both = compared(runs, margin, sides)
    page = html(parts, both, author=author, licence=licence)
    return write_whole(path, page.encode())


def html(parts: Sequence[Part], both: Part | None, *, author: str | None = None, licence: str | None = None) -> str:
    return rendered(
        HERE / TEMPLATE,
        script=(HERE / SCRIPT).read_text(),
        parts=parts,
        both=both,
        title=", ".join(part.name for part in parts),
        versions={"xdplab": version("xdplab"), "rules": RULES_VERSION},
        bibtex=bibtex(parts, author),
        licence=licence or NOT_STATED,
        most_rows=MOST_ROWS,
    )


def rendered(template: Path, *, script: str = "", **content: Any) -> str:
    """Return a page of ours: its style is in it, and its only script; all content is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=_printable,
    )
    environment.filters |= {"cell": cell, "number": number}
    return environment.get_template(template.name).render(
        content,
        style=(HERE / STYLE).read_text(),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _printable(value: Any) -> Any:
    """A page's part: what a browser or an XML reader does not take is written out."""
    return visible(value) if type(value) is str else value


def part_of(run: Run[Any]) -> Part:
    """Return the page's content about a run."""
    rows, findings = run.rows(), run.findings()
    pictures, absent = drawn(run)
    verdicts = rows["verdict"].value_counts().to_dict() if "verdict" in rows else {}
    return Part(
        name=run.directory.name,
        run_id=run.directory.run_id,
        question=question(run, rows),
        answer=answer_of(run.directory, run).summary,
        limits=limits(run, rows),
        place=place(run, rows),
        verdicts={str(name): int(count) for name, count in verdicts.items()},
        doubts=doubts(findings),
        remarks=[f"{finding.rule}: {finding.what}" for finding in findings if is_remark(finding)],
        pictures=pictures,
        absent=absent,
        tables=list(run.tables().values()),
        plan=plan_text(run),
        again=[] if run.directory.imported else again(run),
        claims=claims(run),
    )


def claims(run: Run[Any]) -> list[Table]:
    if not ((run.directory.path / CLAIMS_FILE).exists() or getattr(run.plan, "claims", None)):
        return []
    judged = claims_room("judged")
    answers = judged.judged(run)
    return [Table(judged.summary(answers), judged.table(answers))]


def plan_text(run: Run[Any]) -> str:
    """Return the run's plan, and those beside it: what was added, or the plans whose packets were counted. These have
    modes and sizes of their own, where the request has its defaults."""
    folder = run.directory.path
    beside = (f"# {path.name}\n{_text(path)}" for path in sorted(folder.glob("plan-*.yaml")))
    return "\n".join([_text(folder / "plan.yaml"), *beside])


REQUEST = "The plan is the request; the tables have what was measured."


def again(run: Run[Any]) -> list[str]:
    """Return how a run is measured again: what is needed, and the commands. A page has no file but the plan."""
    name = run.directory.name
    compare = f"xdplab compare results/{name} latest"
    identity = f"Run identity {run.directory.run_id}, kind {run.kind.name}."
    if (run.directory.path / "files").is_dir():
        request = f"{REQUEST} It" if run.kind.planning else "The plan"
        first = f"{request} names files that are in the run and not in this page: take the run's bundle"
        return [f"{first}, {name}.zip, which `xdplab export` writes of it. {identity}",
                f"xdplab import bundle {name}.zip", f"xdplab run results/{name}/plan.yaml", compare]  # fmt: skip
    if run.kind.planning and (files := run.plan.request.files):
        names = f"It names {', '.join(files)}, which this page does not have: ask for it, and save the plan beside it"
        made = "The run's bundle, which `xdplab export` writes, has what was made of it."
        first = f"{REQUEST} {names} as plan.yaml. {made} {identity}"
        return [first, "xdplab run plan.yaml", compare]
    return [f"Save the plan as plan.yaml. {identity}", "xdplab run plan.yaml", compare]


def question(run: Run[Any], rows: pd.DataFrame) -> str:
    """Return the question: the run's note if it has one, else what its plan varies."""
    if note := note_of(run.directory.path):
        return note
    if run.kind.planning:
        return run.kind.planning.question
    if run.kind.name == "search":
        return "Which load do these points carry without loss, and with little?"
    if is_race(run):
        a, b = race.race_names(run.directory)
        return f"Which is faster, {a} or {b}?"
    names = [] if rows.empty else [name.replace("_", " ") for name in varying(rows)]
    if not names:
        return "How fast are these frames forwarded?"
    return f"How does forwarding depend on {', '.join(names)}?"


def limits(run: Run[Any], rows: pd.DataFrame) -> list[str]:
    """Return what the run does not show. Verdicts of a study, such as the verifier's, are results."""
    texts = [run.kind.planning.not_shown if run.kind.planning else ONE_MACHINE]
    kinds = set(rows["arrangement"].dropna()) if "arrangement" in rows else set()
    if "shared" in kinds:
        texts.append(
            "Sender, DUT and receiver share CPUs (a closed loop): rates are costs of work, no NIC's, and loss says "
            "nothing about a DUT under overload."
        )
    if "split" in kinds:
        texts.append("The link is virtual: no NIC, no cable, no DMA took part.")
    if "slices_ratio" in rows and rows["slices_ratio"].notna().any():
        texts.append(
            "The race compared slices of a few milliseconds under one sender. The rates below are those of whole "
            "windows, which swing more: their ratio is not the answer."
        )
    if run.kind.planning is None and "verdict" in rows and (count := int((rows["verdict"] != "valid").sum())):
        texts.append(
            f"{count} of {len(rows)} trials are not valid: they are in no mean and no interval, and figures draw the "
            "invalid ones apart."
        )
    return texts


def place(run: Run[Any], rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Return where it was measured, by name."""
    rows_of_place = [("lab", ", ".join(sorted(set(rows["lab"].dropna()))))] if "lab" in rows else []
    if run.directory.imported:
        rows_of_place = [("imported from", ", ".join(map(str, run.directory.plan_data.get("sources", ()))))]
    facts = {} if run.kind.planning else run.around()
    values = {name: value for name, value in facts.items() if value and not value.startswith("absent: ")}
    shown = [(name, value.splitlines()[0]) for name, value in values.items() if name.endswith(FACTS)]
    if text := environment.summary(run.directory):
        shown.append(("measured with", text))
    return rows_of_place + shown


def drawn(run: Run[Any]) -> tuple[list[Picture], list[str]]:
    """Return the run's figures, and why the others are missing. Those of the run's folder are taken if they are
    current."""
    if (current := kept.kept_figures(run.directory)) is not None:
        return _pictures(current)
    with tempfile.TemporaryDirectory(prefix="xdplab-report-") as name:
        try:
            return _pictures(run.draw_figures(out=Path(name), formats=("svg",)))
        except FigureError as error:
            return [], [str(error)]


def _pictures(figures: Sequence[Drawn]) -> tuple[list[Picture], list[str]]:
    pictures = [picture(one.files[0]) for one in figures if one.files]
    return pictures, [f"{one.stem}: {one.reason}" for one in figures if not one.files]


def picture(path: Path) -> Picture:
    """Return a drawn figure: an SVG, the CSV of its marks and, if the figure shows only a short caption, the caption's
    file."""
    marks, whole = path.with_suffix(".csv"), path.with_suffix(".txt")
    frame = pd.read_csv(marks).dropna(axis=1, how="all") if marks.is_file() else pd.DataFrame()
    frame = frame.drop(columns=[name for name in ("figure", "file", "points") if name in frame])
    caption = whole.read_text().splitlines() if whole.is_file() else []
    return Picture(path.stem, inlined(path.read_bytes()), Table(f"Marks of {path.stem}", frame), caption)


_SVG, _LINK = "http://www.w3.org/2000/svg", "{http://www.w3.org/1999/xlink}href"
_DRAWN = {"svg", "g", "defs", "clipPath", "path", "use", "rect", "circle", "line", "polyline", "polygon", "pattern"}
_DRAWN |= {"title"}
_NAMED = re.compile(r"(series|legend)-(\d+)(?:-\d+)?")


def inlined(svg: bytes) -> str:
    """Return an SVG of ours for a page with others: shapes only, ids of its own, ``data-series`` and ``data-legend``.

    Ids begin with a sum of the figure, as two figures have shapes of the same name.
    """
    root, prefix = ElementTree.fromstring(svg), hashlib.sha256(svg).hexdigest()[:8]
    for parent in list(root.iter()):
        for child in list(parent):
            if not isinstance(child.tag, str) or child.tag.removeprefix(f"{{{_SVG}}}") not in _DRAWN:
                parent.remove(child)
    for element in root.iter():
        for name, value in list(element.items()):
            if name == _LINK or name.startswith("on") or name in ("href", "class", "id"):
                del element.attrib[name]
            if name in ("id", "class") and (match := _NAMED.fullmatch(value)):
                element.set(f"data-{match[1]}", match[2])
            elif name == "id":
                element.set("id", f"{prefix}-{value}")
            elif name in (_LINK, "href") and value.startswith("#"):
                element.set("href", f"#{prefix}-{value[1:]}")
            elif "url(#" in value:
                element.set(name, value.replace("url(#", f"url(#{prefix}-"))
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")  # matplotlib's style for all elements
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")


def compared(runs: Sequence[Run[Any]], margin: float, sides: Sequence[str] = ()) -> Part | None:
    """Return the comparison of two runs of one kind; None for any other number or for two kinds. ``sides`` name
    them."""
    if len(runs) != 2 or runs[0].kind.name != runs[1].kind.name:
        return None
    comparison: ComparedRuns = runs[0].compare(runs[1], margin=margin)
    if sides:
        comparison = comparison.named(*sides)
    picture, why = _ratios(comparison)
    points = comparison.points
    return Part(
        name=f"{comparison.names[1]} over {comparison.names[0]}",
        run_id="",
        question=f"Did {comparison.metric} change from {comparison.names[0]} to {comparison.names[1]}?",
        answer=[line.strip() for line in comparison.lines()[-3:]],
        limits=[f"Around the runs, this differs: {one.text}" for one in comparison.unlike]
        or ["Nothing that was recorded differs around the two runs."],
        place=[],
        verdicts={str(k): int(v) for k, v in points["verdict"].value_counts().items()} if "verdict" in points else {},
        doubts=[],
        remarks=[],
        pictures=picture,
        absent=why,
        tables=[Table("Points of both runs", comparison.readable)],
        plan="",
        again=[],
    )


def _ratios(comparison: ComparedRuns) -> tuple[list[Picture], list[str]]:
    if "accesses" not in comparison.points:
        return [], ["ratio: studies have no figure of it"]
    try:
        view = compare_view(comparison.points, names=comparison.names, metric=comparison.metric)
    except (FigureError, NotApplicableError) as error:
        return [], [f"ratio: {error}"]
    with tempfile.TemporaryDirectory(prefix="xdplab-report-") as name:
        return [picture(save(view, "ratio", FigureFiles(Path(name), sized(), ("svg",)))[0])], []


def cell(value: Any) -> str:
    """Return a cell as text: numbers with four digits, all digits before the point, empty for null."""
    if value is None or (not isinstance(value, (list, tuple, dict)) and pd.isna(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and abs(value) < 1e15 and (value.is_integer() or abs(value) >= 9999.5):
        return f"{value:.0f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def number(value: Any) -> str:
    """Return what a cell is sorted by, as text: its number, alone or before its interval; nothing for words."""
    text = re.split(r" ± | [(\[]", cell(value))[0].replace("−", "-")
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+", text):
        text = text.replace(",", "")
    try:
        return repr(float(text))
    except ValueError:
        return ""


def bibtex(parts: Sequence[Part], author: str | None) -> str:
    """Return an entry for the page's runs; characters that BibTeX would read are taken out."""

    def plain(text: str) -> str:
        return "".join(char for char in text if char not in '{}\\%$#&~^"\n\r')

    titles = plain(", ".join(part.name for part in parts))
    ids = ", ".join(plain(part.run_id) for part in parts)
    year = datetime.now(UTC).year
    lines = [
        f"@misc{{xdplab-{plain(parts[0].run_id) or 'run'},",
        f"  title = {{XDP measurements: {titles}}},",
        f"  author = {{{plain(author or 'author not stated')}}},",
        f"  year = {{{year}}},",
        f"  note = {{xdplab {version('xdplab')}, rules {RULES_VERSION}, run {ids}}},",
        "}",
    ]
    return "\n".join(lines)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else json.dumps(None)
