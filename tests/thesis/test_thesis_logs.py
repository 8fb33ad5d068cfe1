"""The thesis' log formats: rows with units, and named anomalies; on logs made here and on the published ones."""

import re
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.thesis.thesis_logs import ARCHIVES, DATA, generator_log, needs_data, perf_log, sar_log

from xdplab.formats.perf import require_system_wide
from xdplab.thesis import generator_log as generator_log_module
from xdplab.thesis import tool_logs as sar_log_module
from xdplab.thesis.generator_log import COLUMNS, GeneratorLog, parse_generator_log, parse_generator_logs
from xdplab.thesis.source import FIRST_BYTES, LogName, Measured, RawLog
from xdplab.thesis.tool_logs import (
    CPU_COLUMNS,
    INTERFACE_COLUMNS,
    SarText,
    parse_perf_text,
    parse_sar_text,
    parse_sar_texts,
)

PARSERS = {"generator": parse_generator_log, "sar": parse_sar_text, "perf": parse_perf_text}
WHOLE = {"generator": generator_log(), "sar": sar_log(), "perf": perf_log()}


def kinds(anomalies: object) -> list[str]:
    assert isinstance(anomalies, tuple)
    return [anomaly.kind for anomaly in anomalies]


def column(rows: np.ndarray, columns: tuple[str, ...], name: str) -> np.ndarray:
    return rows[:, columns.index(name)]


@pytest.mark.parametrize("decimals", [None, 2, 10])
def test_generator_has_one_row_a_second(decimals: int | None) -> None:
    log = parse_generator_log(generator_log(decimals=decimals))
    (run,) = log.runs
    assert (log.anomalies, run.latency_decimals, run.rows.shape) == ((), decimals, (60, len(COLUMNS)))
    assert column(run.rows, COLUMNS, "tx_packets").tolist() == [1000 * second for second in range(1, 61)]
    assert column(run.rows, COLUMNS, "rx_time_s")[:2].tolist() == [1.5, 2.5]
    assert column(run.rows, COLUMNS, "rx_packets")[58] == 29750
    assert np.isnan(column(run.rows, COLUMNS, "rx_packets")[59])
    latency = column(run.rows, COLUMNS, "latency_mean_s")
    assert np.isnan(latency).all() if decimals is None else latency[0] == 0.25


def test_generator_runs_that_were_appended_are_two_runs() -> None:
    log = parse_generator_log(generator_log() + generator_log(pps=7))
    assert kinds(log.anomalies) == ["appended_runs"]
    assert [column(run.rows, COLUMNS, "tx_packets")[-1] for run in log.runs] == [60000, 420]


def test_generator_without_a_sender_has_no_count_of_sent_frames_and_no_latency() -> None:
    log = parse_generator_log(generator_log(sender=False))
    assert kinds(log.anomalies) == ["no_traffic"]
    assert np.isnan(column(log.runs[0].rows, COLUMNS, "tx_packets")).all()
    assert np.isnan(column(log.runs[0].rows, COLUMNS, "latency_mean_s")).all()


def test_generator_clock_that_is_a_millisecond_off_keeps_its_second() -> None:
    text = generator_log().replace(b"\n60.000,", b"\n59.999,").replace(b"\n 2.000,", b"\n 2.001,")
    log = parse_generator_log(text)
    assert log.anomalies == ()
    assert column(log.runs[0].rows, COLUMNS, "second")[-1] == 60


