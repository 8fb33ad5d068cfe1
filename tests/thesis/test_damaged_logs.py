"""A damaged or malicious log costs no more than another log of its size, and is named."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from xdplab.thesis.digest import SarDigest, digest_logs
from xdplab.thesis.made_logs import names, sar
from xdplab.thesis.samples import sar_parts
from xdplab.thesis.source import MOST_BYTES, Found, RawLog, parse_name, raw_logs

PLACE = names("resultados1", "xdpdrv", 2, 100, 128)
WHOLE = sar(1000.0, 900.0, {0: 9.0}, samples=9)


def digested(text: str) -> tuple[object, list[str]]:
    name = parse_name(PLACE["sar"])
    assert name is not None
    (log,) = digest_logs([RawLog(name, None, text.encode())])
    return log.digest, [problem.text for problem in log.problems]


def test_a_log_with_the_row_of_all_cpus_alone_is_named() -> None:
    """Such a log ended the import with an IndexError."""
    lines = [line for line in WHOLE.splitlines(keepends=True) if not _of_a_cpu(line)]
    digest, problems = digested("".join(lines))
    assert digest is None
    assert problems


def _of_a_cpu(line: str) -> bool:
    words = line.split()
    return len(words) == 12 and words[1].isdigit()


def test_a_damaged_cpu_number_is_a_row_less(tmp_path: Path) -> None:
    """Such a log took 2.4 GB of memory."""
    first = next(line for line in WHOLE.splitlines(keepends=True) if _of_a_cpu(line))
    number = f" {first.split()[1]} "
    damaged = WHOLE.replace(first, first.replace(number, " 99999 ", 1), 1)
    digest, problems = digested(damaged)
    assert isinstance(digest, SarDigest)
    whole, _ = digested(WHOLE)
    assert isinstance(whole, SarDigest)
    assert digest.shares.shape[1:] == whole.shares.shape[1:]
    assert any("1 rows of CPUs that cannot be" in text for text in problems)


def test_the_sample_behind_a_missing_one_has_its_own_frames_only() -> None:
    digest, _ = digested(WHOLE.replace("10:00:14        CPU", "10:00:14        DPU", 1))
    assert isinstance(digest, SarDigest)
    _, frames = sar_parts("t", 1, digest, None)
    assert frames.columns["rx_packets"].tolist() == [0.0] * 5 + [1000.0, 2000.0, 2000.0]


BOMB = """
import resource, sys
from pathlib import Path
from xdplab.errors import ResultsError
from xdplab.thesis.source import Found, raw_logs
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    for log in raw_logs([Path(sys.argv[1])], Found()):
        pass
except ResultsError as error:
    print(error.message)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("ending", ["xz", "gz"])
def test_an_archive_that_unpacks_to_gigabytes_is_refused(tmp_path: Path, ending: str) -> None:
    bomb = tmp_path / f"bomb.tar.{ending}"
    stem = PLACE["sar"].removesuffix(".txt")
    data = bytes(MOST_BYTES - 1)
    quickly = {"preset": 0} if ending == "xz" else {}
    with tarfile.open(bomb, f"w:{ending}", **quickly) as tar:  # type: ignore[call-overload]
        for number in range(150):
            info = tarfile.TarInfo(f"{Path(stem).parent}/{number}/{Path(stem).name}.csv")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    done = subprocess.run([sys.executable, "-c", BOMB, str(bomb)], capture_output=True, text=True, check=True)
    message, grown = done.stdout.splitlines()
    assert "bytes: that is no archive of logs" in message
    assert int(grown) < 100_000


def test_a_large_archive_that_was_not_packed_is_read(tmp_path: Path) -> None:
    archive = tmp_path / "logs.tar"
    with tarfile.open(archive, "w") as tar:
        info = tarfile.TarInfo(PLACE["sar"])
        info.size = len(WHOLE)
        tar.addfile(info, io.BytesIO(WHOLE.encode()))
        filler = tarfile.TarInfo("other")
        filler.size = 40 << 20
        tar.addfile(filler, io.BytesIO(bytes(filler.size)))
    found = Found()
    assert [log.name.path for log in raw_logs([archive], found)] == [PLACE["sar"]]
