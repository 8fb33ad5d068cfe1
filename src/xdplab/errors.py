"""Errors for the person at the keyboard: what happened, where, what to do next."""

from __future__ import annotations


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


class PlanError(XdplabError):
    """A plan, a field of it, or an option cannot be used; nothing was changed."""

    exit_code = 2


class LabError(XdplabError):
    """The lab cannot be brought up, reached or taken down."""

    exit_code = 3


class MissingToolError(LabError):
    """A program, or KVM, that this machine lacks: every trial that needs it would fail alike, so a run ends here."""


class LabInUseError(LabError):
    """Another run is going on in the lab."""


class HostError(LabError):
    """A command on a host failed, or the host cannot be reached."""


class HostLostError(HostError):
    """A host is gone and does not come back: nothing more can be measured, a run ends here."""


class HostChangedError(HostLostError):
    """A host came back as another one (kernel, settings): what was measured before has nothing to be joined with."""


class CutOffError(HostError):
    """A connection was lost under a trial: it says nothing of the point, which is measured again."""


class ProgramError(XdplabError):
    """An XDP program does not compile, load or prove its access count."""

    exit_code = 4


class UnsupportedError(XdplabError):
    """This lab, driver or kernel cannot do what the point asks: the point's verdict is ``unsupported``."""

    exit_code = 5


class FormatError(XdplabError):
    """A tool's output is not what its parser expects; carries the file and line where known."""

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
    """These trials hold nothing for this figure."""


class ResultsWarning(UserWarning):
    """Something about a run that a reader must know and that does not keep it from being read."""
