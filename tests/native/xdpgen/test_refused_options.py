"""What xdpgen's command line refuses, before it looks at any interface."""

import subprocess

import pytest
from tests.compiled import build_once

PCAP = "--engine afxdp --frames x"
NOT_PLAIN = ("--load 1", "--max-frames 1", "--frame-bytes 64,65", "--skew zipf:1", "--churn 1", "--alone sender",
             "--rx-stamp device", "--whole")  # fmt: skip
STAMPED, ONE_CLOCK = "--engine afxdp --tx-stamp device", "--bind zerocopy --rx-stamp device"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--frame-bytes 64,", "expected BYTES[,BYTES] from 64 to 9216"),
        ("--frame-bytes 64,63", "expected BYTES[,BYTES] from 64 to 9216"),
        (f"--frame-bytes {','.join(['64'] * 65)}", "expected BYTES[,BYTES] from 64 to 9216"),
        ("--frame-bytes 1518,71 --vlan 5", "these frames have at least 72 bytes"),
        ("--frame-bytes 71 --vlan 5", "these frames have at least 72 bytes"),
        ("--frame-bytes 87 --ip-version 6", "these frames have at least 88 bytes"),
        ("--frame-bytes 87 --ip-version 6 --vlan 4094", "these frames have at least 88 bytes"),
        ("--frame-bytes 64,128 --engine afxdp --frames x", "--frame-bytes names several"),
        ("--receive-on no1 --no-receive", "--receive-on goes with neither --alone nor --no-receive"),
        ("--receive-on no1 --alone sender", "--receive-on goes with neither --alone nor --no-receive"),
        ("--interface sixteen_letters_", "no device has so long a name"),
        ("--frames x", "--frames needs --engine afxdp"),
        *((f"{PCAP} {flows}", "have flows of their own") for flows in ("--churn 1", "--skew zipf:1")),
        *((f"{more} --recorded 1", "--recorded goes with --frames") for more in ("", f"{PCAP} --load 5")),
        ("--burst 2", "--burst needs a --load"),
        *((alone, "need --engine afxdp") for alone in ("--bind zerocopy", "--need-wakeup", "--busy-poll 1")),
        *((f"--engine afxdp {word}", "needs --engine live") for word in ("--alone sender", "--plain")),
        *((f"--plain {word}", "--plain sends one frame as fast as it can") for word in NOT_PLAIN),
        *((f"--rx-stamp device {word}", "needs a device that receives") for word in ("--alone sender", "--no-receive")),
        *((f"{STAMPED} {word}", "needs --bind zerocopy") for word in ("--bind zerocopy", "--rx-stamp device")),
        *((f"{STAMPED} {ONE_CLOCK} {word}", "needs test frames") for word in ("--stamp none", "--frames x")),
        ("--alone receiver --no-receive", "contradict each other"),
        # Two threads shared one sender's state: half of the frames counted as lost, and the end waited minutes.
        ("--queues 2 --cpus 0,0", "names a CPU twice"),
        *((f"--bursts {bursts}", "--bursts") for bursts in ("a:4000", "a:0", ":1", "a/b:1", "a")),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(words: str, message: str) -> None:
    argv = [build_once("xdpgen"), "--interface", "no0", *words.split()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
