"""The thesis' figures: the list of 110; marks as published and corrected, drawn, checked and explained."""

import itertools
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.axes import Axes
from tests.thesis.thesis_logs import DATA, judged, needs_data

from xdplab.errors import FigureError
from xdplab.figures.save import render
from xdplab.figures.styles import STYLES
from xdplab.thesis import printed
from xdplab.thesis.album import Edition, regenerate
from xdplab.thesis.language import Language
from xdplab.thesis.made_logs import generator, names, perf, rate_pps, sar, tree
from xdplab.thesis.printed import printed_sheet
from xdplab.thesis.published import (
    MARK_COLUMNS,
    axis_power,
    check_marks,
    figure_named,
    printed_rows,
    published_figures,
    published_marks,
    read_marks,
)
from xdplab.thesis.views import corrected_view, published_view, source_of, translated


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Judged trials of a made-up tree, with the repetitions that the figures were drawn from."""
    files = tree()
    for queues in (1, 2):
        for size in (64, 128):
            rate = rate_pps(0, queues)
            place = names("resultados3", "xdpdrv", queues, 0, size)
            files[place["generator"]] = generator(rate, latency_s=4096 * queues / rate)
            files[place["sar"]] = sar(rate, rate, dict.fromkeys(range(queues), 80.0 + size / 8))
            files[place["perf"]] = perf(1_200_000 + size)
    return judged(tmp_path_factory.mktemp("made"), files)


def marks_of(trials: pd.DataFrame, name: str) -> pd.DataFrame:
    return published_marks(printed_rows(trials), figure_named(name))


def value(marks: pd.DataFrame, panel: str, hue: str, x: str) -> float:
    found = marks[(marks["panel"] == panel) & (marks["hue"] == hue) & (marks["x"] == x)]["value"]
    assert len(found) == 1
    return float(found.iloc[0])


@needs_data
def test_the_list_is_that_of_the_published_figures() -> None:
    listed = pd.read_csv(DATA / "figures-list.csv", comment="#", dtype=str).fillna("")
    assert [(s.file, s.family, s.kind) for s in published_figures()] == list(
        listed[["file", "family", "kind"]].itertuples(index=False, name=None)
    )


@needs_data
def test_the_six_development_figures_are_equal_mark_by_mark(published: pd.DataFrame) -> None:
    reference = read_marks(DATA / "figures-dev.csv")
    rows = printed_rows(published)
    marks = pd.concat([published_marks(rows, figure_named(str(file))) for file in reference["file"].unique()])
    checks = {check.file: check for check in check_marks(marks, reference)}
    softirq = checks.pop("uso_CPU_ID_CPU_x_algoritmo@64_combined_8.pdf")
    assert all(check.equal for check in checks.values()), checks
    # This part of resultados_af_xdp2 has six of the ten access counts: 4 x 8 bars are absent, not 0.
    assert (softirq.off, softirq.absent, softirq.extra) == (0, 32, 0)


@needs_data
def test_every_figure_has_the_listed_labels_where_the_data_are_whole(published: pd.DataFrame) -> None:
    """resultados3 and resultados_af_xdp3 are complete here: labels, their order and absent marks are as listed."""
    listed = pd.read_csv(DATA / "figures-list.csv", comment="#", dtype=str).fillna("").set_index("file")
    rows, compared = printed_rows(published), 0
    for spec in published_figures():
        if set(spec.repetitions.values()) != {3}:
            continue
        marks, wanted = published_marks(rows, spec), listed.loc[spec.file]
        for column, name in (("panel", "panels"), ("hue", "hues"), ("x", "x_values")):
            assert "|".join(dict.fromkeys(marks[column])) == wanted[name], (spec.file, column)
        compared += 1
    assert compared == 81


def test_published_throughput_is_the_last_mean_rate_and_zero_bars_are_no_marks(made: pd.DataFrame) -> None:
    marks = marks_of(made, "19")
    assert tuple(marks.columns) == MARK_COLUMNS
    assert set(marks["panel"]) == {"XDP Native"}
    assert value(marks, "XDP Native", "1", "800") == pytest.approx(rate_pps(800) * 64 * 8 / 1e9, rel=1e-6)


def test_a_deaf_generator_is_drawn_as_a_line_at_zero_and_as_no_bar(made: pd.DataFrame) -> None:
    deaf = made.assign(repetition=made["repetition"].replace({2: 3, 3: 9}), queues=8)
    line, bar = marks_of(deaf, "22"), marks_of(deaf, "19")
    assert value(line, "XDP Native", "64B", "3200") == 0
    assert "3200" not in set(bar[bar["panel"] == "XDP Native"]["x"])
    assert value(marks_of(deaf, "23"), "XDP Native", "64B", "3200") == 0


def test_softirq_is_the_last_sample_pooled_over_sizes_where_none_is_held(made: pd.DataFrame) -> None:
    name = "complementares/uso_CPU_ID_CPU_x_algoritmo@combined_2_para_tudo.pdf"
    marks = marks_of(made, name)
    assert set(marks["hue"]) == {"0", "1"}
    assert value(marks, "XDP Native", "0", "baseline") == pytest.approx((88 + 96) / 2)


def test_perf_counts_take_the_power_of_ten_of_their_axis(made: pd.DataFrame) -> None:
    instructions = marks_of(made, "complementares/instrucoes_hook_ebpf_x_algoritmo@packet_size_64.pdf")
    assert value(instructions, "XDP Native", "1", "baseline") == pytest.approx(1.200064)
    branches = marks_of(made, "complementares/branches_hook_x_algoritmo@64B.pdf")
    assert value(branches, "XDP Native", "1", "baseline") == 204_219
    assert [axis_power(pd.Series([v])) for v in (900_000.0, 960_000.0, 2e7, 0.0)] == [1, 1e6, 1e7, 1]


def test_negative_latency_is_dropped(made: pd.DataFrame) -> None:
    negative = made.assign(
        published_latency_s=made["published_latency_s"].mask(made["accesses"] == 800, -3.0), queues=8
    )
    assert "800" not in set(marks_of(negative, "23")["x"])


def test_corrected_latency_is_in_microseconds_and_says_what_it_is(made: pd.DataFrame) -> None:
    view = corrected_view(source_of(made.assign(queues=8)), figure_named("23"))
    native = view.marks[(view.marks["panel"] == "XDP Native") & (view.marks["x"] == "800")].iloc[0]
    assert native["value"] == pytest.approx(4096 / rate_pps(800) * 1e6, rel=1e-2)
    assert "fill of a ring" in " ".join(view.caption)


def test_a_published_panel_without_a_value_is_named_below_the_page(made: pd.DataFrame) -> None:
    source = source_of(made)
    caption = " ".join(published_view(source, figure_named("18")).look.words.caption)
    assert "No value in the logs at hand: 4 queues, 8 queues." in caption
    assert "disponíveis: 4 filas" in " ".join(published_view(source, figure_named("18"), "pt").look.words.caption)


@pytest.mark.parametrize("language", [pytest.param("en", marks=pytest.mark.thorough), "pt"])
def test_words_below_an_axis_do_not_touch_and_legends_end_on_the_page(made: pd.DataFrame, language: Language) -> None:
    """Ten access counts below each of four panels need smaller words than the printed ones."""
    source = source_of(made)
    for layout in {(spec.panel, spec.x, spec.family): spec for spec in published_figures()}.values():
        view = published_view(source, layout, language)
        sheet = printed_sheet(view, layout, language=language)
        renderer = sheet.canvas.get_renderer()  # type: ignore[attr-defined]
        boxes = [
            word.get_window_extent(renderer)
            for ax in sheet.axes
            for word in ax.get_xticklabels()
            if word.get_visible() and word.get_text() and ax.xaxis.get_tick_params()["labelbottom"]
        ]
        for one, other in itertools.combinations(boxes, 2):
            assert not one.overlaps(other), layout.file
        (legend,) = sheet.legends
        assert legend.get_window_extent(renderer).x1 <= sheet.bbox.x1, layout.file


def test_corrected_softirq_is_the_steady_mean(made: pd.DataFrame) -> None:
    source = source_of(made)
    name = "complementares/uso_CPU_ID_CPU_x_algoritmo@Native_combined_1.pdf"
    marks = corrected_view(source, figure_named(name)).marks
    assert value(marks, "Pacotes de 64B", "0", "800") == pytest.approx((18 * 100 + 50) / 19, rel=1e-3)
    assert value(published_view(source, figure_named(name)).marks, "Pacotes de 64B", "0", "800") == 50


def test_corrected_perf_has_no_mark_and_the_reason(made: pd.DataFrame) -> None:
    view = corrected_view(source_of(made), figure_named("28"))
    assert view.marks.empty
    name = "complementares/instrucoes_hook_ebpf_x_algoritmo@packet_size_64.pdf"
    assert "sleep 5" in " ".join(corrected_view(source_of(made), figure_named(name)).look.words.caption)


def test_a_corrected_figure_of_which_nothing_was_measured_says_so(made: pd.DataFrame) -> None:
    view = corrected_view(source_of(made[made["frame_bytes"] == 64]), figure_named("21"))
    assert view.caption == ("Nothing of this figure was measured.",)


def test_labels_are_drawn_in_english_and_kept_in_the_marks(made: pd.DataFrame) -> None:
    view = published_view(source_of(made), figure_named("18"))
    shown = translated(view, "en")
    assert set(view.marks["panel"]) == {"1 filas de processamento", "2 filas de processamento"}
    assert set(shown.marks["panel"]) == {"1 queue", "2 queues"}
    assert set(translated(view, "pt").marks["panel"]) == set(view.marks["panel"])


def test_a_figure_is_files_of_each_format_and_its_marks(made: pd.DataFrame, tmp_path: Path) -> None:
    specs = [figure_named("18"), figure_named("complementares/branches_hook_x_algoritmo@64B.pdf")]
    done = regenerate(made, Edition(tmp_path, formats=("svg", "pdf", "png"), figures=specs), processes=2)
    assert len(done) == 4
    for one in done:
        assert [file.suffix for file in one.files] == [".svg", ".pdf", ".png", ".csv"]
        assert all(file.stat().st_size > 50 for file in one.files)
    marks = pd.read_csv(tmp_path / "as-published" / "vazao_XDP_x_packet_size@baseline.csv")
    assert tuple(marks.columns) == MARK_COLUMNS
    assert set(marks["file"]) == {"vazao_XDP_x_packet_size@baseline.pdf"}
    assert (tmp_path / "corrected/complementares/branches_hook_x_algoritmo@64B.png").exists()  # empty, with its reason


def test_a_page_is_the_same_to_the_byte_with_plain_axes(made: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = figure_named("18")
    view = published_view(source_of(made), spec)
    pages = [render(printed_sheet(view, spec), "svg", STYLES["paper-1col"], "page", {})]
    monkeypatch.setattr(printed, "Panel", Axes)
    pages.append(render(printed_sheet(view, spec), "svg", STYLES["paper-1col"], "page", {}))
    assert pages[0] == pages[1]


def test_the_check_sees_what_is_off_absent_and_extra(made: pd.DataFrame) -> None:
    marks = marks_of(made, "19")
    assert [check.equal for check in check_marks(marks, marks)] == [True]
    changed = marks.assign(value=marks["value"] * [1.0, 1.01, *[1.0] * (len(marks) - 2)])
    (check,) = check_marks(changed.iloc[1:], marks.iloc[:-1])
    assert (check.off, check.absent, check.extra) == (1, 1, 1)


def test_a_bar_of_no_height_is_as_good_as_none(made: pd.DataFrame) -> None:
    marks = marks_of(made, "19")
    zero = marks.iloc[[0]].assign(hue="8", value=0.0)
    assert check_marks(marks, pd.concat([marks, zero]))[0].equal


def test_a_figure_that_is_none_is_refused_with_what_is_like_it() -> None:
    with pytest.raises(FigureError, match="did you mean complementares/vazao"):
        figure_named("vazao_combined")
