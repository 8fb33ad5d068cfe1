"""One connection and its channels: what it remembers of many commands, and an end that no longer answers."""

import gc
import threading
import time
import tracemalloc
from contextlib import nullcontext
from types import SimpleNamespace

import paramiko
import pytest
from paramiko.common import MSG_CHANNEL_SUCCESS
from paramiko.packet import Packetizer

from xdplab import text
from xdplab.errors import HostError, HostLostError
from xdplab.hosts import ssh
from xdplab.hosts.ssh import SshHost
from xdplab.labs import Lab

pytestmark = pytest.mark.root
A_ROUND = 150


def commands(host: SshHost) -> int:
    """Run some commands and return the bytes that Python holds afterwards."""
    for _ in range(A_ROUND):
        host.run(["true"])
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.thorough
def test_what_a_connection_remembers_of_its_commands_is_bounded(ssh_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "CHANNELS_KNOWN", 20)
    host = ssh_lab.dut
    tracemalloc.start()
    try:
        held = [commands(host) for _ in range(4)]
    finally:
        tracemalloc.stop()
    assert len(host._transport().channels_seen) <= 40
    assert held[-1] - held[1] < 2 * A_ROUND * 32, f"{held}: paramiko alone kept 100 bytes per command"
    late = host.start(["sh", "-c", "sleep 0.5; echo late"], deadline_s=10)  # it outlives the record of its number
    for _ in range(50):
        host.run(["true"])
    assert late.read_line(5) == "late"


class Late(threading.Event):
    """A connection may send; all but its own thread notice it late."""

    def __init__(self, connection: threading.Thread) -> None:
        super().__init__()
        self._connection = connection
        self.set()

    def wait(self, timeout: float | None = None) -> bool:
        if threading.current_thread() is not self._connection:
            time.sleep(0.3)
        return super().wait(timeout)


@pytest.mark.parametrize("is_input", [True, False])
def test_a_command_that_ends_before_its_input_does_leaves_the_connection_whole(ssh_lab: Lab, is_input: bool) -> None:
    """sshd ends the connection on which input, or its end, comes behind its channel's close."""
    host = SshHost("dut", ssh_lab.dut._address)  # type: ignore[attr-defined]
    connection = host._transport()
    process = host.start(["sleep", "0.1"], deadline_s=5)
    connection.clear_to_send = Late(connection)  # type: ignore[attr-defined]
    with pytest.raises(HostError, match="no longer reads") if is_input else nullcontext():
        process.send(b"unread") if is_input else process._close_stdin()
    host.run(["sleep", "0.5"])
    assert host._transport() is connection
    host.close()


def test_input_goes_on_while_keys_are_exchanged(ssh_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run exchanges them each 512 MB, and paramiko's thread must not wait for the thread that sends."""
    for name, size in (("REKEY_BYTES", 1 << 23), ("REKEY_BYTES_OVERFLOW_MAX", 1 << 60)):
        monkeypatch.setattr(Packetizer, name, size)
    host = SshHost("dut", ssh_lab.dut._address)  # type: ignore[attr-defined]
    connection = host._transport()
    for _ in range(2):
        assert host.run(["wc", "-c"], stdin=bytes(30_000_000), deadline_s=20).text.strip() == "30000000"
    assert host._transport() is connection
    host.close()


def test_a_request_without_an_answer_is_an_error_and_the_next_command_connects_again(
    ssh_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection's own thread hangs: no deadline of a command ends such a wait, and no heartbeat is seen here."""
    monkeypatch.setattr(ssh, "ANSWER_S", 1.0)
    host = SshHost("dut", ssh_lab.dut._address)  # type: ignore[attr-defined]
    process = host.start(["cat"], deadline_s=60)
    held = threading.Event()
    handlers = paramiko.Transport._channel_handler_table | {MSG_CHANNEL_SUCCESS: lambda *_: held.wait(20)}
    monkeypatch.setattr(paramiko.Transport, "_channel_handler_table", handlers)
    began = time.monotonic()
    with pytest.raises(HostError, match="dut: cannot start `sh`: no answer for 1 s; the connection is closed"):
        host.run(["true"])
    monkeypatch.undo()
    monkeypatch.setattr(ssh, "ANSWER_S", 1.0)
    assert not host.connected
    process.close_stdin()
    process.kill()
    with pytest.raises(HostError, match="dut: `cat` was cut off: the connection is lost"):
        process.wait(0.5)
    assert time.monotonic() - began < 15
    assert host.run(["hostname"]).text == "dut\n"
    held.set()
    host.close()


@pytest.mark.parametrize("failures", [0, 3])
def test_a_wait_for_a_host_that_is_gone_is_named(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run was silent for 15 minutes. A host that answers at once, though slowly, is not gone."""
    gone, steps = iter([HostLostError("gone")] * failures), list[str]()

    def again() -> None:
        time.sleep(0.1)
        if (error := next(gone, None)) is not None:
            raise error

    monkeypatch.setattr(text, "SOON_S", 0.05)
    monkeypatch.setattr(ssh, "RETRY_S", 0.2)
    host = object.__new__(SshHost)
    host.name, host._address = "dut", SimpleNamespace(returns_s=900.0)
    monkeypatch.setattr(host, "_transport", again)
    naming = text.STEPS.set(steps.append)
    try:
        host.await_return()
    finally:
        text.STEPS.reset(naming)
    assert ["15.0 minutes" in step for step in steps] == [True] * (failures > 0)
