"""The reference that is made from the code, as Markdown pages.

``python -m xdplab.cli.pages FOLDER`` writes them; `make docs` (mkdocs.yml names this file) puts them into the site, so
no copy becomes outdated. ``--kept`` writes those that the repository holds; a test compares them with the code.
``--man`` writes the page of `man xdplab`: shell/setup.sh does so.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from xdplab.cli import EXIT_CODES, answers, cli, described
from xdplab.counters.drivers import DRIVERS
from xdplab.errors import XdplabError
from xdplab.labs.servers import host as server_host
from xdplab.labs.servers.inventory import Inventory
from xdplab.plan import Plan, reference
from xdplab.studies.kinds import STUDIES
from xdplab.studies.probe.page import drivers_page
from xdplab.studies.traffic.columns import TRIALS

SOURCE = Path(__file__).resolve().parents[1]
ELSEWHERE = ("xdplab.trust", "xdplab.analysis.intervals")
"""Modules besides `xdplab.errors` that have an error of their own."""
MADE = "Made from the code by `python -m xdplab.cli.pages docs --kept`."


def commands() -> str:
    """Every command with its help, and the exit codes that all share."""
    parts = [
        "# Commands",
        "What `--help` prints, of every command. `--lab` may stand before every verb, and after those that use a lab; "
        "`--trust` stands before the verb.",
        f"{' '.join(EXIT_CODES.split())} Measurements before Ctrl-C are kept, and the last line tells how to continue; "
        "[errors](errors.md) has each message.",
    ]
    for path, command in _tree(cli, described()):
        parts += [
            f"{'#' * (2 + path.command_path.count(' '))} {path.command_path}",
            f"```text\n{command.get_help(path)}\n```",
        ]
    return "\n\n".join(parts) + "\n"


def _tree(command: click.Command, context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    yield context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _tree(inner, click.Context(inner, info_name=name, parent=context, max_content_width=100))


def manual() -> str:
    """Return the help of every command as a page for `man`: roff, with the macros of man(7)."""
    parts = [
        f'.TH XDPLAB 1 "" "xdplab {version_of("xdplab")}"',
        ".SH NAME",
        "xdplab \\- an XDP testbed with trustworthy numbers",
    ]
    for path, command in _tree(cli, described()):
        help_lines = command.get_help(path).replace("\\", "\\e").replace("-", "\\-").splitlines()
        shown = (f"\\&{line}" if line.startswith((".", "'")) else line for line in help_lines)
        parts += [f".SH {path.command_path.upper()}", ".nf", *shown, ".fi"]
    return "\n".join(parts) + "\n"


def errors() -> str:
    """Every kind of error with its exit code and meaning, then every message with its remedy, by kind."""
    kinds = _kinds()
    parts = [
        "# Errors and exit codes",
        "An expected failure is one line: what happened, where, and in brackets the remedy.",
    ]
    rows = [(f"[`{kind.__name__}`](#{kind.__name__.lower()})", str(kind.exit_code), _first(kind)) for kind in kinds]
    parts.append(_table(("error", "exit code", "meaning"), rows))
    parts.append("`…` stands for a file, a host or a value that the message names.")
    raised = _raised({kind.__name__ for kind in kinds})
    for kind in kinds:
        parts += [f"## {kind.__name__}", f"{_first(kind)} Exit code {kind.exit_code}."]
        places = [row for name, *row in raised if name == kind.__name__]
        if places:
            parts.append(_table(("message", "remedy", "raised in"), places))
    return "\n\n".join(parts) + "\n"


def _kinds() -> list[type[XdplabError]]:
    for module in ELSEWHERE:
        importlib.import_module(module)
    kinds = [XdplabError]
    for kind in kinds:
        kinds += [under for under in kind.__subclasses__() if under not in kinds]
    return sorted(kinds, key=lambda kind: (kind.exit_code, kind.__name__))


def _raised(names: set[str]) -> list[tuple[str, str, str, str]]:
    """Return error, message, remedy and file of every place in the source that makes one of the errors named."""
    errors = set()
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names and node.args:
                remedy = next((_text_of(word.value) for word in node.keywords if word.arg == "remedy"), "")
                message = _text_of(node.args[0])
                if message.strip("… "):
                    errors.add((node.func.id, message, remedy, f"`{path.relative_to(SOURCE)}`"))
    return sorted(errors)


def _text_of(node: ast.expr) -> str:
    """A message as in the source, with ``…`` for the values that are filled in when it is raised."""
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.IfExp):
        return " / ".join(filter(None, (_text_of(node.body), _text_of(node.orelse))))
    return "…"


def inventory() -> str:
    """Every key of an inventory file."""
    text = "Keys of an inventory file ([real servers](../use/servers.md)); [the JSON schema](inventory.schema.json)."
    return f"# Inventory\n\n{text}\n\n{_schema(Inventory.model_json_schema())}"


def json_answers() -> str:
    """What ``--json`` prints, by verb."""
    parts = ["# JSON answers", "The output that scripts may rely on."]
    for verb in answers.ANSWERS:
        parts += [f"## xdplab {verb.replace('-', ' ')} --json", f"[JSON schema](schemas/{verb}.schema.json)"]
        parts.append(_schema(answers.schema(verb), level=3))
    return "\n\n".join(parts) + "\n"


def _schema(schema: Mapping[str, Any], *, level: int = 2) -> str:
    """Return a table of keys for each object of a JSON schema."""
    parts = []
    for name, part in [(schema.get("title", ""), schema), *schema.get("$defs", {}).items()]:
        rows = [
            (f"`{key}`", _type(value), _default(key, value, part), value.get("description", ""))
            for key, value in part.get("properties", {}).items()
        ]
        if rows:
            parts += [f"{'#' * level} {name.strip('_')}", part.get("description", "").replace("``", "`")]
            parts.append(_table(("key", "type", "default", "meaning"), rows))
    return "\n\n".join(filter(None, parts)) + "\n"


def _type(value: Mapping[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"].rpartition("/")[2].strip("_"))
    if "anyOf" in value or "oneOf" in value:
        return " or ".join(dict.fromkeys(map(_type, value.get("anyOf") or value["oneOf"])))
    if "enum" in value or "const" in value:
        return ", ".join(f"`{one}`" for one in value.get("enum", [value.get("const")]))
    if value.get("type") == "array":
        return f"list of {_type(value.get('items', {}))}"
    return str(value.get("type", "any"))


def _default(key: str, value: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    if key in part.get("required", []):
        return "required"
    return f"`{value['default']}`" if value.get("default") is not None else ""


def _table(header: tuple[str, ...], rows: Any) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(c.replace("|", "\\|").replace("<", "&lt;").split()) for c in row) + " |"
        for row in lines
    )


def _first(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].replace("``", "`").split())


def columns() -> str:
    """Every column of trials.parquet; kept in the repository."""
    text = (
        "The table has one row per attempt that ended. A value that was not measured is null: `null_reasons` says why. "
        "For a trial that failed or is unsupported, `reason` says why. A factor that does not apply to a point is null."
        "\n\n`python tests/run/recomputed.py RUN` recomputes 86 of these columns from a run's raw files without xdplab."
    )
    parts = ["# Columns of trials.parquet", MADE, text]
    for heading, table in TRIALS.items():
        rows = [(f"`{column.name}`", column.unit, column.kind, column.text) for column in table]
        parts.append(f"## {heading}\n\n{_table(('column', 'unit', 'kind', 'meaning'), rows)}")
    return "\n\n".join(parts) + "\n"


def factors() -> str:
    """Every factor of a plan; kept in the repository."""
    text = (
        "Each factor of `points` and `traffic` takes one value or a list, and is a column of trials.parquet. Points "
        "that differ in a factor stay apart in every average, ratio and figure. `--only NAME=VALUE` selects points, "
        "and the notebook's `xl.plan(…)` takes the same names. A user's program (`points.program: {file: …}`) has its "
        "own factors instead of those of a workload. `xdplab plan --factors` prints this table."
    )
    return f"# Factors\n\n{MADE}\n\n{text}\n\n{reference.table()}\n"


def nic_counters() -> str:
    """What the driver of the DUT's port counts; kept in the repository."""
    header = ("driver", "read in kernels", "sent back by XDP", "what a program decided", "tried", "functions read")
    rows = [
        (
            row.name,
            row.kernels,
            "driver" if row.sent else "link",
            "yes" if row.tx and row.drop and row.redirect else "no",
            row.tried or "from source, untried",
            row.source,
        )
        for row in DRIVERS
    ]
    return f"# What a NIC's driver counts\n\n{MADE}\n\n{_NIC_COUNTERS}\n\n{_table(header, rows)}\n"


