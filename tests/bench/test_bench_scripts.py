"""Each script of bench/ prints its help, ends with all its processes, and fails if it misses its aim."""

import ast
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from xdpgen.peers import MOONGEN, Work, peer_commands
from xdpgen_matrix import senders_of
from xdpgen_pktgen import took_us

pytestmark = pytest.mark.thorough

BENCH = Path(__file__).parents[2] / "bench"
SCRIPTS = sorted(BENCH.glob("*.py"))
LONGEST_S = 3600


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_its_last_statement_runs_it_bounded(script: Path) -> None:
    tree = ast.parse(script.read_text())
    last = tree.body[-1]
    assert isinstance(last, ast.If)
    assert ast.unparse(last.test) == "__name__ == '__main__'"
    (bounded,) = calls(last, "run")
    assert ast.unparse(last.body[-1]) == f"sys.exit({ast.unparse(bounded)})"
    assert [ast.unparse(argument) for argument in bounded.args] == ["__doc__", "measure"]
    (most,) = (keyword.value for keyword in bounded.keywords if keyword.arg == "most_s")
    assert 0 < ast.literal_eval(most) <= LONGEST_S


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_has_an_aim_that_can_be_missed(script: Path) -> None:
    """Each aim has a bound, and at least one aim has a measured value."""
    aims = calls(ast.parse(script.read_text()), "Aim")
    bounded = [aim for aim in aims if {"at_least", "at_most"} & {keyword.arg for keyword in aim.keywords}]
    assert aims == bounded
    assert any(not isinstance(aim.args[1], ast.Constant) for aim in bounded)


@pytest.mark.parametrize("queues", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 9])
def test_senders_leave_a_cpu_free(count: int, queues: int) -> None:
    """With senders of real-time priority on both of two CPUs, a bench had stood still for ten minutes."""
    cpus = tuple(range(3, 3 + count))
    sending = senders_of(cpus, queues)
    assert len(set(sending)) == len(sending) == max(1, min(queues, count - 1))
    assert set(sending) <= set(cpus)
    assert count == 1 or set(sending) < set(cpus)


def test_moongen_is_a_peer_where_it_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert peer_commands(tmp_path, Work()) == {}
    (tmp_path / MOONGEN).write_text("#!/bin/sh\n")
    (tmp_path / MOONGEN).chmod(0o755)
    (argv,) = peer_commands(tmp_path, Work(frame_bytes=1496, cpus=(1,), queues=4)).values()
    assert argv[argv.index(MOONGEN) + 1].endswith("moongen.lua")
    assert Path(argv[argv.index(MOONGEN) + 1]).is_file()
    assert argv[-2:] == ["1496", "4"]
    assert "cores = {1}" in (config := (tmp_path / "moongen-4.lua").read_text())
    assert "qpairs=4" in config
    assert peer_commands(tmp_path, Work(rate_pps=1000)) == {}  # it has no pace on this device


def test_pktgen_is_believed_only_if_it_sent_every_frame() -> None:
    told = "Params: count 20000\nCurrent:\n     pkts-sofar: 20000  errors: 0\n"
    result = "Result: OK: 189230(c189102+d128) usec, {} (60byte,0frags)\n  105691pps 50Mb/sec (50731680bps) errors: 0\n"
    assert took_us(told + result.format(20000), 20000) == 189230
    for text in (told, told + "Result: Idle\n", told + result.format(19999)):
        with pytest.raises(SystemExit, match="less than 20000 frames"):
            took_us(text, 20000)


def said(argv: list[str], timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)


def test_each_prints_its_help() -> None:
    assert len(SCRIPTS) >= 9
    with ThreadPoolExecutor(2) as pool:
        helped = pool.map(lambda script: said([sys.executable, str(script), "--help"]), SCRIPTS)
        for script, done in zip(SCRIPTS, helped, strict=True):
            assert done.returncode == 0, f"{script.name}: {done.stderr}"
            assert "--most-s" in done.stdout
            assert (ast.get_docstring(ast.parse(script.read_text())) or "?").splitlines()[0] in done.stdout


