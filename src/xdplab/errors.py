"""Errors for the user: what happened, where, what to do next."""

from __future__ import annotations

import sys
from typing import Any


class XdplabError(Exception):
    """An expected failure; the CLI prints it on one line and exits with ``exit_code``.

    ``message`` says what happened and names the field, tool or host; ``remedy`` says what to do next.
    """

    exit_code = 1

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: an expected failure is one line; after ``%xmode Verbose``, ``%tb`` shows where it was."""
        import traceback

        shell: Any = sys.modules["IPython"].get_ipython()
        if shell is None or shell.InteractiveTB.mode == "Verbose":
            whole = traceback.format_exception(self)
            return [line for part in whole for line in part.splitlines()]
        return [f"{type(self).__name__}: {self}"]


class PlanError(XdplabError):
    """A plan, a field of it, or an option cannot be used; nothing was changed."""

    exit_code = 2


class LabError(XdplabError):
    """The lab cannot be brought up, reached or taken down."""

    exit_code = 3


class MissingToolError(LabError):
    """This machine lacks a program, or KVM: every trial that needs it would fail alike, so the run ends."""


class LabInUseError(LabError):
    """Another run is using the lab."""


class HiddenSettingError(MissingToolError):
    """This network namespace hides a setting of the machine: every trial that needs it would fail alike, too."""


class HostError(LabError):
    """A command on a host failed, or the host cannot be reached."""


class KilledError(HostError):
    """A tool on a host was killed: the kernel releases what it held."""


class HostLostError(HostError):
    """A host is gone and does not come back: nothing more can be measured, so the run ends."""


class HostChangedError(HostLostError):
    """A host came back changed (kernel, settings): further trials would not be comparable with the earlier ones."""


class CutOffError(HostError):
    """A connection was lost during a trial: this says nothing about the point, which is measured again."""


class ProgramError(XdplabError):
    """An XDP program does not compile, load or prove its access count."""

    exit_code = 4


class UnsupportedError(XdplabError):
    """This lab, driver or kernel cannot do what the point asks: the point's verdict is ``unsupported``."""

    exit_code = 5


class FormatError(XdplabError):
    """A tool's output is not what its parser expects; has the file and line if known."""

    exit_code = 6


class StoppedError(XdplabError):
    """A run was stopped: nothing could be measured, for one reason."""


class ResultsError(XdplabError):
    """A run directory cannot be written, read or resumed."""

    exit_code = 7


class FigureError(XdplabError):
    """A figure cannot be drawn as asked: the message says why, the remedy what to choose."""

    exit_code = 2


class NotApplicableError(FigureError):
    """These trials have no data for this figure."""


class ResultsWarning(UserWarning):
    """A problem of a run that the user must know, but that does not prevent reading the run."""
