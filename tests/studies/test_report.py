"""A run's page works without a network, makes no script of a stranger's run, and is readable in a browser."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import chromium
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner
from tests.analysis import synthetic

from xdplab.analysis.conclusions import Doubt
from xdplab.cli import cli
from xdplab.plan import load_plan, parse_plan
from xdplab.run.rundir import RunDirectory
from xdplab.studies.cost.points import CostRequest
from xdplab.studies.kinds import kind_named, open_run
from xdplab.studies.report import Part, Picture, again, cell, html, inlined, limits, number, plan_text
from xdplab.studies.tables import Table
from xdplab.studies.traffic.run_files import create_run

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "results" / "sample"
USERS_OWN = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int mine(struct xdp_md *ctx) { return XDP_TX; }
char _license[] SEC("license") = "GPL";
"""
EVIL = "</pre></style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'{{7*7}}"


class Tags(HTMLParser):
    """Return every tag with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDPLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        out = tmp_path_factory.mktemp("report") / "sample.html"
        done = CliRunner().invoke(cli, ["report", str(SAMPLE), "--out", str(out), "--license", "CC-BY-4.0"])
        assert done.exit_code == 0, done.output
    return out


def test_it_says_what_was_asked_found_and_not_shown(page: Path) -> None:
    text = page.read_text()
    assert "How does forwarding depend on accesses, mode, load?" in text
    for line in open_run(SAMPLE).summary():
        assert escape(line) in text, "a page's answer is what `show` says"
    assert '<span class="valid">21 valid</span>' in text
    assert "Sender, DUT and receiver share CPUs (a closed loop)" in text
    assert "clock changed" in text
    assert "@misc{xdplab-" in text
    assert "CC-BY-4.0" in text
    assert "error bars: 95 % t interval." in text, "a figure has the whole of its caption below it"


def test_it_needs_no_network(page: Path) -> None:
    for tag, attributes in Tags(page.read_text()).tags:
        for name in ("src", "href", "action", "data"):
            value = attributes.get(name) or ""
            assert not value or value.startswith("#"), (tag, value)
    assert page.stat().st_size < 3_000_000


def test_a_mark_says_its_value_interval_and_trials_without_a_script(page: Path) -> None:
    discs = re.findall(r'<circle [^>]*data-series="\d+"[^>]*><title>(.*?)</title>', page.read_text(), re.DOTALL)
    assert len(discs) > 20
    said = next(words for words in discs if words.startswith("native") and "n = 3" in words)
    assert re.search(r": [\d.]+ \[[\d.]+, [\d.]+\], n = 3\ntrials [0-9a-f]{12}-r…", said), said


def test_a_figure_keeps_its_shapes_and_nothing_else() -> None:
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="9pt" onload="a()">'
        '<metadata/><style>*{}</style><script>a()</script><image href="x"/><a href="javascript:a()"><g/></a>'
        '<defs><path id="m" onclick="a()"/></defs><use xlink:href="#m" style="fill: url(#h)"/>'
        '<use xlink:href="file:x"/><g id="series-1-7"/><g id="legend-1-8"/></svg>'
    )
    shown = inlined(svg.encode())
    tags = Tags(shown).tags
    assert [tag for tag, _ in tags] == ["svg", "defs", "path", "use", "use", "g", "g"]
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on") or name == "width"]
    ((_, path), (_, use), (_, other), (_, series), (_, legend)) = tags[2:]
    assert use["href"] == f"#{path['id']}"
    assert path["id"] != "m", "two figures on a page have ids of their own"
    assert use["style"] == f"fill: url(#{(path['id'] or '').removesuffix('m')}h)"
    assert (other, series, legend) == ({}, {"data-series": "1"}, {"data-legend": "1"})


def test_what_is_not_valid_is_not_said_to_be_in_no_figure() -> None:
    rows = synthetic.run(vary={"accesses": [0]}).copy()
    rows.loc[rows["repetition"].eq(1), "verdict"] = "invalid"
    assert limits(open_run(SAMPLE), rows)[-1] == (
        "1 of 3 trials are not valid: they are in no mean and no interval, and figures draw the invalid ones apart."
    )


def test_a_plan_with_files_is_measured_again_from_the_runs_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.bpf.c").write_text(USERS_OWN)
    own = {"file": str(tmp_path / "mine.bpf.c"), "action": "tx"}
    plan = parse_plan({"name": "own", "blocks": [{"points": {"mode": ["native"], "program": [own]}}]})
    run = open_run(create_run(plan, tmp_path / "made", lab="netns", arrangement="shared").path)
    Path("mine.bpf.c").unlink()
    assert CliRunner().invoke(cli, ["export", str(run.directory.path)]).exit_code == 0
    _, taken, measured, _ = again(run)
    assert CliRunner().invoke(cli, shlex.split(taken)[1:]).exit_code == 0
    verb, path = shlex.split(measured)[1:]
    assert verb == "run"
    assert load_plan(Path(path)).blocks


def test_a_page_says_which_file_a_study_lacks(tmp_path: Path) -> None:
    for types, lacks in (("types.txt", True), (None, False)):
        text = f"study: verifier\ntypes: {json.dumps(types)}\n"
        directory = RunDirectory.create(tmp_path, "verifier", run_id="ab12", plan_yaml=text)
        directory.write_json("points.json", {"points": [], "notes": []})
        assert ("types.txt" in again(open_run(directory.path))[0]) == lacks


@pytest.mark.thorough
def test_a_page_shows_the_modes_of_a_plan_whose_packets_were_counted(tmp_path: Path) -> None:
    """The request beside it has the defaults of the command line."""
    file = tmp_path / "own.yaml"
    file.write_text("name: own\nblocks: [{points: {mode: generic, accesses: 0, frame_bytes: 1500}}]\n")
    run = kind_named("cost").start(CostRequest(programs=(str(file),)), tmp_path / "results")
    asked, named = plan_text(run).split("# plan-1-own.yaml\n")
    assert "- native" in asked
    assert yaml.safe_load(named)["blocks"][0]["points"]["mode"] == ["generic"]


def test_two_runs_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of each run: test_it_says_what_was_asked_found_and_not_shown."""
    monkeypatch.setattr("xdplab.studies.report.drawn", lambda run: ([], []))
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    other = tmp_path / "other"
    shutil.copytree(SAMPLE, other, ignore=shutil.ignore_patterns("figures"))
    out = tmp_path / "both.html"
    done = CliRunner().invoke(cli, ["report", str(SAMPLE), str(other), "--out", str(out)])
    assert done.exit_code == 0, done.output
    text = out.read_text()
    assert "Did forwarded_pps change from sample to other?" in text
    assert "Answer: undecided (margin 2.0%)." in text
    assert "Figure ratio;" in text
    points = text.split("Points of both runs</p>")[1].split("</table>")[0]
    shown = re.findall(r'<button type="button">(\w+)', points)
    factors = ["mode", "load", "batch", "accesses"]  # of 52, those that differ between the points
    assert sorted(shown[: shown.index("n_a")]) == sorted(factors), "an answer is not out of sight"


