"""Where the verifier's work comes from: steps of its log by source line, which add up to its own count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from xdplab.cli import cli
from xdplab.errors import FormatError, ProgramError
from xdplab.studies.verifier import hotspots
from xdplab.studies.verifier.hotspots import NO_LINE, by_line

LOG = """func#0 @0
      0: .......... (b7) r6 = 0
0: R1=ctx() R10=fp0
; int i = 0; @ p.bpf.c:3
0: (b7) r6 = 0                        ; R6=0
; i += 1; @ p.bpf.c:5
1: (07) r6 += 1                       ; R6=1
2: (15) if r6 == 0x2 goto pc+1
mark_precise: frame0: regs=r6 stack= before 1: (07) r6 += 1
2: R6=1
3: (05) goto pc-3
1: (07) r6 += 1                       ; R6=2
2: (15) if r6 == 0x2 goto pc+1        ; R6=2
; return i; @ p.bpf.c:7
4: (95) exit

from 2 to 4: safe
verification time 12 usec
processed 8 insns (limit 1000000) max_states_per_insn 0 total_states 1 peak_states 1 mark_read 1
"""


def test_steps_are_counted_by_line_and_a_pruned_one_is_a_step() -> None:
    found = by_line(LOG).set_index("line")
    assert found["processed_insns"].to_dict() == {
        "i += 1; @ p.bpf.c:5": 5,
        "return i; @ p.bpf.c:7": 2,
        "int i = 0; @ p.bpf.c:3": 1,
    }
    assert found.index[0] == "i += 1; @ p.bpf.c:5"
    assert found.loc["i += 1; @ p.bpf.c:5", ["insns", "most_of_one"]].tolist() == [3, 2]
    assert found["share"].sum() == pytest.approx(1)


def test_without_debug_information_there_is_one_row() -> None:
    bare = "\n".join(line for line in LOG.splitlines() if not line.startswith("; "))
    assert by_line(bare)["line"].tolist() == [NO_LINE]


@pytest.mark.parametrize("cut", [LOG.replace("3: (05) goto pc-3\n", ""), LOG[: LOG.index("verification")], ""])
def test_a_log_that_does_not_add_up_is_refused(cut: str) -> None:
    with pytest.raises(FormatError, match="by its own words"):
        by_line(cut)


@pytest.mark.root
def test_a_listing_adds_up_to_what_the_loader_counts(verify, compile_member, tmp_path: Path) -> None:
    path = compile_member("double_strcmp", 10)
    (program,) = verify(path)
    done = CliRunner().invoke(cli, ["study", "verifier", str(path), "--lines", "--json", "--logs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.output)
    rows = rows["rows"] if isinstance(rows, dict) else rows
    assert sum(row["processed_insns"] for row in rows) == program.stats.processed_insns > 1000
    (log,) = tmp_path.iterdir()
    assert f"processed {program.stats.processed_insns} insns" in log.read_text()


def test_a_listing_of_nothing_is_refused() -> None:
    done = CliRunner().invoke(cli, ["study", "verifier", "--lines"])
    assert done.exit_code != 0
    assert "--lines is of OBJECTS" in str(done.exception) + done.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--repetitions", "3"], "--lines makes no run: it takes no --repetitions"),
        (["--compare", "--filter", "a"], "it takes no --compare, --filter"),
        (["--modules", "."], "--modules is of a kernel's image"),
    ],
)
def test_an_option_that_it_would_not_heed_is_refused(options: list[str], words: str) -> None:
    done = CliRunner().invoke(cli, ["study", "verifier", "x.bpf.o", "--lines", *options])
    assert words in str(done.exception)


def test_a_program_without_a_log_costs_no_other_its_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted = by_line(LOG)
    counted.insert(0, "program", "first")
    counted.insert(0, "kernel", "host")
    found = [counted, ProgramError("second: there is no log of a verifier"), counted.assign(program="third")]
    monkeypatch.setattr(hotspots, "hotspots", lambda *asked: iter(found))
    done = CliRunner().invoke(cli, ["study", "verifier", str(tmp_path / "x.bpf.o"), "--lines", "--json"])
    rows = json.loads(done.stdout)
    assert {row["program"] for row in rows} == {"first", "third"}
    assert isinstance(done.exception, ProgramError)
    assert "second" in str(done.exception)
