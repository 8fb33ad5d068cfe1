"""A worker's TLS connection does not end because another connection did."""

import _ssl
import ctypes
import ssl
from typing import Any

import pytest

from xdplab.run import fleet_dask

SYSTEM, BROKEN_PIPE = 2, 32  # ERR_LIB_SYS, EPIPE


@pytest.fixture
def openssl() -> ctypes.CDLL:
    """The library whose queue of errors Python's ssl uses."""
    library = ctypes.CDLL(getattr(_ssl, "__file__", None))
    if not hasattr(library, "ERR_set_error"):
        pytest.skip(f"{ssl.OPENSSL_VERSION} has no ERR_set_error, or does not show it")
    library.ERR_peek_error.restype = ctypes.c_ulong
    return library


def leave_an_error(openssl: ctypes.CDLL) -> None:
    openssl.ERR_new()
    openssl.ERR_set_error(SYSTEM, BROKEN_PIPE, None)


@pytest.mark.parametrize("answers", [[3], ["theirs", 3], ["theirs", None]])
def test_a_read_that_reports_anothers_broken_pipe_is_repeated(
    answers: list[Any], openssl: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(stream: object, buffer: object) -> int | None:
        if openssl.ERR_peek_error():
            raise BrokenPipeError
        return answers[-1]

    monkeypatch.setattr(fleet_dask, "_read", read)
    if answers[0] == "theirs":
        leave_an_error(openssl)
    assert fleet_dask._read_again(None, bytearray(1)) == answers[-1]
    assert not openssl.ERR_peek_error()


def test_ones_own_broken_pipe_is_raised_and_leaves_nothing_to_others(
    openssl: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(stream: object, buffer: object) -> int | None:
        leave_an_error(openssl)
        raise BrokenPipeError

    monkeypatch.setattr(fleet_dask, "_read", read)
    with pytest.raises(BrokenPipeError):
        fleet_dask._read_again(None, bytearray(1))
    assert not openssl.ERR_peek_error()