@pytest.mark.parametrize(
    ("data", "kind", "line", "rows"),
    [
        (generator_log()[:-5], "truncated", 120, 59),
        (generator_log()[: len(generator_log()) // 2], "truncated", 61, 30),
        (generator_log(seconds=30), "truncated", 61, 30),
        (generator_log().replace(b" 5.000,", b" x.000,"), "damaged", 10, 60),
        (generator_log().replace(b" 5.000,", b" 4.000,"), "damaged", 2, 59),
        (generator_log().replace(b",    2,", b",    3,"), "foreign", 2, 60),
        (b"Time flies like an arrow\n", "foreign", 1, None),
        (b"\x01" + generator_log(), "foreign", 1, None),
    ],
)
def test_generator_anomalies_have_names_and_lines(data: bytes, kind: str, line: int, rows: int | None) -> None:
    log = parse_generator_log(data)
    assert (log.anomalies[0].kind, log.anomalies[0].line) == (kind, line)
    assert [len(run.rows) for run in log.runs] == ([] if rows is None else [rows])


def test_a_generator_row_that_was_lost_is_nan() -> None:
    rows = parse_generator_log(generator_log().replace(b" 5.000,", b" x.000,")).runs[0].rows
    assert np.isnan(column(rows, COLUMNS, "tx_packets")[4])
    assert column(rows, COLUMNS, "rx_packets")[4] == 2750


def test_sar_has_rows_of_cpus_and_of_interfaces() -> None:
    log = parse_sar_text(sar_log(start=24 * 3600 - 3))
    assert log.anomalies == ()
    assert (log.cpus.shape, log.interfaces.shape) == ((9, len(CPU_COLUMNS)), (9, len(INTERFACE_COLUMNS)))
    assert column(log.cpus, CPU_COLUMNS, "t_s").tolist() == [2, 2, 2, 4, 4, 4, 6, 6, 6]
    soft, cpu = column(log.cpus, CPU_COLUMNS, "soft"), column(log.cpus, CPU_COLUMNS, "cpu")
    assert (soft[cpu == 1].tolist(), int(np.isnan(cpu).sum())) == ([11, 12, 13], 3)
    assert log.interface_names == ("lo", "nic0", "nic1")
    nic = column(log.interfaces, INTERFACE_COLUMNS, "interface") == 1
    assert column(log.interfaces, INTERFACE_COLUMNS, "rx_pps")[nic].tolist() == [1000, 2000, 3000]


def test_sar_with_decimal_points_is_the_same() -> None:
    comma, point = parse_sar_text(sar_log()), parse_sar_text(sar_log().replace(b",", b"."))
    assert np.array_equal(comma.cpus, point.cpus, equal_nan=True)


@pytest.mark.parametrize(
    ("data", "kinds_found", "cpu_rows"),
    [
        (sar_log()[:-1], ["truncated"], 9),
        (sar_log()[: sar_log().rindex(b"13,00")], ["truncated"], 8),
        (sar_log().replace(b"11,00", b"1x,00"), ["damaged"], 8),
        (sar_log().replace(b"%soft", b"%sift"), ["damaged"] * 3, 0),
        (sar_log().replace(b"\n\n", b"\n", 1), ["damaged"], 6),
        (b"Linux is not sar\n", ["truncated"], 0),
    ],
)
def test_sar_anomalies(data: bytes, kinds_found: list[str], cpu_rows: int) -> None:
    log = parse_sar_text(data)
    assert kinds(log.anomalies)[: len(kinds_found)] == kinds_found
    assert len(log.cpus) == cpu_rows


def test_perf_numbers_of_that_locale_and_its_own_messages() -> None:
    log = parse_perf_text(perf_log())
    counts = {count.event: count for count in log.counts.values()}
    assert (counts["task-clock"].value, counts["task-clock"].unit) == (1.28, "msec")
    assert (counts["cycles"].value, counts["cycles"].running_percent) == (1008778, 66.95)
    assert (counts["LLC-loads"].value, counts["LLC-loads"].reason) == (None, "<not counted>")
    assert counts["L1-icache-loads"].reason == "<not supported>"
    assert (log.elapsed_s, log.anomalies) == (5.002348942, ())


def test_perf_of_sleep_is_not_of_the_machine() -> None:
    target = parse_perf_text(perf_log()).target
    assert target is not None
    assert (target.kind, target.text) == ("command", "sleep 5")
    system = parse_perf_text(perf_log("'system wide'")).target
    assert system is not None
    assert require_system_wide(system).kind == "system"


@pytest.mark.parametrize(
    ("data", "kind", "events"),
    [
        (perf_log()[: perf_log().index(b"cycles") + 3], "truncated", 1),
        (perf_log()[: perf_log().index(b"LLC")], "truncated", 2),
        (perf_log().replace(b"1.008.778", b"1,008,778"), "damaged", 3),
        (perf_log().replace(b"1.008.778", b"    1,008"), "damaged", 3),
    ],
)
def test_perf_anomalies(data: bytes, kind: str, events: int) -> None:
    log = parse_perf_text(data)
    assert (kinds(log.anomalies), len(log.counts)) == ([kind], events)


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\x7fELF\x00\x01", "binary"),
        (b"text \xff\xfe\n", "binary"),
        (b"<html></html>\n", "foreign"),
    ],
)
def test_a_file_of_another_kind_is_one_anomaly(name: str, data: bytes, kind: str) -> None:
    assert kinds(PARSERS[name](data).anomalies) == [kind]


@pytest.mark.parametrize("name", PARSERS)
def test_logs_of_one_tool_are_foreign_to_the_others(name: str) -> None:
    for other in PARSERS.keys() - {name}:
        assert kinds(PARSERS[other](WHOLE[name]).anomalies) == ["foreign"]