def part(text: str) -> Part:
    frame = pd.DataFrame({text: [text, text], "Mpps": ["1.5 ± 0.2", "0.9 ± 0.1"]})
    return Part(
        name=text, run_id=text, question=text, answer=[text], limits=[text], place=[(text, text)],
        verdicts={text: 1}, doubts=[Doubt(text, text, 1, text)], remarks=[text],
        pictures=[Picture(text, "<svg/>", Table(text, frame), [text])], absent=[text],
        tables=[Table(text, frame)], plan=text, again=[text],
    )  # fmt: skip


def test_nothing_that_a_run_says_is_a_tag_or_a_script() -> None:
    """A stranger's run may contain anything in names, notes, plans and reasons."""
    plain, evil = (Tags(html([part(text)], part(text), author=text, licence=text)).tags for text in ("plain", EVIL))
    assert [tag for tag, _ in evil] == [tag for tag, _ in plain]
    assert [sorted(attributes) for _, attributes in evil] == [sorted(attributes) for _, attributes in plain]
    assert "49" not in html([part("{{7*7}}")], None).split("<main>")[1].split('<h2 id="about"')[0]
    policy = next(a["content"] for tag, a in plain if tag == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "'unsafe-inline'" not in policy.split("script-src")[1]


def test_bibtex_takes_nothing_that_it_would_read() -> None:
    entry = html([part("a}b\\input{x}")], None, author="A, B").split("@misc")[1].split("</pre>")[0]
    assert entry.count("{") == entry.count("}")
    assert "\\" not in entry


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("7.52 ± 0.31", "7.52"),
        ("9 (n = 2)", "9.0"),
        ("1.5 (1 to 2)", "1.5"),
        ("2,000 [42, 8,900] (n = 2)", "2000.0"),
        ("−3", "-3.0"),
        (4, "4.0"),
        ("3 valid", ""),
        ("64,128,1518", ""),
        (None, ""),
        ("af_xdp", ""),
        (float("nan"), ""),
    ],
)
def test_what_a_cell_is_sorted_by(value: object, key: str) -> None:
    assert number(value) == key


@pytest.mark.parametrize(
    ("value", "words"),
    [(32768.0, "32768"), (2.41666, "2.417"), (0.0, "0"), (64, "64"), (12051.52, "12052"), (-4353123.4, "-4353123")],
)
def test_a_number_keeps_the_digits_before_its_point(value: float, words: str) -> None:
    """A column with a null holds floats: a working set of 32768 bytes was 3.277e+04."""
    assert cell(value) == words


