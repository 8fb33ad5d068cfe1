"""The regenerated thesis is right: running means undone, clocks, intervals, nulls, and the effects of findings."""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from tests.thesis.doc_tables import block, quoted
from tests.thesis.thesis_logs import DATA, judged, needs_data

from xdplab.figures.marks import View, marks_frame
from xdplab.figures.save import render
from xdplab.figures.styles import style_named
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic import audits
from xdplab.thesis import kind
from xdplab.thesis.conclusions import conclusions, corrected_reading, in_markdown, published_reading
from xdplab.thesis.findings import find_import
from xdplab.thesis.generator_log import Latency, latency, parse_generator_log, two_levels
from xdplab.thesis.imported import import_thesis, imported_trials, read_thesis
from xdplab.thesis.made_logs import generator, names, rate_pps, sar, write
from xdplab.thesis.pictures import lines_of
from xdplab.thesis.printed import GREY, page_of, printed_sheet
from xdplab.thesis.programs import count
from xdplab.thesis.published import figure_named, published_figures
from xdplab.thesis.rules import clock_ratio, corrected
from xdplab.thesis.samples import step_in
from xdplab.thesis.views import corrected_view, look_of, pools_sizes, published_view, source_of

pytestmark = pytest.mark.thorough


# --- latency ---


def log_of(rate: float, latency_s: float, foreign: dict[int, float], decimals: int = 2) -> Latency:
    """Return the latency of a log: ``foreign`` maps a second to the seconds that foreign frames add to the sum."""
    lines = generator(rate, latency_s=latency_s, decimals=decimals).split("\n")
    for at, line in enumerate(lines[1:], 1):
        words = line.split(", ")
        if len(words) > 9 and int(words[-2]) == 2:
            second, packets = float(words[0]), int(words[4])
            added = sum(seconds for begin, seconds in foreign.items() if second >= begin)
            words[7] = f"{latency_s + added / packets:17.{decimals}f}"
            lines[at] = ", ".join(words)
    return latency(parse_generator_log("\n".join(lines).encode()).runs[-1])


@pytest.mark.parametrize("added_s", [35_000.0, -3.5e9, 0.0])
def test_frames_of_others_in_the_first_second_do_not_stay_in_the_mean(added_s: float) -> None:
    found = log_of(19_000, 0.12, {1: added_s})
    assert found.mean_ns is not None
    assert found.open_ns is not None
    assert abs(found.mean_ns - 0.12e9) <= found.open_ns + 1
    assert found.open_ns <= 0.05 * found.mean_ns


def test_a_frame_of_others_in_mid_run_is_left_out_with_the_rows_behind_or_before_it() -> None:
    found = log_of(19_000, 0.12, {1: -3e9, 20: 8e5})
    assert found.mean_ns == pytest.approx(0.12e9, rel=0.05)
    assert re.search(r"over 40 of 59 rows", found.how)


def test_what_the_digits_leave_open_is_no_latency() -> None:
    found = log_of(1_000_000, 0.004, {})
    assert (found.mean_ns, found.open_ns) == (None, None)
    assert "too few digits" in found.how


def test_two_levels_are_said_and_one_wide_level_is_not() -> None:
    rng = np.random.default_rng(1)
    two = np.concatenate([rng.normal(0.8, 0.01, 30), rng.normal(1.4, 0.02, 27)])
    assert two_levels(rng.permutation(two)) == (pytest.approx(0.8, rel=0.01), pytest.approx(1.4, rel=0.01))
    assert two_levels(rng.normal(1.0, 0.2, 57)) is None
    assert two_levels(rng.uniform(0.5, 1.5, 57)) is None


def test_seconds_without_a_common_latency_have_none() -> None:
    """A mean over other frames than those counted: each second is undone to another latency."""
    found = log_of(19_000, 0.12, {second: 230.0 * second for second in range(2, 60)}, decimals=10)
    assert found.mean_ns is None
    assert "no latency in common" in found.how