def bench(folder: Path, body: str, most_s: float = 60) -> list[str]:
    """Return the command of a made-up bench whose `measure` has this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    path = folder / "made.py"
    path.write_text(
        f"import subprocess, sys, time\nsys.path.insert(0, {str(BENCH)!r})\nfrom bounded import Aim, run\n"
        f"def measure(arguments):\n{lines}sys.exit(run('Made.', measure, most_s={most_s}))\n"
    )
    return [sys.executable, str(path)]


@pytest.mark.parametrize(
    ("aims", "code"),
    [
        ("Aim('a', 1.0, at_least=1), Aim('b', 2.0, at_most=2)", 0),
        ("Aim('a', 0.99, at_least=1)", 1),
        ("Aim('a', 1.0, at_least=1), Aim('b', 2.01, at_most=2)", 1),
        ("Aim('a', float('nan'), at_most=2)", 1),
        ("Aim('a', None, at_most=2, reason='no peer')", 0),
        ("Aim('a', None, at_most=2, reason='no peer'), Aim('b', 3.0, at_most=2)", 1),
        ("", 1),
    ],
)
def test_a_missed_aim_is_the_exit_code(aims: str, code: int, tmp_path: Path) -> None:
    done = said(bench(tmp_path, f"return [{aims}]"))
    assert done.returncode == code, done.stdout + done.stderr
    assert ("MISSED" in done.stdout) == (code == 1 and bool(aims))
    assert ("no peer" in done.stdout) == ("no peer" in aims)


def test_an_error_is_a_failure(tmp_path: Path) -> None:
    assert said(bench(tmp_path, "raise SystemExit('no lab')")).returncode == 1
    assert said(bench(tmp_path, "1 / 0")).returncode == 1


LEAVES_SENDERS = """
script = "import os, sys, time; os.fork() or os.setsid(); "
script += "open(sys.argv[1], 'a').write(f'{os.getpid()}\\\\n'); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", script, PIDS], start_new_session=True)
while len(open(PIDS).readlines()) < 2:
    time.sleep(0.02)
"""
"""A sender with a child in a session of its own, like trafgen; both outlive their parent."""


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("how", ["time", "signal", "end", "error"])
def test_nothing_of_it_stays(how: str, tmp_path: Path) -> None:
    ends = {"time": "time.sleep(600)", "signal": "time.sleep(600)", "end": "", "error": "1 / 0"}[how]
    pids = tmp_path / "pids"
    pids.touch()
    body = f"PIDS = {str(pids)!r}\n{LEAVES_SENDERS}\n{ends}\nreturn [Aim('a', 1, at_least=1)]"
    argv = bench(tmp_path, body, most_s=5 if how == "time" else 60)
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(pids.read_text().splitlines()) < 2:
        assert process.poll() is None or how in ("end", "error")
        time.sleep(0.02)
    started = [int(line) for line in pids.read_text().split()]
    if how == "signal":
        assert alive(started) == started
        os.kill(process.pid, signal.SIGTERM)
    _, words = process.communicate(timeout=60)
    assert process.returncode == {"time": 1, "signal": 143, "end": 0, "error": 1}[how]
    assert not alive(started)
    assert ("not finished after 5 s" in words) == (how == "time")


def test_its_blocks_end_before_it_is_killed(tmp_path: Path) -> None:
    """A bench takes down what it made: the next bench would find a namespace that is left."""
    mark = tmp_path / "taken-down"
    body = f"try:\n    time.sleep(600)\nfinally:\n    open({str(mark)!r}, 'w')"
    assert said(bench(tmp_path, body, most_s=1)).returncode == 1
    assert mark.exists()


def test_one_table_has_the_aims_of_every_script(tmp_path: Path) -> None:
    """`make bench` writes every aim between the page's marks, including aims that were not measured."""
    page = tmp_path / "page.md"
    page.write_text(
        "# Speed\n<!-- the table of make bench begins -->\nSTALE\n<!-- the table of make bench ends -->\nbelow\n"
    )
    done = said([sys.executable, str(BENCH / "bounded"), "thesis", "--page", str(page)])
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| thesis |")]
    assert len(rows) == 5
    assert all("| skipped |" in row and "not measured: no folder" in row for row in rows)
    assert text.startswith("# Speed\n<!--")
    assert text.endswith("<!-- the table of make bench ends -->\nbelow\n")
    assert "STALE" not in text
    assert f"{len(os.sched_getaffinity(0))} CPUs" in text


