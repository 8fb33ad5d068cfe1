"""A user's own pair: a BPF program and a module that do the same, an event that triggers them, times to be read."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from xdplab import yaml_errors
from xdplab.compiler import find_clang
from xdplab.errors import PlanError, ProgramError
from xdplab.labs.tools import require_tools
from xdplab.trust import read_source
from xdplab.yaml_file import composed, read_yaml, yaml_words

PAIR, EVENT, BPF_OBJECT, MODULE_FOLDER = "own.json", "event", "own.bpf.o", "own-module"
MAKE_S = 120.0
MOST_BYTES = 1 << 24
_RUNS = "programs and a Makefile that run here"
_SOURCES = ("*.c", "*.h", "*.S", "Makefile", "Kbuild")


def _plain_name(text: str) -> str:
    if not re.fullmatch(r"[\w. -]+", text):
        raise ValueError("letters, digits, blank, dot, - and _ only")
    return text


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OwnBpf(_Part):
    """``directory`` with the C and a Makefile that makes ``object``; ``map``: an array of 64-bit times."""

    directory: str
    object: Annotated[str, AfterValidator(_plain_name)]
    map: Annotated[str, AfterValidator(_plain_name)]


class OwnModule(_Part):
    """``directory`` with the C and a Makefile whose ``obj-m`` is ``name``.o; ``file``: where it shows its times."""

    directory: str
    name: Annotated[str, AfterValidator(_plain_name)]
    file: str


class Pair(_Part):
    """The configuration file. ``event`` is a script that ends when both have run."""

    name: Annotated[str, AfterValidator(_plain_name)]
    bpf: OwnBpf
    module: OwnModule
    event: str


def load(path: Path) -> tuple[Pair, dict[str, bytes]]:
    """Read the configuration and build its BPF object; return it with the files a run keeps of it.

    Paths are relative to the configuration file. Raises PlanError naming the field, ProgramError with make's
    message, StrangersFileError if a file that would run belongs to another user.
    """
    try:
        source = read_source(path)
        pair = Pair.model_validate(read_yaml(source.text))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PlanError(f"{path} cannot be read: {yaml_words(error)}") from None
    except ValidationError as error:
        wrong = yaml_errors.complaint(error, "a pair", {"the pair": Pair}, composed(source.text))
        raise PlanError(f"{path}: {wrong}") from None
    source.require_trust(_RUNS)
    folder = source.folder
    module = _sources(folder / pair.module.directory, _trusted)
    files = {f"{MODULE_FOLDER}/{name}": text for name, text in module.items()}
    files[BPF_OBJECT] = _make(folder / pair.bpf.directory, pair.bpf.object)
    files[EVENT] = _trusted(folder / pair.event)
    return pair, files | {PAIR: pair.model_dump_json().encode()}


def read(folder: Path) -> Pair:
    """Return the pair whose files a run keeps in ``folder``."""
    return Pair.model_validate(json.loads((folder / PAIR).read_text()))


def module_sources(folder: Path) -> dict[str, bytes]:
    """Return the module's sources that a run keeps in ``folder``."""
    return _sources(folder / MODULE_FOLDER, _read)


def _read(path: Path) -> bytes:
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise PlanError(f"there is no file {path}, or it is larger than {MOST_BYTES >> 20} MiB")
    return path.read_bytes()


def _trusted(path: Path) -> bytes:
    """Read a file that runs here. Raises StrangersFileError if others may have written it."""
    _read(path)
    source = read_source(path)
    source.require_trust(_RUNS)
    return source.content


def _sources(folder: Path, read: Callable[[Path], bytes]) -> dict[str, bytes]:
    paths = sorted({path for pattern in _SOURCES for path in folder.rglob(pattern)})
    if not paths:
        raise PlanError(f"there is no C source in {folder}")
    return {path.relative_to(folder).as_posix(): read(path) for path in paths if not path.name.endswith(".mod.c")}


def _make(folder: Path, product: str) -> bytes:
    """Run the user's Makefile in a copy of the folder and return what it makes."""
    with tempfile.TemporaryDirectory(prefix="xdplab-own-") as name:
        work = Path(name) / "bpf"
        for relative, content in _sources(folder, _trusted).items():
            (work / relative).parent.mkdir(parents=True, exist_ok=True)
            (work / relative).write_bytes(content)
        require_tools("a pair of your own", {"make": "make"})
        argv = ["timeout", "--kill-after=5", f"{MAKE_S:g}", "make", f"CLANG={find_clang()}", product]
        done = subprocess.run(argv, cwd=work, capture_output=True, text=True, errors="replace")
        if done.returncode or not (work / product).is_file():
            last_line = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"make made no {product}"]
            raise ProgramError(f"{folder}: {product} is not made: {last_line[0]}")
        return (work / product).read_bytes()
