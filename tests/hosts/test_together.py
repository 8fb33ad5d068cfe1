"""Several commands by one request have the results that each has by a request of its own."""

import pytest

from xdplab.errors import HostError
from xdplab.hosts import Host, run_together

COMMANDS = (
    ("echo", "two  words", "it's", "$HOME", "*"),
    ("printf", "no newline"),
    ("printf", "\n\nlines\n\n"),
    ("sh", "-c", "echo out; echo wrong >&2; exit 3"),
    ("sh", "-c", "kill -9 $$"),
    ("cat",),  # its input is empty
    ("true",),
    ("printf", "\\377\\000\\n"),
)


def test_each_result_is_that_of_a_request_of_its_own(host: Host) -> None:
    together = run_together(host, COMMANDS)
    for command, result in zip(COMMANDS, together, strict=True):
        alone = host.run(command, check=False)
        killed = alone.exit_code == -1 or alone.exit_code == 137
        assert result.stdout == alone.stdout, command
        assert result.error_text == alone.error_text or killed, command
        assert result.exit_code == (137 if killed else alone.exit_code), command
        assert (result.host, result.argv) == (alone.host, alone.argv)


def test_a_missing_program_is_as_a_shell_says(host: Host) -> None:
    missing, present = run_together(host, [["xdplab-no-such-program"], ["echo", "still"]])
    assert missing.exit_code == 127
    assert "xdplab-no-such-program" in missing.error_text
    assert present.text == "still\n"


def test_the_command_that_hangs_is_named(host: Host) -> None:
    with pytest.raises(HostError, match="`sleep 60` passed its deadline"):
        run_together(host, [["echo", "first"], ["sleep", "60"], ["echo", "never"]], deadline_s=0.5)


def test_what_ends_the_shell_is_an_error(host: Host) -> None:
    with pytest.raises(HostError):
        run_together(host, [["sh", "-c", "kill -9 0"], ["echo", "never"]])


def test_nothing_is_asked_for_nothing(host: Host) -> None:
    assert run_together(host, []) == []
