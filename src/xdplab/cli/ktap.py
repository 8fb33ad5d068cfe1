"""What ``--format ktap`` prints: KTAP, version 1, the output of the kernel's tests (Documentation/dev-tools/ktap.rst).

A case is a trial of a run, and whatever its command answers beyond: a claim, a control, a packet against its baseline.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from xdplab.cli.common import INTERRUPTED
from xdplab.errors import LabError, UnsupportedError
from xdplab.run.state import AnyTrial, Attempt, RunState
from xdplab.text import visible

FAIL, SKIP = 1, 4
"""Exit codes of the kernel's tests: tools/testing/selftests/kselftest.h."""

_BY_CASES = (0, 2, UnsupportedError.exit_code)
"""Exit codes with which a command has answered; 2: undecided, not comparable, or not to be told."""

Result = Literal["ok", "not ok", "skip"]


@dataclass(frozen=True)
class KtapCase:
    """What one test says; ``detail``: what was measured, or why it failed or was skipped."""

    name: str
    result: Result
    detail: str = ""

    def lines(self, number: int) -> list[str]:
        """Return the lines of the case; a ``#`` in its name would begin a directive."""
        name, detail = _line(self.name).replace("#", "no. "), _line(self.detail)
        if self.result == "skip":
            return [f"ok {number} {name} # SKIP {detail}".rstrip()]
        return [*([f"# {name}: {detail}"] if detail else []), f"{self.result} {number} {name}"]


def _line(text: str) -> str:
    return " ".join(visible(text).split())


class KtapCases:
    """The cases of a command; as an `Observer` it adds each trial that ends. The last attempt of a trial counts."""

    def __init__(self) -> None:
        self._trials: dict[str, KtapCase] = {}
        self._code: int | None = None

    def started(self, state: RunState, trial: AnyTrial) -> None:
        """Print nothing."""

    def finished(self, trial: AnyTrial, attempt: Attempt) -> None:
        good: Result = "skip" if attempt.status == "unsupported" else "not ok" if attempt.reason else "ok"
        name = f"{trial.point}, repetition {trial.repetition}"
        self._trials[trial.trial_id] = KtapCase(name, good, attempt.reason or "")

    def interrupted(self, how: str) -> None:
        """Print nothing."""

    def ended(self, state: RunState) -> None:
        """Print nothing."""

    def exit_code(self, code: int) -> int:
        """Return the exit code of a test of the kernel: what the cases say, or what ``code`` of xdplab means.

        Cases that all passed do not hide that trials are missing, or that an error came behind them.
        """
        if code == INTERRUPTED:
            return code
        if self._code is not None:
            return self._code if code in _BY_CASES else FAIL
        return 0 if code == 0 else SKIP if code in (LabError.exit_code, UnsupportedError.exit_code) else FAIL

    def text(self, more: Iterable[KtapCase]) -> str:
        """Return all cases: the trials, then ``more``."""
        cases = [*self._trials.values(), *more]
        results = {case.result for case in cases}
        self._code = FAIL if "not ok" in results else SKIP if results == {"skip"} else 0
        lines = [line for number, case in enumerate(cases, 1) for line in case.lines(number)]
        return "\n".join(["KTAP version 1", f"1..{len(cases)}", *lines])
