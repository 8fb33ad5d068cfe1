"""What xdpgen's command line refuses, before it looks at any interface."""

import subprocess

import pytest
from tests.compiled import build_once


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
        # Two threads shared one sender's state: half of the frames counted as lost, and the end waited minutes.
        ("--queues 2 --cpus 0,0", "names a CPU twice"),
        ("--bursts a:4000", "--bursts"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(words: str, message: str) -> None:
    argv = [build_once("xdpgen"), "--interface", "no0", *words.split()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