@needs_data
def test_the_published_logs() -> None:
    found: Counter[str] = Counter()
    for path, data in published():
        tool = path.split("/")[1]
        log = PARSERS[{"gerador": "generator"}.get(tool, tool)](data)
        found.update([tool, *kinds(log.anomalies)])
        if tool == "sar":
            assert (log.cpus.shape, log.interfaces.shape) == ((425, len(CPU_COLUMNS)), (150, 4)), path
            assert "ens2np0" in log.interface_names
        if tool == "perf":
            assert (len(log.counts), log.target.text) == (20, "sleep 5"), path
    assert found == {"gerador": 1145, "sar": 1014, "perf": 1014, "no_traffic": 2, "appended_runs": 2}


def published() -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of each log in the archives."""
    for name in ARCHIVES:
        with tarfile.open(DATA / name, "r:xz") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None:
                    yield member.name.removeprefix("./"), file.read()


def test_a_table_read_at_once_is_the_one_read_word_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a line departs from the first one's layout: then it is read word by word."""
    changed = [(b"0,00", b"x,00"), (b"0,00", b",000"), (b" 0,00", b"00,00"), (b"10:", b" 0:"), (b"all", b"alt")]
    changed += [
        (b" 0,00", b"-0,00"),
        (b"\n10:00:02          0", b"\n10:00:03          0"),
        (b"          0 ", b"          1 "),
    ]
    sars = [sar_log(), sar_log(cpus=12), *(sar_log().replace(*pair, 1) for pair in changed)]
    sars += [sar_log().replace(b"     0,00", b"1 234 000"[:9], 1), sar_log()[:-200]]
    sars += [re.sub(rb"nic0 .*", b"", sar_log(), count=1), sar_log().replace(b"  2000,00", b"987652000,00", 1)]
    runs = [generator_log(decimals=decimals) for decimals in (None, 2, 10)]
    runs += [runs[0].replace(b".00,", b"-00,", 1), runs[2].replace(b"0.2500", b"-.2500", 1), runs[1][:-3]]
    runs += [runs[2].replace(b" 0.25000", b"-0.25000"), runs[1].replace(b"1000,", b"10 0,", 1)]
    sars += [sar_log().replace(b"\n\n", b"\n\n\n", place) for place in range(1, 9)]
    at_once = [parse_sar_text(data) for data in sars] + [parse_generator_log(data) for data in runs]
    both_at_once = [parse_sar_texts([sars[0], data])[1] for data in sars]
    both_at_once += [parse_generator_logs([run, data], [60, 60])[1] for data in runs for run in runs[:3]]
    monkeypatch.setattr(sar_log_module, "_at_once", lambda logs: None)
    monkeypatch.setattr(generator_log_module, "_at_once", lambda body, width: None)
    by_word = [parse_sar_text(data) for data in sars] + [parse_generator_log(data) for data in runs]
    three_times = by_word[: len(sars)] + [log for log in by_word[len(sars) :] for _ in range(3)]
    for one, other in [*zip(at_once, by_word, strict=True), *zip(both_at_once, three_times, strict=True)]:
        assert one.anomalies == other.anomalies
        assert_same_rows(one, other)


def assert_same_rows(one: SarText | GeneratorLog, other: SarText | GeneratorLog) -> None:
    if isinstance(one, SarText) and isinstance(other, SarText):
        assert one.interface_names == other.interface_names
        np.testing.assert_array_equal(one.cpus, other.cpus)
        np.testing.assert_array_equal(one.interfaces, other.interfaces)
        return
    assert isinstance(one, GeneratorLog)
    assert isinstance(other, GeneratorLog)
    for own, same in zip(one.runs, other.runs, strict=True):
        assert own.latency_decimals == same.latency_decimals
        np.testing.assert_array_equal(own.rows, same.rows)


def test_reading_a_table_wakes_no_threads() -> None:
    """BLAS shares large products among threads; waiting for them took most of an import's CPU time."""
    data = sar_log(samples=25, cpus=16).replace(b"-", b" ")  # as large as the thesis'
    parse_sar_text(data)
    before = other_threads_turns()
    for _ in range(200):
        parse_sar_text(data)
    assert other_threads_turns() - before < 100


def other_threads_turns() -> int:
    """Return how often the kernel has let this process' other threads run, in all."""
    own = str(threading.get_native_id())
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != own]
    return sum(int((task / "schedstat").read_text().split()[2]) for task in tasks)


@pytest.mark.parametrize("size", [0, 1, FIRST_BYTES - 1, FIRST_BYTES, FIRST_BYTES + 1, 3 * FIRST_BYTES])
def test_a_log_of_any_size_is_read_whole(tmp_path: Path, size: int) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    (tmp_path / "log").write_bytes(data)
    name = LogName("resultados1/perf/log", "perf", "txt", 60, Measured("native", 1, 1, 0, 64))
    assert RawLog(name, str(tmp_path / "log")).read() == data
