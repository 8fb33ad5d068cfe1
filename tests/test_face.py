"""The notebook's verbs exist, whatever was imported before them."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.figure import Figure
from seaborn.axisgrid import FacetGrid

import xdplab as xl
from xdplab import completion, notebook
from xdplab.doctor.checks import Row
from xdplab.doctor.table import checks
from xdplab.errors import FigureError, PlanError
from xdplab.figures.catalogue import CATALOGUE
from xdplab.plan import FACTORS
from xdplab.shown import ReadableFrame

FIRST = ("pass", "import xdplab.plan", "import xdplab.notebook")
EACH = """
import os, sys
import matplotlib.pyplot, pandas, pyarrow.parquet, pydantic, scipy.stats, seaborn
assert not any(name.startswith("xdplab") for name in sys.modules)
for first in sys.argv[1:]:
    if os.fork() == 0:
        exec(first)
        import xdplab as xl
        assert all(callable(getattr(xl, name)) for name in xl.__all__), first
        sys.exit()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def test_the_verbs_are_functions() -> None:
    """In processes that have other people's libraries only: their imports take most of an interpreter's time."""
    done = subprocess.run([sys.executable, "-c", EACH, *FIRST], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["0"] * len(FIRST), done.stderr


def test_a_plan_shows_its_points_blocks_and_minutes() -> None:
    plan = xl.plan(program=[xl.program("chase", accesses=n) for n in (100, 400)], mode=["native", "generic"], queues=2)
    assert "6 points x 3 repetitions = 18 trials" in repr(plan)
    assert "native on 2 queues" in repr(plan)
    assert set(plan.points["accesses"]) == {0, 100, 400}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("colour", "colour"),
        ("acceses", "did you mean accesses"),
        ("programm", "did you mean program"),
        ("repetition", "did you mean repetitions"),
    ],
)
def test_an_unknown_factor_is_named_and_what_a_typo_means_is_asked(name: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        xl.plan(**{name: 1})


@pytest.mark.parametrize("verb", [xl.plan, xl.race])
def test_the_factors_are_parameters_with_the_words_they_take(verb: Any) -> None:
    parameters = inspect.signature(verb).parameters
    assert {factor.name for factor in FACTORS if factor.where} <= set(parameters)
    assert "native" in str(parameters["mode"].annotation)


def test_the_runs_of_a_notebook_lie_in_the_root_of_its_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notebooks" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "notebooks" / "deep")
    assert notebook.results() == Path("results"), "outside of a project they lie here"
    (tmp_path / ".git").mkdir()
    assert notebook.results().resolve() == tmp_path / "results"


@pytest.fixture
def shell() -> Any:
    """IPython with the verbs and a run, as a notebook has it."""
    interactive = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    interactive.user_ns |= {"xl": xl, "run": xl.open(SAMPLE)}
    return interactive


def test_an_error_of_ours_is_one_line_and_its_traceback_is_there_on_request(
    shell: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
    shell.run_cell("xl.plan(colour=1)")
    assert len(capsys.readouterr().out.splitlines()) == 1
    shell.run_line_magic("xmode", "Verbose")
    shell.run_cell("xl.plan(colour=1)")
    assert "_check_names" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("run.figure('thr", ["throughput"]),
        ("xl.plan('p', mode=['native', 'gen", ["generic"]),
        ("xl.lab('net", ["netns"]),
        ("run.figure('throughput', style='sli", ["slides"]),
        ("run.plot('forwarded_pp", ["forwarded_pps"]),
        ("run.figure('throughput', width='ac", ["acm"]),
        ("run.figure('throughput', hue='", ["accesses", "mode", "load"]),
        ("run.figure('throughput', panel='load,mo", ["load,mode"]),
        ("run.figure('throughput', where={'lo", ["load"]),
        ("run.figure('throughput', where={'forwarded_pp", ["forwarded_pps"]),
        ("run.figure('throughput', where={'mode': 'nat", ["native"]),
        ("run.figure('throughput', where={'mode': ['native', 'gen", ["generic"]),
        ("run.plot('forwarded_pps', where={'load': 'max', 'mo", ["mode"]),
        ("xl.compare(run, run, metric='forwarded_pp", ["forwarded_pps"]),
        ("xl.open('results/sam", ["results/sample"]),
        ("xl.study('ver", ["verifier"]),
        ("xl.study('verifier', kernels='5.1", ["5.10"]),
        ("xl.race('arr", ["array"]),
        ("xl.cost('array:10', kernel=['6.1', '5.1", ["5.10"]),
        ("xl.cost('array:10', mode='test", ["test_run"]),
        ("xl.race('array', 'chase', other_lab='net", ["netns"]),
        ("lab.search('array', profile='csi", ["csit"]),
        ("open('sli", []),
        ("run.notes", []),
    ],
)
def test_within_quotes_stands_what_the_verb_takes(sample: Any, line: str, offered: list[str]) -> None:
    begun, words = completion.within_quotes(line, {"run": sample})
    assert words[: len(offered)] == offered
    assert bool(words) == bool(offered)
    assert line.endswith(begun)


