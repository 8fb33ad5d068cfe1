"""Whatever a trial's logs contain, an import ends with rows, named anomalies and no zero that was not counted.

A part of it runs in CI; `nightly` tries 100,000 inputs per kind of log.
"""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xdplab.errors import ResultsError
from xdplab.run.frames import frame
from xdplab.thesis.columns import TRIAL_COLUMNS
from xdplab.thesis.digest import digest_logs
from xdplab.thesis.made_logs import generator, names, perf, sar
from xdplab.thesis.rows import TrialLogs, trial_rows
from xdplab.thesis.rules import corrected, judged_import
from xdplab.thesis.source import Found, RawLog, below_folder, parse_name, raw_logs

PLACE = names("resultados1", "xdpdrv", 2, 100, 128)
TOGETHER = 10
"""The logs of one import. Its rules read whole columns: ten rows take hardly longer than one."""
WHOLE = {
    "generator": "\n".join([*generator(1000.0).split("\n")[:12], ""]).encode(),  # six seconds
    "sar": sar(1000.0, 900.0, {0: 9.0}, samples=9).encode(),
    "perf": perf(1_001_129).encode(),
}
SEEDS = {kind: [data, data[: len(data) // 2], data + data] for kind, data in WHOLE.items()}


@st.composite
def mutated(draw: st.DrawFn, kind: str) -> bytes:
    """A log with bytes changed, cut out, or put in; or anything at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    data = bytearray(draw(st.sampled_from(SEEDS[kind])))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        span = draw(st.integers(0, 40))
        data[at : at + span] = draw(st.one_of(st.binary(max_size=12), st.sampled_from(PIECES)))
    return bytes(data)


PIECES = [
    b"",
    b"nan",
    b"-inf",
    b"9" * 18,
    b"1e308",
    b",",
    b"\n",
    b"\n\n",
    b" 0.000,",
    b"Average:",
    b"all",
    b"<not counted>",
]


def rows_of(kind: str, data: bytes, accesses: int = 100) -> list[dict[str, object]]:
    """Import one log beside whole ones of the other kinds."""
    logs = {**WHOLE, kind: data}
    place = names("resultados1", "xdpdrv", 2, accesses, 128)
    trial = None
    for own, text in logs.items():
        name = parse_name(place[own])
        assert name is not None
        (digest,) = digest_logs([RawLog(name, None, text)])
        trial = trial or TrialLogs(name.measured)
        trial.logs[name.kind] = digest
    assert trial is not None
    return trial_rows(trial, "0a0b")


def check(kind: str, logs: list[bytes]) -> None:
    """Import the logs as trials that differ in their accesses, one log per trial."""
    rows = [rows_of(kind, data, 100 * n) for n, data in enumerate(logs)]
    table = judged_import(frame([row for own in rows for row in own], TRIAL_COLUMNS))
    corrected(table)
    assert table["verdict"].isin(["valid", "invalid"]).all()
    counts = ("tx_packets", "rx_packets", "dut_tx_packets", "published_rx_mean_pps")
    for data, row in ((data, row) for data, own in zip(logs, rows, strict=True) for row in own):
        if not data.strip():
            missing = {"generator": counts[:2], "sar": counts[2:3], "perf": ()}[kind]
            assert all(row.get(name) is None for name in missing)


def fuzz(kind: str, examples: int) -> Callable[[], None]:
    @settings(max_examples=examples // TOGETHER, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(mutated(kind), min_size=TOGETHER, max_size=TOGETHER))
    def run(logs: list[bytes]) -> None:
        check(kind, logs)

    return run


@pytest.mark.parametrize("kind", WHOLE)
def test_a_log_that_holds_anything(kind: str) -> None:
    fuzz(kind, 80)()


@pytest.mark.nightly
@pytest.mark.parametrize("kind", WHOLE)
def test_a_log_that_holds_anything_100_000_times(kind: str) -> None:
    fuzz(kind, 100_000)()


@settings(max_examples=150, deadline=None, database=None)
@given(st.text(max_size=80))
def test_any_path_has_a_name_or_none(path: str) -> None:
    below = below_folder(path)
    assert below is None or parse_name(below) is None or below.endswith((".txt", ".csv"))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_an_archive_of_anything(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A damaged archive is read up to the damage, or refused with a message."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for kind, text in WHOLE.items():
            info = tarfile.TarInfo(PLACE[kind])
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    whole = bytearray(stream.getvalue())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at : at + data.draw(st.integers(0, 60))] = data.draw(st.binary(max_size=20))
    path = tmp_path_factory.mktemp("archive") / "x.tar.gz"
    path.write_bytes(whole)
    found = Found()
    try:
        logs = list(raw_logs([path], found))
    except ResultsError:
        return
    assert all(log.name.path in PLACE.values() for log in logs)


def test_a_gzip_header_with_an_extra_field_is_refused_with_a_message(tmp_path: Path) -> None:
    """CPython 3.11.2 raised an AttributeError of its own."""
    path = tmp_path / "x.tar.gz"
    path.write_bytes(b"\x1f\x8b\x08\x04" + bytes(6) + b"\x40\x02" + b"\x77" * 600)
    with pytest.raises(ResultsError, match="cannot be read as an archive"):
        list(raw_logs([path], Found()))
