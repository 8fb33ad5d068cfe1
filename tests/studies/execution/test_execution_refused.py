"""A kernel that refuses to interpret a program: the trial is unsupported, and every other refusal fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from xdplab.errors import HostError, UnsupportedError
from xdplab.hosts import Result
from xdplab.studies.execution.study import called
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

    def run(self, argv: Sequence[str], *, deadline_s: float = 30.0) -> Result:
        words = self._words.encode()
        return Result(self.name, tuple(argv), int(bool(words)), b"" if words else b"calls", words, 0.1).require()


def called_at(words: str, backend: str) -> bytes:
    place = ForeignPlace(Guest.name, Guest(words), "instructions", "7.2.13+deb14-riscv64", "riscv64")  # type: ignore[arg-type]
    return called(place, backend, ["/tools/microbench", "--backend", "bpf"])


def test_a_program_that_a_kernel_only_compiles_is_unsupported_when_interpreted() -> None:
    with pytest.raises(UnsupportedError, match="requires BPF JIT compiler"):
        called_at(ONLY_COMPILED, "interpreter")


@pytest.mark.parametrize(("words", "backend"), [(ONLY_COMPILED, "jit"), (REFUSED, "interpreter")])
def test_the_same_words_of_a_compiled_program_and_other_words_of_an_interpreted_one_fail(
    words: str, backend: str
) -> None:
    """With its JIT on, such a kernel compiles it: then something else is wrong."""
    with pytest.raises(HostError) as told:
        called_at(words, backend)
    assert words in str(told.value)
    assert not isinstance(told.value, UnsupportedError)


def test_what_the_driver_prints_is_returned() -> None:
    assert called_at("", "interpreter") == b"calls"
