"""What the Tab key may put in: of the command line, asked by bash, zsh and fish.

A key waits for at most 80 ms, and loading the commands takes longer. So their words are in a table that is made from
them once (`xdplab.cli.words`) and kept in the user's cache until the code changes. Runs, plans, labs, kernels and tags
are looked for on the disk. Where there is nothing to offer, the shell offers files.
"""

from __future__ import annotations

import glob
import importlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from xdplab.resources import newest

ASKED = "_XDPLAB_COMPLETE"
"""``SHELL_source`` prints what a shell must know; ``SHELL_complete`` answers it, for the line up to the cursor."""
LINE, BREAKS = "_XDPLAB_LINE", "_XDPLAB_BREAKS"
OPEN = ("/", "=", ",", ":")
"""Ends after which a word goes on: no blank follows."""

SCRIPTS = {
    "bash": """\
_xdplab_completion() {
    mapfile -t COMPREPLY < <(_XDPLAB_COMPLETE=bash_complete _XDPLAB_LINE="${COMP_LINE:0:COMP_POINT}" \\
        _XDPLAB_BREAKS="$COMP_WORDBREAKS" "$1" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *[/=,:] ]] || compopt -o nospace
}
complete -o bashdefault -o default -o nosort -F _xdplab_completion xdplab
""",
    "zsh": """\
#compdef xdplab
_xdplab_completion() {
    local -a words_there
    words_there=("${(@f)$(_XDPLAB_COMPLETE=zsh_complete _XDPLAB_LINE="$LBUFFER" $words[1] 2>/dev/null)}")
    if [[ -z $words_there[1] ]]; then _files; return; fi
    compadd -S '' -- ${(M)words_there:#*[/=,:]}
    compadd -- ${words_there:#*[/=,:]}
}
compdef _xdplab_completion xdplab
""",
    "fish": """\
function __xdplab_completion
    set -lx _XDPLAB_COMPLETE fish_complete
    set -lx _XDPLAB_LINE (commandline -cp | string collect)
    xdplab 2>/dev/null
end
complete -c xdplab -a '(__xdplab_completion)'
""",
}

Table = dict[str, Any]
Offer = Callable[[str], Iterator[str]]
"""Yields what can stand in the place of a word that has been begun."""


def answer(request: str) -> None:
    """Print a shell's script, or what can follow on its line."""
    shell, _, wanted = request.partition("_")
    if wanted == "source" and shell in SCRIPTS:
        sys.stdout.write(SCRIPTS[shell])
        return
    *before, begun = _words(os.environ.get(LINE, ""))
    whole = candidates([*before[1:], begun], table())
    cut = max((begun.rfind(mark) + 1 for mark in ":=" if mark in os.environ.get(BREAKS, "")), default=0)
    sys.stdout.writelines(f"{word[cut:]}\n" for word in whole)  # bash replaces what follows its own mark


def _words(line: str) -> list[str]:
    """Return the words of a line; the last one is being typed, and may be empty or have an open quote."""
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return words if line.strip() and not line[-1].isspace() else [*words, ""]
    return ["", ""]


def candidates(words: Sequence[str], table: Table) -> list[str]:
    """Return what can stand in the place of the last word, after the others; nothing where it is a file's name."""
    *before, begun = words
    node: dict[str, Any] = table["command"]
    given: list[str] = []
    wanted: list[Any] = []
    for word in before:
        if wanted:
            wanted = wanted[1:]
        elif word.startswith("-") and word != "-":
            wanted = [] if "=" in word else node["options"].get(word, [])
        elif word in node.get("verbs", {}):
            node, given = node["verbs"][word], []
        else:
            given.append(word)
    offers = _offers(table, given)
    if wanted:
        return _offered(wanted[0], begun, offers)
    option, equals, value = begun.partition("=")
    if equals and option in node["options"]:
        return [f"{option}={word}" for word in _offered(next(iter(node["options"][option]), ""), value, offers)]
    if begun.startswith("-"):
        return [name for name in node["options"] if name.startswith(begun)]
    if "verbs" in node:
        return [name for name in node["verbs"] if name.startswith(begun)]
    places = node["arguments"] + node["arguments"][-1:] * (len(given) if node["many"] else 0)
    return _offered(places[len(given)], begun, offers) if len(given) < len(places) else []