SAMPLE = Path(__file__).resolve().parents[1] / "results" / "sample"


@pytest.fixture(scope="module")
def sample() -> Any:
    return xl.open(SAMPLE)


def test_completion_offers_the_verbs_and_nothing_else() -> None:
    assert dir(xl) == sorted(xl.__all__)
    shell = pytest.importorskip("IPython.core.completer").IPCompleter(namespace={"xl": xl})
    for jedi in (False, True):
        shell.use_jedi = jedi
        with pytest.importorskip("IPython.core.completer").provisionalcompleter():
            offered = {found.text.lstrip(".") for found in shell.completions("xl.", 3)}
        assert {name.removeprefix("xl.") for name in offered} == set(xl.__all__), jedi


def test_help_on_plan_has_every_factor_with_its_unit_and_default() -> None:
    text = inspect.getdoc(xl.plan) or ""
    for factor in FACTORS:
        if factor.where:
            (line,) = [line for line in text.splitlines() if line.split()[:1] == [factor.name]]
            assert "default " in line
            assert f"({factor.unit})" in line or not factor.unit


def test_a_plan_takes_the_names_of_a_plan_file() -> None:
    made = xl.plan(program="lookup", accesses=[0, 100], map_type="hash")
    assert set(made.points["map_type"].dropna()) == {"hash"}


def test_a_plan_shows_what_varies_as_a_table_and_folds_the_rest() -> None:
    shown = xl.plan(program="array", accesses=[0, 100], mode=["native", "generic"])._repr_html_()
    heads = re.findall(r"<th>(\w+)</th>", shown)
    assert set(heads) == {"mode", "accesses"}
    assert "frame_bytes 64" in shown.partition("<details>")[2], "the rest is folded"


def test_a_plan_says_of_all_points_only_what_each_of_them_has(tmp_path: Path) -> None:
    (tmp_path / "mine.bpf.c").write_text('SEC("xdp") int mine(void *ctx) { return 3; }')
    own = xl.program(str(tmp_path / "mine.bpf.c"), action="tx")
    shown = xl.plan(program=[own, xl.program("array", accesses=0)])._repr_html_()
    alike = re.search(r"</summary>(.*?)</details>", shown)
    assert "frame_bytes 64" in alike[1]
    assert "nan" not in alike[1]
    assert "mine" not in alike[1]


def test_null_cells_of_any_type_are_empty() -> None:
    cells: dict[str, list[Any]] = {"Float64": [1.5, None], "Int64": [1, None], "float64": [1.5, None]}
    cells |= {dtype: ["a", None] for dtype in ("string", "object")}
    frame = ReadableFrame({dtype: pd.array(values, dtype=dtype) for dtype, values in cells.items()})
    assert frame._repr_html_().count("<td></td>") == len(cells)


def test_of_a_broad_table_the_first_columns_are_shown_and_the_rest_is_counted(sample: Any) -> None:
    shown = sample.trials._repr_html_()
    heads = re.findall(r"<th>([a-z]\w+)</th>", shown)
    assert heads == list(sample.trials.columns[: len(heads)])
    assert f"{len(heads)} of {len(sample.trials.columns)} columns" in shown


def test_a_run_links_to_files_that_a_browser_finds_from_the_notebooks_folder(sample: Any) -> None:
    links = re.findall("href='(.*?)'", sample._repr_html_())
    assert links
    assert all(Path(link).is_file() and not Path(link).is_absolute() for link in links)


def test_the_names_of_figures_are_in_the_help_and_in_the_run(sample: Any) -> None:
    text = inspect.getdoc(type(sample).figure) or ""
    assert all(name in text for name in CATALOGUE)
    assert sample.figures == list(CATALOGUE)


def test_figure_returns_a_figure_of_the_asked_size_with_or_without_its_caption(sample: Any) -> None:
    drawn = sample.figure("throughput", width=5, height="3in", caption=False)
    assert isinstance(drawn, Figure)
    assert list(drawn.get_size_inches()) == [5, 3]
    assert len(drawn.texts) < len(sample.figure("throughput").texts)