def test_rows_of_scripts_that_are_not_measured_again_stay(tmp_path: Path) -> None:
    kept = "| growth | a figure | 4.6 | ≤ 10 | met | 01-02 |"
    own = "### growth: its costs\n\n| trials | s |\n| --- | --- |\n| 100 | 0.1 |\n"
    page = tmp_path / "page.md"
    page.write_text(
        "# Speed\n<!-- the table of make bench begins -->\nold machine\n\n| bench | what |\n| --- | --- |\n"
        f"{kept}\n| gone | x | 1 | ≤ 1 | met | 01-02 |\n| thesis | STALE | 1 | ≤ 1 | met | 01-02 |\n\n{own}\n"
        "### thesis: STALE\n\n| a |\n| --- |\n<!-- the table of make bench ends -->\nbelow\n"
    )
    for _ in range(2):  # what it wrote is read again
        done = said([sys.executable, str(BENCH / "bounded"), "thesis", "--page", str(page)])
        assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert kept in text
    assert own in text
    assert text.count("| thesis |") == 5
    assert "STALE" not in text
    assert "| gone |" not in text
    assert "old machine" not in text


def made_up_bench(folder: Path) -> Path:
    """Return a folder like bench/ without its scripts."""
    made = folder / "bench"
    (made / "bounded").mkdir(parents=True)
    for name in ("__init__.py", "__main__.py"):
        (made / "bounded" / name).write_text((BENCH / "bounded" / name).read_text())
    return made


def test_what_is_written_into_the_page_meanwhile_stays(tmp_path: Path) -> None:
    """Each script's rows are written once it has ended: neither an edit nor another bench's row is lost."""
    bench, page = made_up_bench(tmp_path), tmp_path / "page.md"
    begin, end = (f"<!-- the table of make bench {word} -->" for word in ("begins", "ends"))
    page.write_text(f"# Speed\n{begin}\n| third | x | STALE | ≤ 1 | met | 01-02 |\n{end}\nbelow\n")
    edit = (
        "from pathlib import Path\npage = Path({page!r})\ntext = page.read_text()\n{check}\n"
        "page.write_text(text.replace('below', 'below, edited').replace('STALE', 'FRESH'))\nraise SystemExit(3)\n"
    )
    (bench / "first.py").write_text(edit.format(page=str(page), check=""))
    (bench / "second.py").write_text(edit.format(page=str(page), check="assert '| first | it ended' in text"))
    (bench / "third.py").touch()
    said([sys.executable, str(bench / "bounded"), "first", "second", "--page", str(page)])
    text = page.read_text()
    assert text.startswith(f"# Speed\n{begin}\n")
    assert text.endswith(f"{end}\nbelow, edited, edited\n")
    assert "| third | x | FRESH | ≤ 1 | met | 01-02 |" in text
    assert [text.count(f"| {name} | it ended with exit code 3") for name in ("first", "second")] == [1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench", "page.md"]


def test_a_script_that_ends_before_its_aims_is_a_row_with_the_machines_load_and_an_exit_code(tmp_path: Path) -> None:
    bench = made_up_bench(tmp_path)
    (bench / "broken.py").write_text("raise SystemExit(3)\n")
    done = said([sys.executable, str(bench / "bounded")])
    assert done.returncode == 1
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("| broken | it ended with exit code 3"))
    assert re.fullmatch(r"\d\d-\d\d, load \d+\.\d", row.strip("| ").rpartition(" | ")[2])
