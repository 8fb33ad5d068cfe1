"""jitbench's output: a line about the kernel, then one for each program or filter that it ran."""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.formats.reading import as_list, as_object, count_field, json_of, lines_of, number_field, refuse, text_field

TOOL = "jitbench"


@dataclass(frozen=True)
class JitTiming:
    """One program. ``ns`` has one entry per round: the time of ``times`` runs together, in nanoseconds of that clock.

    ``failed`` says what did not work, and why; ``ns`` is empty then. Sizes are null for classic filters. ``passed``:
    packets of the last round that all its packet sockets together let through; null where it has none.
    ``policy_requested``, ``policy``: the scheduling policy that it asked for, and the one that it then had.
    """

    name: str
    insns: int
    verdict: int
    xlated_bytes: int | None
    jited_bytes: int | None
    times: int
    ns: tuple[int, ...]
    failed: str | None
    passed: int | None = None
    policy_requested: str | None = None
    policy: str | None = None

    @property
    def per_run(self) -> float:
        """The minimum of the rounds, per run: other work of the machine only adds time."""
        return min(self.ns) / self.times

    @property
    def unsteady(self) -> float:
        """The distance of the first quartile of the rounds from the minimum, per run: the noise of a difference."""
        return (sorted(self.ns)[len(self.ns) // 4] - min(self.ns)) / self.times


@dataclass(frozen=True)
class JitBench:
    """``compiles``: whether the kernel compiled what was loaded while this ran."""

    compiles: bool
    subjects: dict[str, JitTiming]


def parse_jitbench(data: bytes | str) -> JitBench:
    """Return the output of one call of jitbench. Raises FormatError."""
    lines = [as_object(json_of(line, TOOL, line=at), TOOL, line=at) for at, line in enumerate(lines_of(data, TOOL), 1)]
    compiles = lines[0].get("compiles")
    if lines[0].get("type") != "kernel" or not isinstance(compiles, bool):
        refuse(TOOL, "it does not begin with a word on the kernel", line=1)
    subjects = [_subject(fields, at) for at, fields in enumerate(lines[1:], 2)]
    return JitBench(compiles, {subject.name: subject for subject in subjects})


def _subject(fields: dict[str, object], line: int) -> JitTiming:
    ns = tuple(as_list(fields.get("ns"), TOOL))
    if not all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in ns):
        refuse(TOOL, "a round without a time", line=line)
    failed = _failure(fields, line)
    if (failed is None) != bool(ns):
        refuse(TOOL, "neither rounds nor a reason, or both", line=line)
    return JitTiming(
        name=text_field(fields, "name", TOOL, line=line),
        insns=count_field(fields, "insns", TOOL, line=line),
        verdict=count_field(fields, "verdict", TOOL, line=line),
        xlated_bytes=_count_or_null(fields, "xlated_bytes", line),
        jited_bytes=_count_or_null(fields, "jited_bytes", line),
        times=max(1, int(number_field(fields, "times", TOOL, line=line))),
        ns=ns,  # type: ignore[arg-type]
        failed=failed,
        passed=_count_or_null(fields, "passed", line),
        **{name: _word(fields, name, line) for name in ("policy_requested", "policy")},
    )


def _count_or_null(fields: dict[str, object], key: str, line: int) -> int | None:
    return None if fields.get(key) is None else count_field(fields, key, TOOL, line=line)


def _word(fields: dict[str, object], key: str, line: int) -> str | None:
    return None if key in fields and fields[key] is None else text_field(fields, key, TOOL, line=line)


def _failure(fields: dict[str, object], line: int) -> str | None:
    """Return what failed, the system's message, and the verifier's: its last line before the statistics."""
    if fields.get("failed") is None:
        return None
    parts = [text_field(fields, "failed", TOOL, line=line)]
    if fields.get("error") is not None:
        parts.append(text_field(fields, "error", TOOL, line=line))
    if fields.get("words") is not None:
        lines = [word for word in text_field(fields, "words", TOOL, line=line).splitlines() if word.strip()]
        parts += [word for word in lines if not word.startswith("processed ")][-1:]
    return ": ".join(parts)