def test_figure_draws_into_axes_of_ones_own_and_says_where_one_panel_is_not_enough(sample: Any) -> None:
    sheet = Figure()
    left, right = sheet.subplots(1, 2)
    assert sample.figure("throughput", ax=left, where={"mode": "native"}) is sheet
    assert left.lines
    assert not right.lines
    with pytest.raises(FigureError, match="cannot hold 3 panels"):
        sample.figure("throughput", ax=right)


def test_trials_show_first_what_varies_and_what_was_found(sample: Any) -> None:
    first = list(sample.trials.columns[:8])
    assert set(first[:3]) == {"accesses", "mode", "load"}
    assert {"repetition", "forwarded_pps"} <= set(first)
    assert set(sample.trials.columns) == set(sample.on_disk.rows().columns)


def test_state_and_proof_read_as_sentences(sample: Any) -> None:
    assert repr(sample.state) == "21 trials: 21 measured"
    proof = xl.program("array", accesses=16).proof
    assert repr(proof).startswith("16 of 16 accesses, 1 way: bytecode")
    assert "<details>" in proof._repr_html_()


def test_doctors_rows_show_problems_first_with_whole_remedies() -> None:
    remedy = "install " + "x" * 200
    found = checks([Row("dut", "clang", "19", "ok"), Row("tg", "perf", "<none>", "missing", remedy)])
    headline, first, what_to_do, folded = repr(found).splitlines()
    assert headline.startswith("1 needed thing missing")
    assert first.split() == ["missing", "tg:", "perf:", "<none>"]
    assert what_to_do.strip() == remedy
    assert folded.startswith("1 ok")
    assert "clang" not in repr(found)
    assert "nan" not in found._repr_html_()
    assert "&lt;none&gt;" in found._repr_html_()
    assert remedy in found._repr_html_()


def test_plots_are_seaborns_and_never_join_points(sample: Any) -> None:
    grid = sample.plot("forwarded_pps", "accesses", hue="mode", where={"load": "max"}, height=2, errorbar=None)
    assert isinstance(grid, FacetGrid)
    means = sample.on_disk.rows().query("load == 'max' and accesses == 0").groupby("mode")["forwarded_pps"].mean()
    drawn = sorted(float(line.get_ydata()[0]) for line in grid.ax.lines if len(line.get_ydata()) == 2)
    assert drawn == pytest.approx(sorted(float(mean) for mean in means))
    words = sample.plot("testrun_raw_ns", "mode", hue="accesses", where={"load": "max"})
    assert isinstance(words, FacetGrid)
    crossed = sample.plot("forwarded_pps", panel="load,mode", errorbar=None)
    assert (set(crossed.row_names), set(crossed.col_names)) == ({"max", "20kpps"}, set(sample.trials["mode"]))
    with pytest.raises(FigureError, match=r"would join .* differ in mode, load"):
        sample.plot("forwarded_pps", "accesses")
    with pytest.raises(FigureError, match=r"no column .forwarded.*forwarded_pps"):
        sample.plot("forwarded")
    plt.close("all")


def test_rates_over_time_and_latencies_come_from_samples_and_histograms(sample: Any) -> None:
    rates = sample.over_time(hue="mode", panel="accesses", where={"load": "max"})
    assert len(rates.axes.flat) == 2
    assert [ax.get_title() for ax in rates.axes.flat] == ["accesses = 0", "accesses = 400"]
    first = rates.axes.flat[0]
    assert (first.get_xlabel(), first.get_ylabel()) == ("t_s (s)", "rx_pps (1/s)")
    rates.figure.canvas.draw()
    assert any(tick.get_text().endswith(" M") for tick in first.get_yticklabels())
    # In some trials of this run the last interval ends half a second after the sender: its rate would look like a drop.
    drawn = [line.get_ydata() for ax in rates.axes.flat for line in ax.lines if len(line.get_ydata())]
    assert len(drawn) == 18
    assert all(min(values) > 0.5 * max(values) for values in drawn)
    trial = sample.on_disk.rows().query("load == '20kpps'").iloc[0]
    cdf = sample.latency_cdf(where={"trial_id": trial["trial_id"]})
    (line,) = cdf.ax.lines
    below = line.get_xdata()[line.get_ydata() >= 0.5][0]
    assert below * 1e3 == pytest.approx(float(trial["latency_p50_ns"]), rel=0.02)
    plt.close("all")


def test_a_study_that_does_not_exist_or_an_option_it_lacks_is_named() -> None:
    with pytest.raises(PlanError, match=r"no study .verify.*execution"):
        xl.study("verify")
    with pytest.raises(PlanError, match=r"colour: no field of study execution.*benchmarks"):
        xl.study("execution", colour="red")
