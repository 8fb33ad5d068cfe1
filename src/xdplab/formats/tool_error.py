"""What a C tool's error line says: its message, and the end of the log (verifier, driver, libbpf) that explains it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import dropwhile, takewhile

_INSTRUCTION = re.compile(r"[0-9]+: |; |from [0-9]+ to ")
_WORK = re.compile(
    r"(?:frame\d+: )?(?:[Rr]\d+|fp-?\d+)(?:_\w+)?=|mark_precise: |last_idx \d+ first_idx|regs=\w* stack=|"
    r"parent (?:didn't have|already had) regs=|(?:cur|old) state:|(?:caller|callee|returning from callee):$|"
    r"to caller at \d+:|func#\d+ @|Func#\d+ |frame ?\d+: propagating |propagating |Validating .* func#\d+"
)
"""What the verifier says of its own work, at levels 1 and 2 (kernel/bpf/verifier.c of 6.1 and 6.12)."""

_STATISTIC = re.compile(r"processed |insns processed |verification time|stack depth")
_REPEATED = re.compile(r"libbpf: (prog |failed to load object|Error in bpf_create_map|map ')|-- END PROG LOAD LOG")
"""libbpf's messages that only repeat the error number."""

MOST_WORDS = 3
"""How many of a log's last lines are quoted."""

_KERNEL = "libbpf: Kernel error message: "


_SOURCE = re.compile(r"; (?P<text>.*?)(?: @ (?P<place>\S+:\d+))?$")


def last_words(log: str) -> str:
    """Return why a load failed, from the log of verifier, driver or libbpf: its last three lines at most, on one.

    Lines before the last instruction are skipped, as are the verifier's work, statistics, repetitions of the error
    number, and a source line after the complaint.
    """
    return "; ".join(reversed(_ending(log)[0][:MOST_WORDS]))


def refused_line(log: str) -> str:
    """Return the source line that the verifier looked at last before it refused: ``mine.bpf.c:9: `*value += 1;` ``.

    Kernels before 6.10 give no file and number. Empty if the log has no complaint, or the object no debug information.
    """
    ending, before = _ending(log)
    source = next((match for line in before if (match := _SOURCE.match(line))), None)
    if source is None or not ending:
        return ""
    return f"{source['place']}: `{source['text']}`" if source["place"] else f"`{source['text']}`"


def _ending(log: str) -> tuple[list[str], Sequence[str]]:
    """Return the lines behind the last instruction, and those before, each from the log's end on."""
    lines = [line.strip().removeprefix(_KERNEL) for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if not any(skipped.match(line) for skipped in (_STATISTIC, _REPEATED, _WORK))]
    backwards = list(dropwhile(lambda line: line.startswith("; "), reversed(telling)))
    ending = list(takewhile(lambda line: not _INSTRUCTION.match(line), backwards))
    return ending, backwards[len(ending) :]


def message_of(error: Mapping[str, object]) -> str:
    """Return the error of a C tool's error line: its message, the last lines of its log if it has one, and the source
    line that was refused."""
    log = error.get("log")
    if not isinstance(log, str):
        return str(error.get("message"))
    parts = ": ".join(part for part in (str(error.get("message")), last_words(log)) if part)
    return f"{parts}, at {line}" if (line := refused_line(log)) else parts