def test_a_latency_that_went_up_in_a_run_is_said_and_a_steady_one_is_not() -> None:
    rising = log_of(19_000, 0.12, {second: 15.0 * second for second in range(2, 60)}, decimals=10)
    assert rising.mean_ns == pytest.approx(0.144e9, rel=0.02)
    assert re.search(r"it went from 12\d to 15\d ms in the run", rising.how)
    assert "it went" not in log_of(19_000, 0.12, {}, decimals=10).how


# --- rates ---


def test_a_count_of_nothing_that_is_not_believed_is_no_rate_of_0(tmp_path: Path) -> None:
    files = {}
    for repetition, rate in ((1, 0.0), (2, rate_pps(800))):
        files[names(f"resultados{repetition}", "xdpdrv", 1, 800, 64)["generator"]] = generator(rate)
    place = names("resultados1", "xdpdrv", 1, 100, 64)
    files |= {place["generator"]: generator(0.0, tx_pps=0.0), place["sar"]: sar(0.0, 0.0, {})}
    trials = judged(tmp_path, files)
    silent = trials[trials["verdict"].eq("invalid")]
    assert len(silent) == 2
    assert silent["forwarded_pps"].isna().all()
    assert silent["forwarded_l2_bps"].isna().all()
    assert silent["null_reasons"].str.contains("forwarded_pps").all()


def test_a_rate_is_of_the_whole_run_and_its_step_is_said(tmp_path: Path) -> None:
    """sar ends 20 s before the run, so only one host sees a rate that changes after that."""
    lines = generator(1e5).split("\n")
    for at, line in enumerate(lines):
        words = line.split(", ")
        if words[-2:-1] and words[-2].strip() == "2":
            second = float(words[0])
            words[4] = f"{round(1e5 * second + 1e5 * max(0.0, second - 45.5)):12d}"
            lines[at] = ", ".join(words)
    place = names("resultados3", "xdpdrv", 1, 3200, 64)
    files = {place["generator"]: "\n".join(lines), place["sar"]: sar(1e5, 1e5, {0: 100.0})}
    row = judged(tmp_path, files).iloc[0]
    assert row["forwarded_pps"] == pytest.approx((1e5 * 58.5 + 1e5 * 14) / 58.5, rel=0.02)
    assert row["tg_count_pps"] == pytest.approx(1e5, rel=0.01)
    assert row["rate_step_share"] == pytest.approx(1.0, rel=0.05)
    assert row["rate_step_s"] == pytest.approx(45.5, abs=1.5)


def test_a_rate_with_noise_or_a_hiccup_is_stationary() -> None:
    rng = np.random.default_rng(2)
    steady = rng.normal(100, 3, 57)
    assert step_in(steady) is None
    assert step_in(np.where(np.arange(57) == 30, 20, steady)) is None
    assert step_in(np.linspace(90, 110, 57)) is None
    found = step_in(np.where(np.arange(57) < 20, steady, 0.8 * steady))
    assert found is not None
    assert found.place == 20
    assert found.share == pytest.approx(-0.2, abs=0.02)


def two_clocks(ratio: float) -> dict[str, str]:
    """Twelve trials that both hosts counted, the generator's seconds longer than the DUT's."""
    files = {}
    for accesses in (0, 100, 200, 400, 800, 1600):
        for size in (64, 128):
            place, rate = names("resultados3", "xdpdrv", 1, accesses, size), rate_pps(accesses)
            files |= {place["generator"]: generator(rate * ratio), place["sar"]: sar(rate, rate, {0: 100.0})}
    return files


def test_the_generators_seconds_become_the_duts(tmp_path: Path) -> None:
    trials = judged(tmp_path, two_clocks(1.002))
    assert clock_ratio(trials)[0] == pytest.approx(1.002, abs=2e-4)
    better = corrected(trials).set_index(["accesses", "frame_bytes"])["forwarded_pps"]
    assert better[1600, 64] == pytest.approx(rate_pps(1600), rel=5e-4)
    assert [finding.rule for finding in find_import(trials, corrected(trials), ["clocks"])] == ["clocks"]