_IN_QUOTES = re.compile(
    r"""([\w.]+)\((?:[^()]|\([^()]*\))*?(?:(\w+)\s*=\s*)?(\{(?:[^{}]*?,)??\s*(?:["'](\w+)["']\s*:\s*)?)?"""
    r"""(?:\[[^\]]*)?["']([^"']*)$"""
)
"""A call, its keyword, a dictionary with the key, if the string is behind them, and the string as far as it is typed;
also within a list."""
_FIRST = {"lab": "lab", "open": "run", "program": "program", "plan": "", "figure": "figure", "plot": "column"}
_FIRST |= {"study": "study", "race": "program", "cost": "program"}
"""What the first argument of a notebook's verb is."""
_COMMANDS = dict.fromkeys(("figure", "plot", "over_time", "latency_cdf"), "figures")
"""The command with a verb's options, where it has another name."""
_COLUMNS = ("x", "y", "value", "metric")


def within_quotes(line: str, objects: Mapping[str, Any], results: str = "results") -> tuple[str, list[str]]:
    """Return the begun string at the end of a notebook's line, and what can stand there; ``objects`` are its names, and
    ``results`` is the folder of its runs."""
    call = _IN_QUOTES.search(line)
    if call is None:
        return "", []
    (before, _, verb), (keyword, entry, key, begun) = call[1].rpartition("."), call.groups()[1:]
    first = re.match(r"""["']?(\w*)""", line[call.end(1) + 1 :])
    things = (objects.get(before), objects.get(first[1] if first else ""))
    run = next((one for one in things if hasattr(type(one), "trials")), None)
    words = table()
    offers = _offers(words, [], results) | ({} if run is None else _of_run(run))
    if key:
        what: str | list[str] = [] if run is None or key not in run.trials else _levels(run.trials[key])
    elif entry:
        what = "factor"
    elif keyword is None:
        what = _FIRST.get(verb, "")
    else:
        what = "column" if keyword in _COLUMNS else _behind(words, verb, first[1] if first else "", keyword)
    return begun, _offered(what, begun, offers) or (_offered("column", begun, offers) if entry and not key else [])


def _of_run(run: Any) -> dict[str, Offer]:
    """Return what words of figures can be of a run in a notebook's hand."""
    return {
        "column": lambda _: map(str, run.trials),
        "factor": lambda _: iter(run.factors),
        "factors": _each(lambda _: iter(run.factors)),
        "figure": lambda _: iter(run.figures),
    }


def _levels(column: Any) -> list[str]:
    return [str(value) for value in column.dropna().unique()]


def _behind(words: Table, verb: str, first: str, keyword: str) -> str | list[str]:
    """Return what stands behind a keyword of a verb: as behind the command's option, or a factor's values."""
    command = words["command"]
    one = command["verbs"].get(_COMMANDS.get(verb, verb), {"options": {}})
    one = one.get("verbs", {}).get(first, one)  # a study
    options = command["options"] | one["options"]
    for name in (keyword, keyword.removesuffix("s"), keyword.rpartition("_")[2]):
        if wanted := options.get(f"--{name.replace('_', '-')}"):
            what: str | list[str] = wanted[0]
            return what
    values: list[str] = words["factors"].get(keyword, [])
    return values


def _offered(what: str | list[str], begun: str, offers: dict[str, Offer]) -> list[str]:
    offer = None if isinstance(what, list) else offers.get(what)
    words = what if isinstance(what, list) else offer(begun) if offer else ()
    return list(dict.fromkeys(word for word in words if word.startswith(begun)))


def _offers(table: Table, given: Sequence[str], results: str = "results") -> dict[str, Offer]:
    """Return what each kind of word can be; ``given`` are the arguments before it."""
    factors: dict[str, list[str]] = table["factors"]

    def values(begun: str) -> Iterator[str]:
        before, comma, last = begun.rpartition(",")
        name, equals, _ = last.partition("=")
        of_run = _values_in(given, name) if equals else []
        by_factor = factors | {name: of_run} if of_run else factors
        yield from (f"{before}{comma}{word}" for word in _assigned(by_factor, name if equals else None))

    return {
        "run": lambda begun: _runs(begun, results),
        "study": lambda _: iter(table["studies"]),
        "plan": lambda begun: (word for part in (table["plans"], _files(begun, ".yaml", ".yml")) for word in part),
        "program": lambda begun: (
            word for part in (table["workloads"], _files(begun, ".c", ".o", ".yaml")) for word in part
        ),
        "lab": lambda begun: (word for part in (_labs(table), _files(begun, ".yaml", ".yml")) for word in part),
        "labs": _each(lambda _: _labs(table)),
        "kernel": lambda _: _kernels(table),
        "tag": lambda _: _tags(),
        "venue": lambda _: iter(table["venues"]),
        "formats": _each(lambda _: iter(table["formats"])),
        "figure": lambda _: iter(table["figures"].get(_kind_of(given), ())),
        "factor": lambda _: iter(factors),
        "factors": _each(lambda _: iter(factors)),
        "values": values,
    }