_NIC_COUNTERS = """\
In native mode, the DUT's driver counts its frames per receive queue, whatever the program decides about them. Names
and meanings come from the sources of the kernels in the table; the names that are there choose the row. `lost` has
what found no place in the port and none in a queue, as far as the driver prints them. If no counter shows the
program's decisions, the reason of each trial says so.

For ice, "driver" means a counter of the NIC: in 6.1 and 6.12, the driver adds XDP's frames to the link's statistics
only when less than a quarter of the ring is unused. Counts of bnxt_en can be 2 s old, those of the link of sfc and
atlantic 1 s: readings at rest wait that long, and half a second more. stmmac calls itself `st_gmac`.

For a driver without a row, xdplab uses the link's statistics if these count XDP's frames. If they do not, the verdict
rests on one count, and reason and figures say "one count only"."""


def server_commands() -> str:
    """What runs as root on a server of an inventory; kept in the repository."""
    text = "`xdplab lab sudoers rack.yaml` prints the drop-in for sudo that allows exactly these."
    return f"# Commands that run as root on a server\n\n{MADE}\n\n{text}\n\n{server_host.page()}"


def study_columns() -> str:
    """The columns of each study's table."""
    parts = [
        "# Columns of the studies",
        MADE,
        "A study's folder holds one table. A value that was not measured is null: `null_reasons` (JSON) says why.",
    ]
    for study in STUDIES:
        rows = importlib.import_module(f"xdplab.studies.{study}.rows").COLUMNS
        parts += [f"## {study}.parquet", _table(("column", "meaning"), [(f"`{row.name}`", row.text) for row in rows])]
    return "\n\n".join(parts) + "\n"