def test_clocks_that_agree_are_no_finding(tmp_path: Path) -> None:
    """Counts are whole frames, and printed rates have two decimals: their ratio is never quite 1."""
    trials = judged(tmp_path, two_clocks(1.00001))
    assert 0 < abs(clock_ratio(trials)[0] - 1) < 5e-5
    assert find_import(trials, corrected(trials), ["clocks"]) == []


# --- the published data ---


@pytest.fixture(scope="module")
def audit(published_run: RunDirectory, published: pd.DataFrame) -> audits.Audit:
    return kind.audit(published_run.name, published)


FAMILY = {spec.file: spec.family for spec in published_figures()}


@needs_data
def test_a_finding_changes_the_figures_that_draw_it_and_no_other(audit: audits.Audit) -> None:
    changed: dict[str, set[str]] = {}
    for entry in audit.entries:
        changed.setdefault(entry.rule, set()).update(entry.changes)
        assert set(entry.changes) == set(entry.most)
        assert all(entry.most[file] > 1e-4 or entry.changes[file] for file in entry.changes)
    perf = changed["perf of the wrong target"]
    assert len(perf) == 33
    assert {FAMILY[file] for file in perf} == {"instructions", "branches", "l1_loads", "l1_load_misses"}
    assert {FAMILY[file] for file in changed["negative latency"]} == {"latency"}
    assert {FAMILY[file] for file in changed["clocks"]} == {"throughput"}
    assert {FAMILY[file] for file in changed["last sample for a run"]} == {"softirq"}
    assert not changed["other program"]


@needs_data
def test_the_tables_in_the_docs_are_those_that_the_commands_make(audit: audits.Audit, published: pd.DataFrame) -> None:
    """``make thesis`` writes them; the last column needs the user's own run, which is not here."""
    assert block("audit") == quoted(audit.summary)
    source = source_of(published)
    table = in_markdown(conclusions([published_reading(source), corrected_reading(source)]))
    written = block("conclusions")
    assert len(written) == len(table)
    for line, shown in zip(table[2:], written[2:], strict=True):
        assert shown.startswith(line), "make thesis DATA=… RUN=…"


def test_an_old_program_is_executed_and_its_lookups_are_counted() -> None:
    text = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct bpf_map_def SEC("maps") table = {
  .type = BPF_MAP_TYPE_PERCPU_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 8,
};
SEC("some_section") int program(struct xdp_md *ctx)
{
  int key = ctx->rx_queue_index;
  for (int i = 0; i < 7; i++) bpf_map_lookup_elem(&table, &key);
  return XDP_TX;
}
"""
    counts = count(text)
    assert (counts.lookups, counts.value_accesses, counts.frame_stores) == (7, 0, 0)


def test_an_applications_own_function_is_executed_and_its_stores_are_counted() -> None:
    text = """
