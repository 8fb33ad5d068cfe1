"""A kernel that refuses to interpret a program: the trial is unsupported, and every other refusal fails."""

import re
from collections.abc import Sequence

import pytest

from xdplab.errors import HostError, UnsupportedError, XdplabError
from xdplab.hosts import Result
from xdplab.studies.execution.runs import called
from xdplab.studies.guests import ForeignPlace

ONLY_COMPILED = (
    "the kernel refuses microbench of /tools/lookup_100.bpf.o, compiled by Debian clang version 14.0.6: Invalid "
    "argument: program requires BPF JIT compiler but it is not available"
)
"""What riscv64's 7.2 said of `lookup 100` with its JIT switched off."""
REFUSED = "the kernel refuses microbench of /tools/lookup_100.bpf.o: Invalid argument: back-edge from insn 9 to 3"


class Guest:
    """A guest whose driver ends with these words, or does its work."""

    name = "vm:7.2@riscv64"

    def __init__(self, words: str) -> None:
        self._words = words

    def run(self, argv: Sequence[str], **_how: object) -> Result:
        words = self._words.encode()
        return Result(self.name, tuple(argv), int(bool(words)), b"" if words else b"calls", words, 0.1)


@pytest.mark.parametrize(
    ("words", "backend", "error"),
    [
        (ONLY_COMPILED, "interpreter", UnsupportedError),
        (ONLY_COMPILED, "jit", HostError),  # with its JIT on, such a kernel compiles it: then something else is wrong
        (REFUSED, "interpreter", HostError),
        ("", "interpreter", None),
    ],
)
def test_only_a_program_that_a_kernel_cannot_interpret_is_unsupported(
    words: str, backend: str, error: type[XdplabError] | None
) -> None:
    place = ForeignPlace(Guest.name, Guest(words), "instructions", "7.2.13+deb14-riscv64", "riscv64")  # type: ignore[arg-type]
    argv = ["/tools/microbench", "--backend", "bpf"]
    if error is None:
        assert called(place, backend, argv) == b"calls"
        return
    with pytest.raises(error, match=re.escape(words)) as refusal:
        called(place, backend, argv)
    assert type(refusal.value) is error