# --- in a real browser ---


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    path = chromium.binary()
    if path is None:
        pytest.skip("no Chromium in $PATH or $XDPLAB_CHROMIUM: `apt install chromium`")
    with chromium.Page(path, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


LUMINANCE = """
(() => {
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (text) => { const [r, g, b] = parse(text).map(channel); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (parse(c)[3] !== 0 && c !== 'transparent') return c; } return 'rgb(255,255,255)'; };
  let worst = 99, where = '';
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    if (['SCRIPT', 'title'].includes(e.tagName)) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < worst) { worst = ratio; where = e.tagName + ' ' + e.className; }
  }
  return [worst, where];
})()
"""


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (390, False), (390, True)])
def test_a_browser_draws_it_without_a_word_of_complaint(
    browser: chromium.Page, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width=width, dark=dark)
    drawn = browser.run(
        "[...document.querySelectorAll('figure svg')].map((s) => s.getBBox().width > 50 && s.clientWidth > 50)"
    )
    assert drawn == [True] * page.read_text().count("<figure>")
    assert len(drawn) >= 6
    assert browser.logged == []
    assert {url.partition(":")[0] for url in browser.asked} <= {"file", "data"}
    assert browser.run("document.documentElement.scrollWidth") <= width  # tables scroll by themselves
    cut = "[...document.querySelectorAll('section > .wide')].filter((t) => t.scrollWidth > t.clientWidth).length"
    assert width < 1000 or browser.run(cut) == 0
    worst, where = browser.run(LUMINANCE)
    assert worst >= 4.5, f"WCAG AA asks for 4.5, {where} has {worst:.2f}"


def test_tables_are_sorted_by_the_keyboard(browser: chromium.Page, page: Path) -> None:
    browser.open(page)
    column = "[...document.querySelectorAll('section > div.wide tbody tr')].map((r) => r.cells[4].dataset.number)"
    before = [float(value) for value in browser.run(column)]
    browser.run("document.querySelectorAll('section > div.wide th button')[3].focus()")
    browser.press("Tab", 9)
    assert browser.run("document.activeElement.textContent") == "Mpps"
    for wanted, said in ((sorted(before), "ascending"), (sorted(before, reverse=True), "descending")):
        browser.press("Enter", 13, "\r")
        assert [float(value) for value in browser.run(column)] == wanted
        assert browser.run("document.activeElement.parentNode.getAttribute('aria-sort')") == said


ENTRY = "document.querySelector('figure svg [data-legend=\"0\"]')"
SEEN = (
    f"[...{ENTRY}.closest('svg').querySelectorAll('[data-series=\"0\"]')]"
    ".filter((shape) => shape.getBoundingClientRect().width > 0).length"
)


def test_a_series_is_hidden_by_the_keyboard_and_by_a_click(browser: chromium.Page, page: Path) -> None:
    browser.open(page)
    shown = browser.run(SEEN)
    assert shown > 1
    browser.run(f"{ENTRY}.focus()")
    browser.press("Enter", 13, "\r")
    assert (browser.run(SEEN), browser.run(f"{ENTRY}.getAttribute('aria-pressed')")) == (0, "false")
    browser.run(f"{ENTRY}.dispatchEvent(new MouseEvent('click'))")
    assert (browser.run(SEEN), browser.run(f"{ENTRY}.getAttribute('aria-pressed')")) == (shown, "true")


def test_the_element_under_the_pointer_on_a_mark_has_its_tooltip(browser: chromium.Page, page: Path) -> None:
    """The disc is where the browser draws the mark's own shape, and above everything else."""
    browser.open(page)
    found = browser.run(
        "[...document.querySelectorAll('figure svg')].map((svg) => {"
        " const disc = svg.querySelector('circle[data-series]'); if (!disc) return null; disc.scrollIntoView();"
        " const box = disc.getBoundingClientRect();"
        " return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2)?.textContent ?? ''; })"
    )
    assert sum(words is not None for words in found) >= 5
    assert all("trials " in words for words in found if words is not None)


def test_it_prints_on_few_pages(browser: chromium.Page, page: Path) -> None:
    browser.open(page, dark=True)
    assert 1 <= browser.pdf().count(b"/Type /Page\n") <= 8


def test_a_strangers_script_does_not_run(browser: chromium.Page, tmp_path: Path) -> None:
    """Even if escaping failed: the page's policy allows only one script."""
    path = tmp_path / "evil.html"
    path.write_text(html([part(EVIL)], None).replace("</main>", "<script>document.title = 'run'</script></main>"))
    browser.open(path)
    assert browser.run("document.title") != "run"
    complaints: list[Any] = [line for line in browser.logged if "Content Security Policy" in line]
    assert len(complaints) == 1
