"""All messages that a person reads are in one file, `messages.txt`: a transcript, whose lines with `$` are carried out.

    python -m tests.cli.messages        carries them out, and writes the file anew: read its difference as a user will

`$ xdplab …` is a command line, `$ write FILE TEXT` and `$ change FILE PLACE: VALUE` write a file, the second with one
value other than in the good file; null takes it out. To add a message, add its command line and write the file anew.
Other tests assert an error's class, its exit code and the fact in it.
"""

import copy
import json
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from tests.cli.entry import ending_with_output
from tests.oracle.derive import SAMPLE, at

from xdplab.plan import load_plan
from xdplab.studies.execution.points import ExecutionRequest, smallest
from xdplab.studies.kinds import kind_named
from xdplab.studies.traffic.run_files import create_run

KEPT = Path(__file__).with_suffix(".txt")
HEADING, LINE = "==== ", "$ "
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0pPPGpbV1zQq2aR3o5u1Cp2dJkzFyy0uK3q8oJ1bYk"
MACHINE = {"host": "192.0.2.1", "key": "k", "host_key": HOST_KEY}
GOOD: dict[str, dict[str, Any]] = {
    "plan.yaml": {"name": "p", "blocks": [{"points": {"accesses": [0, 10]}}]},
    "lab.yaml": {
        "dut": MACHINE | {"interface": {"pci": "0000:3b:00.0", "mac": "00:15:4d:00:00:01"}},
        "tg": MACHINE | {"interface": {"pci": "0000:3b:00.1", "mac": "00:15:4d:00:00:02"}},
    },
}
"""Files that are as they should be; each heading of the transcript has them anew."""
OTHERS = {"empty.yaml": "", "word.yaml": "plan", "study.yaml": "study: jit\n", "archive.zip": "PK\x03\x04nothing"}


def written() -> str:
    """Return the transcript, with what each of its lines says now."""
    slow = patch("xdplab.text.SOON_S", 600.0)  # a machine at work names a step that takes long, another does not
    with slow, tempfile.TemporaryDirectory(prefix="xdplab-messages-") as name, at(Path(name)):
        prepare()
        return "".join(_carried_out(KEPT.read_text().splitlines()))


def prepare() -> None:
    """Make what the lines name: runs that have not begun or are damaged, and files of all sorts."""
    _write_good_files()
    make_places(Path())
    kind_named("execution").start(smallest(ExecutionRequest()), Path()).directory.path.rename("study")
    shutil.copytree(SAMPLE, "sample")
    for name, text in OTHERS.items():
        Path(name).write_text(text)


def make_places(folder: Path) -> None:
    """Make what no verb can go on with: runs of its ``plan.yaml`` that have not begun or are damaged, and no runs."""
    plan = load_plan(folder / "plan.yaml")
    for name in ("run", "cut", "torn", "foreign"):
        made = create_run(plan.model_copy(update={"name": name}), folder, lab="netns:none", arrangement="shared")
        made.path.rename(folder / name)
    (folder / "cut" / "plan.yaml").unlink()
    (folder / "torn" / "journal.jsonl").write_text('{"event": "planned"}\n[]\n{"event"')
    (folder / "foreign" / "journal.jsonl").write_bytes(bytes(range(256)))
    (folder / "loop").symlink_to("loop")
    (folder / "directory").mkdir()


def _write_good_files() -> None:
    for name, content in GOOD.items():
        Path(name).write_text(yaml.safe_dump(content))


def _carried_out(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith(HEADING):
            _write_good_files()
            yield f"{line}\n\n"
        elif line.startswith(LINE):
            yield f"{line}\n{_said(*line.removeprefix(LINE).split(maxsplit=1))}"


def _said(verb: str, words: str) -> str:
    if verb == "xdplab":
        code, out, err = ending_with_output(shlex.split(words))
        return f"{out}{err}" + (f"exit code {code}\n\n" if code else "\n")
    name, words = words.split(maxsplit=1)
    if verb == "change":
        place, _, value = words.partition(": ")
        Path(name).write_text(yaml.safe_dump(changed(GOOD[name], place, json.loads(value))))
    else:
        Path(name).write_text(json.loads(words))
    return ""


def changed(content: dict[str, Any], place: str, value: object) -> dict[str, Any]:
    """Return the content of a file in which the value at a place (`blocks.0.points`) is another; None: is not there."""
    *parents, last = (int(word) if word.isdigit() else word for word in place.split("."))
    content = copy.deepcopy(content)
    inner: Any = content
    for key in parents:
        inner = inner[key]
    inner[last] = value
    if value is None:
        del inner[last]
    return content


if __name__ == "__main__":
    KEPT.write_text(written())
