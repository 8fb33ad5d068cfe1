"""How xdpgen compares the clock of a device with its own, where the CPU is taken away between two readings."""

import subprocess
from pathlib import Path

from xdplab.resources import shipped

HARNESS = Path(__file__).parent / "phc_clock.c"


def test_a_cpu_that_is_taken_away_does_not_shift_the_clock(tmp_path: Path) -> None:
    """10 ms between the readings of two clocks made every latency of the next 10 ms 5 ms wrong."""
    binary = tmp_path / "phc_clock"
    flags = [
        "-O2",
        "-g",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{shipped('xdpgen')}",
        f"-I{shipped('common')}",
    ]
    subprocess.run(["cc", *flags, HARNESS, "-o", binary], check=True, timeout=120)
    done = subprocess.run([binary], check=True, capture_output=True, text=True, timeout=60)
    wrong = [int(line) for line in done.stdout.split()]
    assert len(wrong) == 40
    assert max(map(abs, wrong)) < 1000
