"""Short commands of one host by one request: over SSH each request costs milliseconds, and a long line's delay."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence

from xdplab.errors import HostError
from xdplab.hosts.base import Host, Result, spoken

# Each command's output goes straight to standard output; its exit code and its errors follow, between two marks.
_ASK = """\
ask() {
    { said=$("$@" 2>&1 >&3 3>&-); code=$?; } 3>&1 </dev/null
    printf '\\n%s %s\\n%s\\n%s\\n' "$mark" "$code" "$said" "$mark"
}
"""


def run_together(host: Host, commands: Sequence[Sequence[str]], *, deadline_s: float = 30.0) -> list[Result]:
    """Run commands one after another, each to its end and with an empty standard input; return each one's result.

    A result's duration is that of all. Raises HostError if the host cannot be asked, or if they have not all ended
    after ``deadline_s``: it names the one that had not.
    """
    if not commands:
        return []
    mark = secrets.token_hex(8)
    lines = [f"mark={mark}", _ASK, *(f"ask {shlex.join(argv)}" for argv in commands)]
    shown = host.run(["sh", "-c", "\n".join(lines)], deadline_s=deadline_s, check=False)
    # By turns what a command printed, and its exit code with its errors.
    parts = (b"\n" + shown.stdout).split(b"\n" + mark.encode())
    ends = [part[1:].split(b"\n", 1) for part in parts[1:-1:2]]
    answers = [(output[1:], code, error) for output, (code, error) in zip(parts[::2], ends, strict=False)]
    if len(answers) < len(commands):
        if shown.timed_out:
            raise HostError(f"{host.name}: `{spoken(commands[len(answers)])}` passed its deadline")
        raise shown.require().nonsense()
    return [
        Result(host.name, tuple(argv), int(code), output, error, shown.duration_s)
        for argv, (output, code, error) in zip(commands, answers, strict=True)
    ]