static bool process_packet(struct xsk_socket_info *xsk, uint64_t addr, uint32_t len)
{
  uint8_t *packet = xsk_umem__get_data(xsk->umem->buffer, addr);
  for (int i = 0; i < 5; i++) packet[20] = i;
  return len > 0;
}
int main(void) { return 0; }
"""
    counts = count(text)
    assert (counts.lookups, counts.frame_loads, counts.frame_stores, counts.repeated_stores) == (None, 0, 5, 4)


# --- the printed figures ---


@needs_data
def test_panels_stand_where_they_were_printed() -> None:
    boxes = pd.read_csv(DATA / "figures-dev-geometry.csv", comment="#")
    for file, rows in boxes.groupby("file"):
        page = page_of(figure_named(str(file)))
        assert (page.width, page.height) == (rows["page_width_pt"].iloc[0], rows["page_height_pt"].iloc[0])
        for row in rows.itertuples():
            assert page.box(int(str(row.panel))) == pytest.approx((row.x0, row.y0, row.x1, row.y1), abs=0.5)


@needs_data
def test_a_sheet_has_its_panels_in_these_boxes_whatever_is_noted_below(published: pd.DataFrame) -> None:
    spec = figure_named("22")
    view = published_view(source_of(published), spec)
    sheet, page = printed_sheet(view, spec), page_of(spec)
    height = sheet.get_figheight() * 72
    assert height > page.height
    for at, ax in enumerate(sheet.axes):
        box = ax.get_position()
        found = (box.x0 * page.width, height * (1 - box.y1), box.x1 * page.width, height * (1 - box.y0))
        assert found == pytest.approx(page.box(at), abs=0.1)


def _view(number: str, rows: list[dict[str, object]], **look: object) -> View:
    spec = figure_named(number)
    own = [{"file": spec.file, "kind": spec.kind, "verdict": "valid", "n": 3} | row for row in rows]
    return View(marks_frame(own), look_of(spec, "en", "y", (), **look))


@pytest.mark.parametrize("most", [0.16, 2.4, 10.0, 99_999.0, 250_000.0])
@pytest.mark.parametrize("number", ["18", "19", "22", "23", "25", "28"])
def test_the_numbers_beside_a_panel_stand_on_the_page_and_the_panels_keep_their_size(number: str, most: float) -> None:
    """As `branches` do: the page of their family was read from a figure whose numbers have a power of ten."""
    spec = figure_named(number)
    look = _view(number, []).look
    rows = [
        {"panel": panel, "hue": look.order.hues[0], "x": look.order.x_values[0], "value": most}
        for panel in look.order.panels
    ]
    view = _view(number, rows)
    sheet, page = printed_sheet(view, spec), page_of(spec)
    sheet.canvas.draw()
    shown = [text for ax in sheet.axes for text in ax.get_yticklabels() if text.get_visible() and text.get_text()]
    assert shown
    assert min(text.get_window_extent().x0 for text in shown) >= 0
    for at, ax in enumerate(sheet.axes):
        x0, y0, x1, y1 = page.box(at)
        size = ax.get_window_extent().size * 72 / sheet.dpi
        assert size == pytest.approx((x1 - x0, y1 - y0), abs=0.1)


def test_a_corrected_figure_stands_on_the_printed_page_and_says_what_limits_a_mark() -> None:
    rows: list[dict[str, object]] = [
        {"panel": "XDP Native", "hue": "1", "x": "baseline", "value": 4.0, "low": 3.0, "high": 90.0},
        {"panel": "XDP Native", "hue": "8", "x": "baseline", "value": 10.0, "limited_by": "link"},
    ]
    spec = figure_named("19")
    view = _view("19", rows)
    sheet = printed_sheet(view, spec, empty=True)
    for at, ax in enumerate(sheet.axes):
        box, page = ax.get_position(), page_of(spec)
        assert (box.x0 * page.width, (1 - box.y1) * page.height) == pytest.approx(page.box(at)[:2], abs=0.1)
    said = [[text.get_text() for text in ax.texts] for ax in sheet.axes]
    assert said == [["nothing can be said"], ["nothing can be said"], []]
    native = sheet.axes[-1]
    assert 10 < native.get_ylim()[1] < 20, "an interval of few repetitions leaves the marks their room"
    entries = [text.get_text() for text in sheet.legends[0].get_texts()]
    assert entries[-2:] == ["link\nlimits", "interval\ngoes on"]
    assert [bars.get_hatch() for bars in native.collections if isinstance(bars, PolyCollection)] == [None, "....."]
    text = render(sheet, "svg", style_named("paper-2col"), "x", {}).decode()
    assert "<title>8, XDP native" in text, "each mark of an SVG has its tooltip"
    plain = printed_sheet(_view("19", [row | {"n": None} for row in rows[:1]]), spec)
    assert plain.axes[-1].get_ylim()[1] > 90, "as printed, the axis holds the interval"


def test_an_empty_panel_of_four_says_so_and_keeps_the_numbers_that_its_neighbours_are_read_by() -> None:
    spec = next(spec for spec in published_figures() if spec.panel == "queues" and spec.family == "softirq")
    look = _view(spec.file, []).look
    row: dict[str, object] = {
        "panel": look.order.panels[1],
        "hue": look.order.hues[0],
        "x": look.order.x_values[0],
        "value": 60.0,
    }
    view = _view(spec.file, [row])
    sheet = printed_sheet(view, spec, empty=True)
    said = [[text.get_text() for text in ax.texts] for ax in sheet.axes]
    assert said == [["nothing can be said"], [], ["nothing can be said"], ["nothing can be said"]]
    assert len(sheet.axes[0].get_yticks()) > 2


def test_a_logarithmic_axis_has_numbers_and_no_place_for_a_printed_0() -> None:
    spec = figure_named("23")
    points = [("baseline", 500.0), ("1", 90_000.0)]
    own = _view("23", [{"panel": "XDP Native", "hue": "64B", "x": x, "value": y} for x, y in points], y_scale="log")
    zeros = [("baseline", 0.0), ("1", 40_000.0), ("100", 0.0)]
    grey = _view("23", [{"panel": "XDP Native", "hue": "64B", "x": x, "value": y, "n": None} for x, y in zeros])
    sheet = printed_sheet(own, spec, behind=grey.marks)
    behind = [line for line in sheet.axes[0].lines if line.get_color() == GREY]
    assert [list(line.get_ydata()) for line in behind] == [[40_000.0]]
    text = render(sheet, "svg", style_named("paper-2col"), "x", {}).decode()
    assert "mathdefault" not in text
    assert "10k" in text


def test_panels_side_by_side_share_their_axis() -> None:
    spec = figure_named("18")
    rows: list[dict[str, object]] = [
        {"panel": f"{queues} {word} de processamento", "hue": "Native", "x": "64B", "value": float(queues)}
        for queues, word in ((1, "fila"), (2, "filas"), (4, "filas"), (8, "filas"))
    ]
    axes = printed_sheet(_view("18", rows), spec).axes
    assert len({ax.get_ylim() for ax in axes}) == 1
    assert [ax.yaxis.get_tick_params()["labelleft"] for ax in axes[1::2]] == [False, False]


@needs_data
def test_pooled_bars_have_the_bootstrap_interval_that_was_printed_and_others_none(published: pd.DataFrame) -> None:
    source = source_of(published)
    pooled = [spec for spec in published_figures() if pools_sizes(spec)]
    assert len(pooled) == 14
    view = published_view(source, pooled[0])
    known = view.marks[view.marks["low"].notna()]
    assert len(known) > 20
    assert (known["low"] <= known["value"] + 1e-9).all()
    assert (known["value"] <= known["high"] + 1e-9).all()
    assert published_view(source, pooled[0]).marks.equals(view.marks)
    assert "2022" in " ".join(view.caption)
    assert published_view(source, figure_named("25")).marks["low"].isna().all()


ENGLISH = re.compile(r"\b(the|of|no|with|too|few|was|not|frames?|printed|by|mean|counts?)\b")


@needs_data
def test_portuguese_figures_are_in_portuguese_and_the_printed_unit_is_kept(published: pd.DataFrame) -> None:
    source = source_of(published)
    for spec in published_figures()[::4]:
        for view in (published_view(source, spec, "pt"), corrected_view(source, spec, "pt")):
            words = " ".join((view.look.axes.x_label, view.look.axes.y_label, *view.caption))
            assert not ENGLISH.search(words.replace("`sleep 5`", "")), (spec.file, words)
    latency = published_view(source, figure_named("23"), "pt")
    assert latency.look.axes.y_label == "Latência (nanosegundos)"
    assert "segundos" in " ".join(latency.caption)
    assert "Taxa de transferência" in published_view(source, figure_named("19"), "pt").look.axes.y_label


# --- unusual files, and the way from a mark to its numbers ---


def test_a_fifo_a_folder_with_a_logs_name_and_crlf_stop_no_import(tmp_path: Path) -> None:
    place = names("resultados3", "xdpdrv", 1, 800, 64)
    rate = rate_pps(800)
    unix = {place["generator"]: generator(rate), place["sar"]: sar(rate, rate, {0: 100.0})}
    folder = write(tmp_path, {name: text.replace("\n", "\r\n") for name, text in unix.items()})
    fifo = names("resultados3", "xdpdrv", 1, 100, 64)["generator"]
    (folder / "experimentos" / fifo).parent.mkdir(parents=True)
    os.mkfifo(folder / "experimentos" / fifo)
    (folder / "experimentos" / names("resultados3", "xdpdrv", 1, 200, 64)["generator"]).mkdir(parents=True)
    found = read_thesis([folder], "0a0b")
    said = sorted(problem.text for problem in found.problems if "for_0_a_800" not in problem.file)
    assert said == ["a folder with the name of a log", "neither a file nor a folder"]
    (row,) = found.rows
    assert row["forwarded_pps"] == pytest.approx(rate, rel=1e-3)
    assert row["dut_count_pps"] == pytest.approx(rate, rel=1e-3)


def test_a_corrected_mark_is_explained_by_its_formula_and_in_english(tmp_path: Path) -> None:
    place, rate = names("resultados3", "xdpdrv", 1, 800, 64), rate_pps(800)
    folder = write(tmp_path / "clone", {place["generator"]: generator(rate), place["sar"]: sar(rate, rate, {0: 100.0})})
    run = import_thesis([folder], tmp_path / "results").run
    judged_trials = imported_trials(run)
    printed, english = (lines_of(judged_trials, "19", f"XDP {mode}|1|800") for mode in ("Native", "native"))
    assert printed == english
    (formula,) = [line for line in english if "× 8 / 10⁹" in line]
    assert f"{place['generator']}:119" in formula
    numbers = re.search(r": ([\d.]+) frames per second .* × (\d+) B .* = ([\d.]+) Gbit/s", formula)
    assert numbers is not None
    assert float(numbers[1]) * int(numbers[2]) * 8 / 1e9 == pytest.approx(float(numbers[3]), rel=1e-4)


def test_a_mark_from_sar_is_explained_by_counter_unit_lines_and_formula(tmp_path: Path) -> None:
    place, rate = names("resultados3", "xdpdrv", 8, 800, 64), rate_pps(800)
    text = sar(rate, rate, {0: 100.0, 2: 40.0})
    folder = write(tmp_path / "clone", {place["generator"]: generator(rate), place["sar"]: text})
    run = import_thesis([folder], tmp_path / "results").run
    said = lines_of(imported_trials(run), "25", "XDP Native|2|800")
    (formula,) = [line for line in said if "%soft (in %) of CPU 2" in line]
    found = re.search(r"sar's (\d+) samples .*\(lines (\d+) to (\d+)\).*: ([\d.]+) / (\d+) = ([\d.]+) %", formula)
    assert found is not None
    assert found[1] == found[5]
    assert float(found[4]) / int(found[5]) == pytest.approx(float(found[6]), rel=1e-4) == pytest.approx(40.0)
    for line in (int(found[2]), int(found[3])):
        assert text.split("\n")[line - 1].split()[1] == "2"


def test_the_perf_figures_of_the_text_are_found_by_their_numbers() -> None:
    families = [figure_named(str(number)).family for number in range(28, 34)]
    assert families == ["instructions", "instructions", "branches", "branches", "l1_loads", "l1_load_misses"]
