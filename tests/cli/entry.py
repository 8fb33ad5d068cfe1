"""Runs the command line's entry point in this process: refusals need no process of their own."""

import contextlib
import io
import sys

import click.core
import pytest

from xdplab import cli


def ending(argv: list[str]) -> tuple[int, str]:
    """Run the command line as its entry point does; return its exit code and its standard error."""
    code, _, err = ending_with_output(argv)
    return code, err


def ending_with_output(argv: list[str]) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    patch = pytest.MonkeyPatch()
    patch.setattr(sys, "argv", ["xdplab", *argv])
    patch.setattr(cli.signal, "signal", lambda *_: None)
    patch.setattr(click.core, "_detect_program_name", lambda: "xdplab")
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    with patch.context(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        else:
            code = 0
        finally:
            patch.undo()
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return code, said[0], said[1]
