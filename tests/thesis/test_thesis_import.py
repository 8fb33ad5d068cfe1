"""Importing the thesis' logs: one row per trial, one row per second, nulls with reasons, whatever a file contains."""

import io
import json
import tarfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from tests.run.nulls import unexplained

from xdplab.errors import ResultsError
from xdplab.run.frames import frame
from xdplab.thesis.columns import TRIAL_COLUMNS
from xdplab.thesis.imported import Imported, read_thesis
from xdplab.thesis.made_logs import SAR_LEADS_S, generator, names, perf, rate_pps, sar, tree, write
from xdplab.thesis.rules import judged_import
from xdplab.thesis.source import parse_name


def imported(folder: Path, files: dict[str, str | bytes]) -> Imported:
    return read_thesis([write(folder, files)], "0a0b")


def trials_of(found: Imported) -> pd.DataFrame:
    return frame(found.rows, TRIAL_COLUMNS)


def one(folder: Path, **texts: str | bytes) -> pd.Series:
    place = names("resultados1", "xdpdrv", 2, 100, 128)
    rows = trials_of(imported(folder, {place[kind]: text for kind, text in texts.items()}))
    return rows.iloc[-1]


def archive(path: Path, files: dict[str, str], prefix: str = "./") -> Path:
    with tarfile.open(path, "w:xz") as tar:
        for name, text in files.items():
            data = text.encode()
            info = tarfile.TarInfo(prefix + name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("missing", ["the interface's row", "the block of CPUs"])
@pytest.mark.parametrize("heard", [1e6, 0.0])
def test_a_sample_that_is_damaged_is_not_counted_as_empty(missing: str, heard: float, tmp_path: Path) -> None:
    """Two of nineteen samples gone: the DUT's rate was 11 % too low, and a good trial invalid for it."""
    text = sar(1e6, 1e6, {0: 90.0})
    for clock in ("10:00:30", "10:00:32"):
        if missing == "the interface's row":
            text = text.replace(f"{clock}{'nic0':>13}", f"{clock}{'nic0?':>13} :")
        else:
            before = "10:00:28" if clock.endswith("30") else "10:00:30"
            text = text.replace(f"{before}        CPU", f"{before}        DPU", 1)
    row = one(tmp_path, generator=generator(heard), sar=text)
    assert "damaged" in row["anomalies"]
    assert row["dut_count_pps"] == pytest.approx(1e6, rel=1e-6)
    assert row["tg_count_pps"] == pytest.approx(heard, rel=1e-3)
    assert row["forwarded_pps"] == pytest.approx(1e6, rel=1e-3)


def test_names_of_both_grammars_say_the_point() -> None:
    for path in names("resultados_af_xdp2", "xdpgeneric", 4, 1600, 512).values():
        name = parse_name(path)
        assert name is not None
        assert vars(name.measured) == {
            "mode": "af_xdp", "repetition": 2, "queues": 4, "accesses": 1600, "frame_bytes": 512,
        }  # fmt: skip
    assert parse_name("resultados2/gerador/for_0_a_1/res_combined_1.txt") is None


def test_a_tree_and_its_archive_are_the_same(tmp_path: Path) -> None:
    files = tree()
    from_tree = read_thesis([write(tmp_path / "clone", files)], "0a0b")
    from_archive = read_thesis([archive(tmp_path / "logs.tar.xz", files)], "0a0b")
    assert from_tree.rows == from_archive.rows
    assert pa.concat_tables(from_tree.samples()).equals(pa.concat_tables(from_archive.samples()))
    assert from_tree.logs == len(files) == 52
    both = read_thesis([tmp_path / "clone", tmp_path / "logs.tar.xz"], "0a0b")
    assert (len(both.rows), both.problems) == (len(from_tree.rows), from_tree.problems)


def test_a_folder_that_holds_archives_is_read_through(tmp_path: Path) -> None:
    archive(tmp_path / "a.tar.xz", tree())
    assert read_thesis([tmp_path], "0a0b").logs == 52


def test_one_row_a_trial_and_one_a_second(tmp_path: Path) -> None:
    found = imported(tmp_path, tree())
    assert len({(row["trial_id"], row["attempt"]) for row in found.rows}) == 12 + 1 + 8  # one file holds two runs
    samples = pa.concat_tables(found.samples()).to_pandas()
    of_last = samples[samples["trial_id"] == found.rows[-1]["trial_id"]]
    tg, dut = of_last[of_last["host"] == "tg"], of_last[of_last["cpu"] == 0]
    assert tg["t_s"].tolist() == list(range(1, 61))
    assert tg["tx_packets"].tolist()[:3] == [16_000_000] * 3
    assert dut["t_s"].tolist() == pytest.approx([2 * (n + 1) - SAR_LEADS_S for n in range(25)])
    assert dut["soft_percent"].tolist()[-2:] == [100, 50]


def test_counts_are_those_of_the_seconds_both_hosts_saw(tmp_path: Path) -> None:
    """sar ends before the generator does: a change after sar's end is not a disagreement."""
    late = generator(1000.0).replace("Time", "Time", 1).splitlines()
    row = one(tmp_path, generator="\n".join(late) + "\n", sar=sar(2000.0, 1000.0, {0: 70.0}))
    assert row["window_s"] == pytest.approx(38.0)
    assert row["rx_packets"] == pytest.approx(38_000, rel=1e-3)
    assert row["dut_tx_packets"] == 38_000
    assert row["dut_rx_packets"] == 76_000
    assert (row["forwarded_source"], row["dut_interface"]) == ("tg", "nic0")
    assert row["cpu_softirq_cores"] == pytest.approx(0.7)


def test_what_is_missing_is_null_with_its_reason(tmp_path: Path) -> None:
    row = one(tmp_path, generator=generator(1000.0, decimals=None))
    reasons = json.loads(row["null_reasons"])
    assert reasons["dut_tx_packets"] == "no sar log"
    assert reasons["latency_mean_ns"] == "the log has no latency column"
    assert reasons["instructions"] == "no perf log"
    assert row[["dut_tx_packets", "latency_mean_ns", "instructions", "cpu_busy_cores"]].isna().all()
    assert row["forwarded_pps"] == pytest.approx(1000, rel=1e-3)


def test_every_null_of_an_imported_trial_has_a_reason(tmp_path: Path) -> None:
    files = {
        names("resultados1", "xdpdrv", 1, 800, 64)["generator"]: generator(0.0),
        names("resultados2", "xdpdrv", 1, 800, 64)["generator"]: generator(rate_pps(800)),
        names("resultados2", "xdpdrv", 1, 100, 64)["sar"]: sar(500.0, 400.0, {0: 70.0}),
        names("resultados2", "xdpdrv", 1, 100, 64)["perf"]: "cut",
        names("resultados1", "xdpdrv", 1, 100, 64)["generator"]: generator(0.0, tx_pps=0.0),
        names("resultados_af_xdp1", "xdpgeneric", 1, 0, 64)["generator"]: generator(1000.0, decimals=None),
    }
    trials = judged_import(trials_of(imported(tmp_path, files)))
    assert set(trials["verdict"]) == {"valid", "invalid"}
    assert unexplained(trials) == []
    sent = json.loads(trials.loc[trials["verdict"].eq("valid"), "null_reasons"].iloc[0])
    assert sent["latency_p50_ns"] == "the generator's log has only a running mean of the round trips"
    assert sum(map(len, sent.values())) < 40 * len(sent)  # a hundred of them in thousands of rows


def test_sar_alone_tells_the_rate(tmp_path: Path) -> None:
    row = one(tmp_path, sar=sar(500.0, 400.0, {0: 70.0}))
    assert (row["forwarded_pps"], row["forwarded_source"]) == (pytest.approx(400.0), "dut")
    assert pd.isna(row["tx_packets"])


def test_perf_of_a_command_is_refused_and_kept_as_published(tmp_path: Path) -> None:
    row = one(tmp_path, generator=generator(1.0), perf=perf(1_001_129))
    assert pd.isna(row["instructions"])
    assert row["published_instructions"] == 1_001_129
    assert "counted command `sleep 5`" in json.loads(row["null_reasons"])["instructions"]
    assert json.loads(row["perf_lines"])["instructions"] == 7
    system = one(tmp_path / "system", generator=generator(1.0), perf=perf(5, target="'system wide'"))
    assert system["instructions"] == 5


def test_each_number_leads_to_its_line(tmp_path: Path) -> None:
    texts = {"generator": generator(777.0), "sar": sar(800.0, 777.0, {3: 42.0})}
    row = one(tmp_path, **texts)
    assert "59.500" in texts["generator"].split("\n")[row["generator_line"] - 1]
    assert texts["sar"].split("\n")[row["sar_line"] - 1].split()[1] == "0"
    assert "42,00" in texts["sar"].split("\n")[row["sar_line"] + 3 - 1]
    assert json.loads(row["published_softirq_percent"])[3] == 42


def test_a_csv_twin_is_left_aside_and_counted_and_one_alone_is_read(tmp_path: Path) -> None:
    place = names("resultados1", "xdpdrv", 1, 0, 64)["generator"]
    other = names("resultados1", "xdpdrv", 2, 0, 64)["generator"].replace(".txt", ".csv")
    found = imported(tmp_path, {place: generator(1.0), place.replace(".txt", ".csv"): "x", other: generator(2.0)})
    assert (found.logs, found.twins, len(found.rows)) == (2, 1, 2)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"", "empty"),
        (b"\x00\x01", "binary"),
        (b"<html>", "foreign"),
        (generator(1000.0)[:3000].encode(), "truncated"),
        (generator(1000.0).replace("\n30.000", "\n3x.000").encode(), "damaged"),
        (generator(0.0, tx_pps=0.0).encode(), "no_traffic"),
    ],
)
def test_a_file_that_is_not_whole_is_one_named_anomaly(tmp_path: Path, text: bytes, kind: str) -> None:
    found = imported(tmp_path, {names("resultados1", "xdpdrv", 1, 0, 64)["generator"]: text, **tree_of_another()})
    assert [problem.kind for problem in found.problems] == [kind]
    row = trials_of(found).iloc[0]
    assert json.loads(row["anomalies"])[0]["kind"] == kind
    if kind in ("empty", "binary", "foreign"):
        assert row[["tx_packets", "rx_packets", "forwarded_pps", "published_rx_mean_pps"]].isna().all()
        assert "cannot be used" in json.loads(row["null_reasons"])["rx_packets"]