def drivers() -> str:
    """What drivers can do, by probes of their ports; kept in the repository."""
    return drivers_page(SOURCE.parents[1] / "docs" / "results" / "probes")


PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands,
    "reference/errors.md": errors,
    "reference/inventory.md": inventory,
    "reference/answers.md": json_answers,
}
KEPT: dict[str, Callable[[], str]] = {
    "reference/inventory.schema.json": lambda: _published(Inventory),
    "reference/plan.schema.json": lambda: _published(Plan),
    "reference/columns.md": columns,
    "reference/factors.md": factors,
    "reference/nic-counters.md": nic_counters,
    "reference/root-commands.md": server_commands,
    "reference/study-columns.md": study_columns,
    "results/drivers.md": drivers,
}
"""Pages that a reader of the plain repository needs; `python -m xdplab.cli.pages docs --kept` writes them anew."""


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site's files; MkDocs calls this."""
    from mkdocs.structure.files import File

    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    return files


def _published(model: type[BaseModel]) -> str:
    return json.dumps(model.model_json_schema(), indent=1) + "\n"


if __name__ == "__main__":
    made = {"--kept": KEPT, "--man": {"man1/xdplab.1": manual}}.get("".join(sys.argv[2:]), PAGES)
    for page, text in made.items():
        path = Path(sys.argv[1]) / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text())
