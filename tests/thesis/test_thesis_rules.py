"""The rules for trustworthy imported trials: on made-up logs, and on the published ones if they are available."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from tests.thesis import thesis_logs
from tests.thesis.thesis_logs import needs_data

from xdplab.analysis.findings import Finding
from xdplab.cli import cli
from xdplab.errors import XdplabError
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic import audits
from xdplab.thesis.findings import find_import
from xdplab.thesis.imported import import_or_open, import_thesis, imported_trials
from xdplab.thesis.kind import IMPORT, how_found
from xdplab.thesis.made_logs import generator, names, perf, rate_pps, sar, tree, write
from xdplab.thesis.pictures import lines_of
from xdplab.thesis.rules import corrected, generator_ceiling_pps, like_for_like, program_classes, ring_depths

Files = dict[str, str]


_judged: dict[frozenset[tuple[str, str]], pd.DataFrame] = {}


def judged(folder: Path, files: Files) -> pd.DataFrame:
    """Equal logs are read once."""
    key = frozenset(files.items())
    if key not in _judged:
        _judged[key] = thesis_logs.judged(folder, files)
    return _judged[key].copy()


def one(folder: Path, tg_pps: float, dut_pps: float | None, queues: int = 1, mode: str = "xdpdrv") -> pd.Series:
    place = names("resultados_af_xdp1" if mode == "af_xdp" else "resultados1", "xdpdrv", queues, 100, 64)
    files = {place["generator"]: generator(tg_pps)}
    if dut_pps is not None:
        files[place["sar"]] = sar(dut_pps, dut_pps, {0: 100.0})
    return judged(folder, files).iloc[0]


def found(trials: pd.DataFrame, rule: str) -> list[Finding]:
    return [finding for finding in find_import(trials, corrected(trials)) if finding.rule == rule]


@pytest.mark.parametrize(
    ("tg", "dut", "verdict", "words"),
    [
        (1000.0, 1000.0, "valid", "agree within"),
        (1000.0, 1030.0, "valid", "agree within 2.9"),
        (1000.0, 1200.0, "invalid", "disagree by 16.7%"),
        (0.0, 1200.0, "invalid", "deaf"),
        (0.0, 0.0, "invalid", "no frame reached the DUT"),
        (1000.0, None, "valid", "one count only"),
    ],
)
def test_two_counts_of_the_same_frames(tmp_path: Path, tg: float, dut: float, verdict: str, words: str) -> None:
    row = one(tmp_path, tg, dut)
    assert (row["verdict"], words in row["reason"]) == (verdict, True), row["reason"]


def test_a_deaf_generator_is_told_by_its_signature_where_the_setting_is_known_to_forward(tmp_path: Path) -> None:
    place = names("resultados4", "xdpdrv", 1, 3200, 64)
    alone = judged(tmp_path / "a", {place["generator"]: generator(0.0)})
    assert "no count of the DUT tells why" in alone["reason"].iloc[0]
    other = names("resultados4", "xdpdrv", 1, 100, 64)["generator"]
    trials = judged(tmp_path / "b", {place["generator"]: generator(0.0), other: generator(rate_pps(100))})
    assert "by its signature" in trials[trials["accesses"] == 3200]["reason"].iloc[0]
    (finding,) = found(trials, "deaf generator by signature")
    assert finding.evidence["trials"] == 1


def test_the_better_counter_judges_where_the_generator_missed_frames(tmp_path: Path) -> None:
    trials = judged(tmp_path, tree())
    deaf = trials[trials["reason"].str.contains("deaf")]
    better = corrected(trials).loc[deaf.index]
    assert deaf["forwarded_source"].tolist() == better["forwarded_source"].tolist() == ["dut"]
    assert better["verdict"].tolist() == ["valid"]
    assert better["ns_per_packet"].iloc[0] == pytest.approx(1e9 / rate_pps(3200), rel=1e-3)


def test_a_generators_ceiling_is_learnt_from_two_counts_and_holds_for_one(tmp_path: Path) -> None:
    seen, blind = (names(folder, "xdpdrv", 8, 0, 64) for folder in ("resultados1", "resultados4"))
    files = {
        seen["generator"]: generator(12.5e6),
        seen["sar"]: sar(14.8e6, 14.8e6, {0: 50.0}),
        blind["generator"]: generator(12.4e6),
    }
    trials = judged(tmp_path, files)
    assert generator_ceiling_pps(trials) == pytest.approx(0.97 * 12.5e6, rel=0.01)
    assert trials["limited_by"].tolist()[1] == "generator"
    better = corrected(trials)
    assert better["forwarded_pps"].iloc[0] == pytest.approx(14.8e6, rel=0.01)
    assert pd.isna(better["forwarded_pps"].iloc[1])  # at least 12.4 Mpps: not known
    assert {f.evidence["without_second_count"] for f in found(trials, "generator-limited plateau")} == {0, 1}


def slopes(repetitions: dict[int, float], rings: dict[int, int]) -> Files:
    files = {}
    for repetition, c_ns in repetitions.items():
        for accesses in (0, 800, 1600, 3200, 6400):
            rate = rate_pps(accesses, c_ns=c_ns)
            place = names(f"resultados{repetition}", "xdpgeneric", 1, accesses, 64)["generator"]
            files[place] = generator(rate, latency_s=rings[repetition] / rate)
    return files


@pytest.mark.parametrize(
    ("c_ns", "rings", "classes", "alike"),
    [
        ({1: 3.0, 2: 3.1}, {1: 512, 2: 512}, [(1, 2)], (1, 2)),
        ({1: 3.0, 2: 3.0, 3: 1.5}, {1: 512, 2: 512, 3: 512}, [(1, 2), (3,)], (1, 2)),
        ({1: 3.0, 2: 3.0}, {1: 512, 2: 1024}, [(1, 2)], (1,)),
    ],
)
def test_like_for_like_is_one_program_and_one_ring(
    tmp_path: Path,
    c_ns: dict[int, float],
    rings: dict[int, int],
    classes: list[tuple[int, ...]],
    alike: tuple[int, ...],
) -> None:
    better = corrected(judged(tmp_path, slopes(c_ns, rings)))
    assert program_classes(better)["generic"] == classes
    assert ring_depths(better) == {("xdp", repetition): depth for repetition, depth in rings.items()}
    assert like_for_like(better, {"generic": 1})["generic"] == alike


@pytest.mark.parametrize(
    ("rules", "files"),
    [
        ({"other program"}, lambda: slopes({1: 3.0, 2: 1.5}, {1: 512, 2: 512})),
        ({"other ring depth"}, lambda: slopes({1: 3.0, 2: 3.0}, {1: 512, 2: 1024})),
        ({"ring-bound latency"}, lambda: slopes({1: 3.0}, {1: 512})),
        ({"appended runs", "deaf generator", "perf of the wrong target", "last sample for a run",
          "sent more than the link carries"}, tree),
    ],
)  # fmt: skip
def test_each_rule_finds_what_was_placed(tmp_path: Path, rules: set[str], files: Callable[[], Files]) -> None:
    trials = judged(tmp_path, files())
    findings = [finding for finding in find_import(trials, corrected(trials)) if finding.rule in rules]
    assert {finding.rule for finding in findings} == rules
    assert all(finding.points and finding.files and finding.what for finding in findings)


def clean() -> Files:
    """Two repetitions without a fault."""
    files = {}
    for repetition in (1, 2):
        for accesses in (0, 800, 1600, 3200):
            place = names(f"resultados{repetition}", "xdpgeneric", 1, accesses, 64)
            rate = rate_pps(accesses)
            files[place["generator"]] = generator(rate, latency_s=0.001, tx_pps=1.4e7)
            files[place["sar"]] = sar(rate, rate, {0: 100.0})
            files[place["perf"]] = perf(9, target="'system wide'")
    return files


def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path) -> None:
    trials = judged(tmp_path, clean())
    assert (trials["verdict"] == "valid").all()
    assert find_import(trials, corrected(trials)) == []


def test_no_traffic_negative_latency_and_missing_points(tmp_path: Path) -> None:
    files = clean()
    quiet = names("resultados1", "xdpgeneric", 1, 800, 64)
    files[quiet["generator"]] = generator(0.0, tx_pps=0.0)
    files[quiet["sar"]] = sar(0.0, 0.0, {})
    gone = names("resultados2", "xdpgeneric", 1, 1600, 64)
    del files[gone["generator"]], files[gone["sar"]], files[gone["perf"]]
    odd = names("resultados2", "xdpgeneric", 1, 3200, 64)
    files[odd["generator"]] = generator(rate_pps(3200), latency_s=0.04, foreign_at=30, tx_pps=1.4e7)
    trials = judged(tmp_path, files)
    rules = {finding.rule for finding in find_import(trials, corrected(trials))}
    assert {"no traffic", "negative latency", "missing points", "file anomaly"} <= rules


def test_one_socket_gets_one_queues_share(tmp_path: Path) -> None:
    line = 10e9 / (84 * 8)
    share = one(tmp_path / "a", line / 8, line / 8, queues=8, mode="af_xdp")
    assert (share["verdict"], share["limited_by"]) == ("valid", "link")
    place = names("resultados_af_xdp1", "xdpgeneric", 8, 100, 64)["generator"]
    assert found(judged(tmp_path / "b", {place: generator(line / 8)}), "one AF_XDP socket")
    assert not found(judged(tmp_path / "c", {place: generator(line / 4)}), "one AF_XDP socket")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("run")
    return import_thesis([write(folder / "clone", tree())], folder / "results").run


def test_an_imported_run_is_a_run_directory(run: RunDirectory) -> None:
    assert run.imported
    assert imported_trials(run)["verdict"].isin(["valid", "invalid"]).all()
    assert not any(str(Path.cwd()) in file.read_text() for file in run.path.glob("*.json*"))  # it can be moved
    assert import_or_open([run.path], run.path / "other").path == run.path


def test_every_rule_says_how_it_finds(run: RunDirectory) -> None:
    for finding in IMPORT.run(run).findings():
        assert how_found(finding.rule), finding.rule


def test_a_mark_leads_to_its_file_and_line(run: RunDirectory) -> None:
    clone = run.path.parents[1] / "clone"
    lines = lines_of(imported_trials(run), "19", "XDP Native|1|800", [clone])
    place = names("resultados3", "xdpdrv", 1, 800, 64)
    assert any(f"{place['generator']}:119" in line for line in lines)
    assert any(line.strip().startswith("59.500") for line in lines)
    assert sum(", repetition " in line for line in lines) == 3
    perf_lines = lines_of(
        imported_trials(run), "complementares/instrucoes_hook_x_algoritmo@64B.pdf", "Native|1|baseline", [clone]
    )
    assert any(f"{place['perf'].replace('_800', '_0')}:7" in line for line in perf_lines)
    with pytest.raises(XdplabError, match="has no mark"):
        lines_of(imported_trials(run), "19", "XDP Native|1|77")


@pytest.mark.parametrize(
    "arguments",
    [
        ["figures", "{run}", "--explain", "19", "XDP Native|1|800"],
        ["regenerate", "{run}", "--as-published", "--csv", "--out", "{out}", "--lang", "pt", "--only", "19"],
        pytest.param(["regenerate", "{run}", "--as-published", "--csv", "--out", "{out}"], marks=pytest.mark.thorough),
        ["regenerate", "{clone}", "--corrected", "--only", "18", "--format", "svg", "--out", "{out}"],
    ],
)
def test_commands_on_imported_data(run: RunDirectory, tmp_path: Path, arguments: list[str]) -> None:
    places = {"run": run.path, "out": tmp_path, "clone": run.path.parents[1] / "clone"}
    result = CliRunner().invoke(cli, [argument.format(**places) for argument in arguments], standalone_mode=False)
    assert (result.exit_code, result.return_value or 0) == (0, 0), result.output


@needs_data
def test_the_published_data_show_what_went_wrong(published: pd.DataFrame) -> None:
    better = corrected(published)
    findings = find_import(published, better)
    rules = {finding.rule for finding in findings}
    assert {
        "deaf generator", "deaf generator by signature", "counts disagree", "generator-limited plateau",
        "appended runs", "no traffic", "negative latency", "ring-bound latency", "other ring depth", "other program",
        "perf of the wrong target", "one AF_XDP socket", "missing points", "sent more than the link carries",
    } <= rules  # fmt: skip
    assert sum(f.evidence["trials"] for f in findings if f.rule == "deaf generator") == 84
    assert sum(f.evidence["trials"] for f in findings if f.rule == "deaf generator by signature") == 11
    assert sum(f.evidence["trials"] for f in findings if f.rule == "appended runs") == 2
    assert ring_depths(better)["xdp", 5] == 8192
    assert program_classes(better)["af_xdp"] == [(1, 2), (3, 4)]
    fits = {(fit.mode, fit.queues, fit.repetition): fit for fit in audits.fits_by_repetition(better)}
    native = fits["native", 1, 3]
    assert (130 < native.t0_ns < 200, 2.5 < native.c_ns < 3.0) == (True, True)


HEADLINE_MPPS = {  # facts of the published data: mean of the like-for-like repetitions, corrected
    ("native", 1, 64): {0: 7.57, 12800: 0.0288},
    ("native", 8, 64): {0: 14.87, 3200: 0.940, 12800: 0.223},
    ("native", 8, 1500): {0: 0.822, 100: 0.822, 12800: 0.223},
    ("generic", 1, 64): {0: 1.09, 100: 0.822, 12800: 0.0253},
    ("generic", 8, 64): {0: 4.88, 100: 4.31, 3200: 0.763, 12800: 0.216},
    ("af_xdp", 1, 64): {0: 0.896, 100: 0.876},
    ("af_xdp", 8, 1500): {0: 0.102, 100: 0.102},
}


@needs_data
def test_the_headline_numbers(published: pd.DataFrame) -> None:
    better = corrected(published)
    alike = like_for_like(better, {"native": 3, "generic": 3, "af_xdp": 3})
    rows = better[better["verdict"].eq("valid") & better["forwarded_pps"].gt(0)]
    for (mode, queues, size), wanted in HEADLINE_MPPS.items():
        own = rows[rows["mode"].eq(mode) & rows["queues"].eq(queues) & rows["frame_bytes"].eq(size)]
        own = own[own["repetition"].isin(alike[mode])]
        for accesses, mpps in wanted.items():
            mean = float(own[own["accesses"].eq(accesses)]["forwarded_pps"].mean()) / 1e6
            assert mean == pytest.approx(mpps, rel=0.015), (mode, queues, size, accesses)