def tree_of_another() -> dict[str, str | bytes]:
    return {names("resultados1", "xdpdrv", 1, 100, 64)["generator"]: generator(rate_pps(100))}


def test_unknown_names_unreadable_files_and_conflicts_are_named(tmp_path: Path) -> None:
    first = write(tmp_path / "a", {**tree_of_another(), "resultados1/sar/notes.txt": "?"})
    place = next(iter(tree_of_another()))
    second = write(tmp_path / "b", {place: generator(5.0)})
    (tmp_path / "b/experimentos/resultados1/perf").mkdir()
    broken = tmp_path / "b/experimentos" / names("resultados1", "xdpdrv", 1, 0, 64)["perf"]
    broken.symlink_to(tmp_path / "nowhere")
    found = read_thesis([first, second], "0a0b")
    assert sorted(problem.kind for problem in found.problems) == ["conflict", "foreign", "unreadable"]


def test_an_archive_that_ends_early_gives_what_it_had(tmp_path: Path) -> None:
    whole = archive(tmp_path / "whole.tar.xz", tree()).read_bytes()
    (tmp_path / "cut.tar.xz").write_bytes(whole[: int(len(whole) * 0.9)])
    found = read_thesis([tmp_path / "cut.tar.xz"], "0a0b")
    assert found.problems[-1].kind == "truncated"
    assert 0 < found.logs < 52


@pytest.mark.parametrize("content", [None, b"no archive", b""])
def test_nothing_to_import_is_said(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.tar.xz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ResultsError):
        read_thesis([path], "0a0b")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ResultsError, match="no log"):
        read_thesis([empty], "0a0b")
