"""Which objects bpfverify and veristat race over, and which counts are called equal."""

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
HEAD = "file_name,prog_name,verdict,total_insns,total_states,peak_states"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import verifier_veristat

    yield verifier_veristat
    del sys.modules["verifier_veristat"], sys.modules["bounded"]


def tool(bench, folder: Path, name: str, lines: list[str]):
    """Return a tool that prints the lines of the objects it is given, and keeps a list of its calls."""
    (folder / name).write_text("\n".join(lines) + "\n")
    script = (
        f'echo "$@" >> {folder}/{name}.calls; echo {HEAD}; for p; do grep "^${{p##*/}}," {folder}/{name}; done; true'
    )
    return bench.Tool(("sh", "-c", script, name), bench.veristat_said)


OURS = ["both.o,a,success,1,2,3", "both.o,b,failure,9,9,9", "more.o,a,success,1,2,3", "more.o,b,success,1,2,3"]
THEIRS = ["both.o,a,success,1,2,3", "more.o,a,success,1,2,3", "more.o,b,failure,0,0,0", "none.o,a,failure,0,0,0"]
PATHS = ["/c/both.o", "/c/more.o", "/c/none.o"]


def test_an_object_of_which_one_accepts_more_is_not_raced(bench, tmp_path):
    ours, theirs = tool(bench, tmp_path, "ours", OURS), tool(bench, tmp_path, "theirs", THEIRS)
    row = bench.race(ours, theirs, PATHS, turns=2)
    assert (row["objects"], row["raced"], row["programs"], row["counts apart"]) == (3, 1, 1, 0)
    assert (row["accepted by bpfverify"], row["by veristat"]) == (3, 2)
    for name in ("ours", "theirs"):
        assert (tmp_path / f"{name}.calls").read_text().splitlines() == [" ".join(PATHS), "/c/both.o", "/c/both.o"]


def test_a_count_that_differs_is_counted(bench, tmp_path):
    ours = tool(bench, tmp_path, "ours", ["both.o,a,success,1,2,3", "both.o,b,success,1,2,3"])
    theirs = tool(bench, tmp_path, "theirs", ["both.o,a,success,1,2,4", "both.o,b,success,1,2,3"])
    row = bench.race(ours, theirs, PATHS, turns=1)
    assert row["counts apart"] == 1
    assert [aim.missed for aim in bench.aims(row["counts apart"], 1.0)] == [True, False]
    assert [aim.missed for aim in bench.aims(0, 1.01)] == [False, True]


def test_nothing_in_common_is_not_measured(bench, tmp_path):
    ours, theirs = tool(bench, tmp_path, "ours", OURS[2:]), tool(bench, tmp_path, "theirs", THEIRS[:1])
    row = bench.race(ours, theirs, PATHS, turns=1)
    assert (row["raced"], row["ratio"], row["counts apart"]) == (0, None, None)


def test_bpfverifys_lines_become_the_same_counts(bench):
    line = (
        b'{"object": "/c/both.o", "name": "a", "section": "xdp", "verdict": "accepted", '
        b'"log": "verification time 5 usec\\n'
        b'processed 7 insns (limit 1000000) max_states_per_insn 1 total_states 2 peak_states 3 mark_read 1\\n"}\n'
    )
    assert bench.bpfverify_said(line) == {("both.o", "a"): (7, 2, 3)}