def _each(offer: Offer) -> Offer:
    """Offer words for the last part of a list with commas."""

    def offered(begun: str) -> Iterator[str]:
        before, comma, last = begun.rpartition(",")
        return (f"{before}{comma}{word}" for word in offer(last))

    return offered


def _assigned(factors: dict[str, list[str]], name: str | None) -> Iterator[str]:
    if name is None:
        return (f"{factor}=" for factor in factors)
    return (f"{name}={value}" for value in factors.get(name, ()))


def _runs(begun: str, results: str) -> Iterator[str]:
    runs = sorted(map(os.path.dirname, glob.glob(f"{glob.escape(results)}/*/journal.jsonl")), reverse=True)
    if runs:
        yield "latest"
    folder = glob.escape(os.path.dirname(begun))
    typed = glob.glob(f"{folder}/*/journal.jsonl" if folder else "*/journal.jsonl")
    yield from (*runs, *sorted(map(os.path.dirname, typed)))


def _files(begun: str, *ends: str) -> Iterator[str]:
    """Yield the folders, and the files with these ends, that begin so."""
    for path in sorted(glob.glob(f"{glob.escape(begun)}*")):
        if os.path.isdir(path):
            yield f"{path}/"
        elif path.endswith(ends):
            yield path


def _labs(table: Table) -> Iterator[str]:
    yield from table["labs"]
    user = os.getuid()
    mine = f"{os.environ.get('XDPLAB_RUNTIME_DIR', '/run/xdplab')}/{user}"
    for folder in (mine, f"/run/user/{user}/xdplab", _cache("run")):
        for lock in glob.glob(f"{glob.escape(folder)}/*/*.lock"):
            kind, _, instance = unquote(os.path.basename(lock).removesuffix(".lock")).partition("-")
            yield kind if instance == "default" else f"{kind}:{instance}"
    yield from (f"vm:{kernel}" for kernel in _kernels(table))


def _kernels(table: Table) -> Iterator[str]:
    yield from table["kernels"]
    yield from map(os.path.basename, glob.glob(f"{glob.escape(_cache('kernels'))}/own-*"))


def _tags() -> Iterator[str]:
    for path in glob.glob("results/*/tags.txt"):
        with open(path, errors="replace") as file:
            yield from file.read().split()


def _kind_of(given: Sequence[str]) -> str:
    """Return the kind of the run that was named before."""
    if any(os.path.exists(f"{_run_named(run)}/search.json") for run in given):
        return "search"
    study = re.search(r"^study: (\S+)", _plan_of(given), re.MULTILINE)
    return study[1] if study else "traffic"


def _values_in(given: Sequence[str], factor: str) -> list[str]:
    """Return the values of a factor in the run that was named before; none if its plan does not list them."""
    if not (text := _plan_of(given)):
        return []
    yaml = importlib.import_module("yaml")
    with suppress(yaml.YAMLError, AttributeError):
        plan = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        parts = [block.get(part) or {} for block in plan.get("blocks", ()) for part in ("points", "traffic")]
        listed = [value for part in parts for value in part.get(factor) or ()]
        return [str(value) for value in listed if isinstance(value, str | int)]
    return []


def _plan_of(given: Sequence[str]) -> str:
    """Return the plan of the first run among these words; empty without one."""
    for word in given:
        with suppress(OSError), open(f"{_run_named(word)}/plan.yaml", errors="replace") as plan:
            return plan.read()
    return ""


def _run_named(word: str) -> str:
    """Return a run's folder; for ``latest``, as `xdplab.run.listing.run_named` does, the last that this user began."""
    if word != "latest" or os.path.exists(word):
        return word
    mine = [path for path in glob.glob("results/*/journal.jsonl") if os.stat(path).st_uid == os.geteuid()]
    return os.path.dirname(max(mine, key=_begun, default=""))


def _begun(journal: str) -> float:
    with suppress(OSError, ValueError, LookupError, TypeError), open(journal, errors="replace") as file:
        return float(json.loads(file.readline())["time"])
    return 0.0


def _cache(part: str) -> str:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "xdplab", part)


def table() -> Table:
    """Return the words of the commands, from the cache if they were made from this code."""
    place, code = f"{os.environ.get('XDPLAB_CACHE') or _cache('')}/completion.json", newest(os.path.dirname(__file__))
    with suppress(OSError, ValueError, LookupError, TypeError), open(place) as file:
        kept: Table = json.load(file)
        if kept["code"] == code:
            return kept
    made: Table = importlib.import_module("xdplab.cli.words").table() | {"code": code}
    importlib.import_module("xdplab.cli.words").keep(place, made)
    return made
