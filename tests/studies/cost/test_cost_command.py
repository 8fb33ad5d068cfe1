"""Costs counted in real guests: exact in each boot, equal to what an interpreter of the machine code executes."""

import json
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.cli.entry import ending_with_output
from tests.cli.test_answers import validate
from tests.studies.cost.interpreter import interpreted

import xdplab as xl
from xdplab.errors import HostError, PlanError
from xdplab.hosts import Result
from xdplab.labs.vm import kernels
from xdplab.labs.vm.console import ConsoleGuest
from xdplab.programs.spec import ACCESSING
from xdplab.resources import shipped
from xdplab.studies import kinds
from xdplab.studies.cost.counts import DRIVEN, measurement_in
from xdplab.studies.kind import Run
from xdplab.studies.plugin import disassembled

pytestmark = pytest.mark.guest

BALANCER = shipped("xdp_progs") / "gallery/balancer.bpf.c"
PARTS, INLINED = (Path(__file__).with_name(f"{name}.bpf.c") for name in ("parts", "inlined"))


def _counted(folder: Path, *argv: str) -> Run[Any]:
    code, output, error = ending_with_output(["cost", *argv, "--out", str(folder)])
    assert code == 0, output + error
    (path,) = folder.iterdir()
    return kinds.open_run(path)


def _exact(rows: pd.DataFrame, part: str, **case: Any) -> Fraction:
    chosen = rows.loc[rows["part"].eq(part)]
    for name, value in case.items():
        chosen = chosen.loc[chosen[name].eq(value)]
    (row,) = chosen.to_dict("records")
    return Fraction(row["exact"])


SIZES = (0, 1, 10, 320, 640, 1600)


@pytest.fixture(scope="module")
def workloads(tmp_path_factory: pytest.TempPathFactory) -> Run[Any]:
    words = [f"{name}:{n}" for name in ACCESSING for n in SIZES]
    return _counted(tmp_path_factory.mktemp("cost"), *words, "--mode", "test_run")


@pytest.mark.thorough
def test_each_boot_counts_the_same_and_the_path_is_that_of_any_program(tmp_path: Path) -> None:
    modes = ("--mode", "native", "--mode", "generic")
    first, second = (_counted(tmp_path / name, *words, *modes).rows() for name, words in BOOTS.items())
    for mode in ("native", "generic"):
        ones, others = (rows.loc[rows["mode"].eq(mode)] for rows in (first, second))
        for part in ("program", "path"):
            assert _exact(ones, part, program="array:10") == _exact(others, part, program="array:10")
        assert _exact(ones, "path", program="array:10") == _exact(others, "path", program="packet:1")


BOOTS = {"first": ("array:10",), "second": ("packet:1", "array:10")}


@pytest.mark.thorough
def test_a_guest_that_is_lost_is_booted_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, guests = ConsoleGuest.run, list[ConsoleGuest]()

    def once_lost(guest: ConsoleGuest, argv: Sequence[str], **settings: Any) -> Result:
        if "costdrive" in " ".join(argv):
            guests.append(guest)
            if len(guests) == 1:
                raise HostError("the guest has ended")
        return run(guest, argv, **settings)

    monkeypatch.setattr(ConsoleGuest, "run", once_lost)
    code, _, error = ending_with_output(["cost", "packet:1", "--mode", "test_run", "--out", str(tmp_path)])
    assert (code, guests[0] is guests[1]) == (0, False)
    assert "booted once more" in error


@pytest.mark.nightly
def test_ten_boots_count_the_same_beside_any_load(tmp_path: Path) -> None:
    passing = tmp_path / "passing.bpf.c"
    passing.write_text(MINE.replace("XDP_TX", "XDP_PASS"))
    argv = ("array:10", str(BALANCER), str(passing), "--mode", "native", "--mode", "generic", "--mode", "test_run")
    boots = []
    for boot in range(10):
        with _busy(2 * (os.cpu_count() or 1) * (boot % 2)):
            rows = _counted(tmp_path / str(boot), *argv).rows()
        exact = rows.loc[rows["exact"].notna() & rows["part"].ne("class")]
        boots.append(
            {tuple(row) for row in exact[["program", "mode", "part", "name", "line", "exact"]].astype(str).values}
        )
    assert all(boot == boots[0] for boot in boots), [sorted(boot ^ boots[0])[:5] for boot in boots]


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Beside so many processes that take all they get."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


@pytest.mark.thorough
def test_each_program_costs_what_an_interpreter_of_its_machine_code_executes(workloads: Run[Any]) -> None:
    """The second method: unicorn runs the code that the kernel's JIT made, and counts."""
    rows = workloads.rows()
    for trial, _, raw in workloads.plan.attempts():
        expected = len(interpreted(measurement_in(raw), _frames(workloads, trial.point.frames)[0]))
        assert _exact(rows, "program", program=trial.point.program) == expected, trial.point


@pytest.mark.thorough
@pytest.mark.parametrize("workload", ACCESSING)
def test_an_access_more_costs_the_loops_body_however_many_there_are(workload: str, workloads: Run[Any]) -> None:
    rows = workloads.rows()
    few, some, many = (_exact(rows, "program", program=f"{workload}:{n}") for n in SIZES[-3:])
    assert (some - few) * 3 == many - some > 0


@pytest.mark.thorough
def test_every_way_from_one_function_to_another_is_attributed(tmp_path: Path) -> None:
    plan = tmp_path / "parts.yaml"
    program = {"file": str(PARTS), "function": "parts", "action": "tx", "maps": {"next_program": {0: "last"}}}
    plan.write_text(json.dumps({"name": "parts", "blocks": [{"points": {"mode": "native", "program": program}}]}))
    run = _counted(tmp_path / "out", str(plan))
    rows = run.rows()
    lines = rows.loc[rows["part"].eq("line")].set_index("name")
    marked = {word: lines.loc[lines.index.str.contains(f"// {word}")].iloc[0] for word in WORDS}
    ((_, _, raw),) = run.plan.attempts()
    functions = {f["name"] for one in _programs(raw) for f in one["functions"]}
    assert {"parts", "subprogram", "last"} <= functions
    assert marked["subprogram"]["instructions"] > 0
    assert marked["tail"]["instructions"] > 0
    assert marked["loop"]["instructions"] >= 10
    assert marked["helper"]["called_instructions"] > 20
    by_name = rows.loc[rows["part"].eq("function")].set_index("name")["instructions"]
    inside = sum(by_name[f"bpf:{name}"] for name in ("parts", "subprogram", "last"))
    assert inside == float(_exact(rows, "program")) == lines["instructions"].sum()


WORDS = ("subprogram", "loop", "helper", "tail")


@pytest.mark.thorough
def test_an_inlined_functions_instructions_are_at_the_lines_of_its_body(tmp_path: Path) -> None:
    """The second method: each executed instruction belongs to the last line that the kernel says begins before it."""
    run = _counted(tmp_path / "out", str(INLINED), "--mode", "test_run")
    ((trial, _, raw),) = run.plan.attempts()
    (program,) = [one for one in _programs(raw) if one["role"] == "program"]
    begins = {line["address"]: (line["line"], line["text"].strip()) for line in program["lines"]}
    executed = interpreted(measurement_in(raw), _frames(run, trial.point.frames)[0])
    began = [max(address for address in begins if address <= one) for one in executed]
    lines = run.rows().query("part == 'line'")
    counted = zip(zip(lines["line"], lines["name"], strict=True), lines["instructions"], strict=True)
    assert dict(counted) == Counter(begins[address] for address in began)
    (function,) = program["functions"]
    listing = disassembled(bytes.fromhex(function["code"]), function["address"])
    multiplies = [one.address for one in listing if one.name == "imul"]
    assert len(multiplies) == 2
    marked = lines.set_index(lines["name"].str.partition("// ")[2])["instructions"]
    at = {begins[max(address for address in begins if address <= one)][1] for one in multiplies}
    assert [text.partition("// ")[2] for text in at] == ["inlined"]
    assert (marked["source"], marked["destination"]) == (1, 1), "each loads a byte: the rest is at the inlined line"
    assert marked["inlined"] >= 4, "multiplies and adds, at two places"


@pytest.mark.thorough
def test_a_gate_does_not_compare_a_program_that_drops_what_it_passed(tmp_path: Path) -> None:
    program, baseline = tmp_path / "mine.bpf.c", tmp_path / "base.json"
    modes = [word for mode in ("native", "generic", "test_run") for word in ("--mode", mode)]
    argv = ["cost", str(program), *modes, "--out", str(tmp_path / "out")]
    program.write_text(MINE.replace("XDP_TX", "XDP_PASS"))
    assert ending_with_output([*argv, "--write", str(baseline)])[0] == 0
    program.write_text(MINE.replace("XDP_TX", "XDP_DROP"))
    code, output, _ = ending_with_output([*argv, "--against", str(baseline), "--json"])
    differ = ["passed_on: was 100.00% of the frames, is 0.00% of the frames"]
    made = [change["made_otherwise"] for change in validate("cost", output)["against"]["differences"]]
    assert (code, made) == (2, [differ] * 3)


MINE = """\
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int count(struct xdp_md *context)
{
\tvoid *data = (void *)(long)context->data; // here
\tif (data + 14 > (void *)(long)context->data_end)
\t\treturn XDP_DROP;
\treturn XDP_TX;
}
char LICENSE[] SEC("license") = "GPL";
"""


CHANGING = {
    "shortened": "if (context->data_end - context->data > 40 && bpf_xdp_adjust_tail(context, -24)) return XDP_DROP;",
    "marked": "if (bpf_xdp_adjust_meta(context, -8)) return XDP_DROP;",
    "plain": "",
}
"""Only the first one would get another frame than was sent: the page keeps its length."""


def test_a_frame_comes_as_it_was_sent_though_its_page_had_one_that_the_program_changed(tmp_path: Path) -> None:
    programs = {name: tmp_path / f"{name}.bpf.c" for name in CHANGING}
    for name, change in CHANGING.items():
        programs[name].write_text(re.sub(r"\t.*;\n(?=})", f"\t{change}\n\treturn XDP_TX;\n", MINE, flags=re.DOTALL))
    modes = ("--mode", "native", "--mode", "test_run")
    rows = _counted(tmp_path / "runs", *map(str, programs.values()), *modes).rows()
    of = {name: rows[rows["program"].str.endswith(path.name)] for name, path in programs.items()}
    for name, part in product(CHANGING, ("program", "called")):
        assert _exact(of[name], part, mode="native") == _exact(of[name], part, mode="test_run")
    paths = {name: of[name].query("part == 'path' and mode == 'native'")["exact"].item() for name in CHANGING}
    assert paths["marked"] == paths["plain"]
    assert pd.isna(paths["shortened"]), "the sender's description of each frame is in it"


@pytest.mark.thorough
def test_an_object_without_debug_information_is_told_by_instruction_the_most_first(tmp_path: Path) -> None:
    source, plain = tmp_path / "mine.bpf.c", tmp_path / "plain.bpf.o"
    source.write_text(MINE.replace("return XDP_TX;", "return bpf_ktime_get_ns() ? XDP_TX : XDP_DROP;"))
    headers = f"-I/usr/include/{platform.machine()}-linux-gnu"
    subprocess.run(["clang", "-O2", "-target", "bpf", headers, "-c", source, "-o", plain], check=True)
    run = _counted(tmp_path / "out", str(plain), "--mode", "test_run", "--top", "3")
    rows = run.rows()
    instructions = rows.loc[rows["part"].eq("instruction")]
    assert instructions["instructions"].sum() == float(_exact(rows, "program"))
    assert instructions["called_instructions"].sum() == float(_exact(rows, "called"))
    first, *rest = run.tables()["lines"].frame.to_dict("records")
    assert first["source"] == "call bpf_ktime_get_ns"
    assert [float(row["own"]) for row in rest] == [1, 1]
    (whole,) = _counted(tmp_path / "lines", str(source), "--mode", "test_run").rows().query("part == 'whole'")["exact"]
    assert whole == rows.query("part == 'whole'")["exact"].item()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("random.bpf.c", r"4\d\.?\d* % \d+|5\d\.?\d* % of packets \d+ instructions"),
        ("refused.bpf.c", "invalid access to packet"),
    ],
)
def test_what_has_no_cost_says_why(program: str, words: str, tmp_path: Path) -> None:
    bodies = {
        "random.bpf.c": "if (bpf_get_prandom_u32() & 1) bpf_ktime_get_ns(); return XDP_TX;",
        "refused.bpf.c": "return *(char *)(long)context->data;",
    }
    source = MINE.partition("\tvoid *data")[0] + bodies[program] + '\n}\nchar LICENSE[] SEC("license") = "GPL";\n'
    (tmp_path / program).write_text(source)
    code, output, error = ending_with_output(["cost", str(tmp_path / program), "--out", str(tmp_path / "out")])
    assert code != 0
    assert re.search(words, output + error)


@pytest.mark.thorough
def test_frames_whose_keys_share_a_chain_take_another_path_and_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "hash.bpf.c").write_text(HASH)
    rows = _counted(tmp_path / "out", str(tmp_path / "hash.bpf.c"), "--flows", "64", "--mode", "test_run").rows()
    classes = rows.loc[rows["part"].eq("class")]
    assert len(classes) > 1
    assert classes["share"].sum() == pytest.approx(1)
    mean = sum(Fraction(row["share"]) * int(row["exact"]) for row in classes.to_dict("records"))
    assert mean == _exact(rows, "program") + _exact(rows, "called")


@pytest.mark.thorough
def test_each_access_64_bytes_further_touches_one_more_cache_line(tmp_path: Path) -> None:
    touches = (1, 4, 9)
    for count in touches:
        access = "".join(f"\t*(volatile char *)(value->bytes + {64 * number});\n" for number in range(count))
        (tmp_path / f"{count}.bpf.c").write_text(STRIDES.replace("TOUCH", access))
    files = [str(tmp_path / f"{count}.bpf.c") for count in touches]
    rows = _counted(tmp_path / "out", *files, "--mode", "test_run").rows()
    program = rows.loc[rows["part"].eq("program")].set_index("program")
    lines = [int(program.loc[f"{count}.bpf.c", "data_cache_lines"]) for count in touches]
    assert [count - lines[0] for count in lines] == [0, 3, 8]
    assert program["code_cache_lines"].gt(0).all()


STRIDES = """\
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct value {
\tchar bytes[1024];
};
struct {
\t__uint(type, BPF_MAP_TYPE_ARRAY);
\t__uint(max_entries, 1);
\t__type(key, __u32);
\t__type(value, struct value);
} values SEC(".maps");
SEC("xdp") int count(struct xdp_md *context)
{
\t__u32 key = 0;
\tstruct value *value = bpf_map_lookup_elem(&values, &key);
\tif (!value)
\t\treturn XDP_DROP;
TOUCH\treturn XDP_TX;
}
char LICENSE[] SEC("license") = "GPL";
"""

HASH = """\
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_helpers.h>
struct {
\t__uint(type, BPF_MAP_TYPE_HASH);
\t__uint(max_entries, 64);
\t__type(key, __u32);
\t__type(value, __u32);
} seen SEC(".maps");
SEC("xdp") int count(struct xdp_md *context)
{
\tstruct iphdr *ip = (void *)(long)context->data + sizeof(struct ethhdr);
\tif ((void *)(ip + 1) > (void *)(long)context->data_end)
\t\treturn XDP_DROP;
\t__u32 key = ip->daddr, one = 1, *times = bpf_map_lookup_elem(&seen, &key);
\tif (!times)
\t\tbpf_map_update_elem(&seen, &key, &one, 0);
\treturn XDP_TX;
}
char LICENSE[] SEC("license") = "GPL";
"""


def _programs(raw: Path) -> list[dict[str, Any]]:
    messages = map(json.loads, (raw / DRIVEN).read_text().splitlines())
    return [message for message in messages if message["type"] == "program"]


def _frames(run: Run[Any], name: str) -> list[bytes]:
    return [bytes.fromhex(line) for line in (run.directory.path / name).read_text().split()]


@pytest.mark.thorough
def test_a_notebook_has_the_lines_the_picture_and_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.bpf.c").write_text(MINE)
    Path("new.bpf.c").write_text(
        MINE.replace("return XDP_TX;", "if (*(char *)data == 9)\n\t\treturn XDP_DROP;\n\treturn XDP_TX;")
    )
    both = xl.cost("old.bpf.c", "new.bpf.c", mode="test_run")
    assert "if (*(char *)data == 9)" in list(both.difference.lines["line"])
    with pytest.raises(PlanError, match="2 packets"):
        _ = both.lines
    one = xl.cost("old.bpf.c", mode="test_run")
    assert one.lines["own"].astype(float).sum() == float(one.whole["of the program"].iloc[0])
    assert one.flame().axes[0].get_xlabel() == "instructions per packet"


@pytest.mark.thorough
@pytest.mark.usefixtures("_own_kernels_go")
def test_a_kernel_of_ones_own_costs_what_the_same_of_a_distribution_does(tmp_path: Path) -> None:
    debians = kernels.kernel("6.12")
    image, modules = tmp_path / "vmlinux", debians.file("lib/modules") / debians.release
    image.write_bytes(debians.file("vmlinux").read_bytes())
    run = _counted(tmp_path / "out", "array:10", "--kernel", "6.12", "--kernel", f"{image},{modules}")
    wholes = run.rows().query("part == 'whole'")
    assert wholes["kernel"].nunique() == 2
    assert wholes["kernel_release"].nunique() == wholes["exact"].nunique() == 1
    code, output, error = ending_with_output(
        ["cost", "array:10", "--kernel", str(image), "--out", str(tmp_path / "no")]
    )
    assert code != 0
    assert "CONFIG_VETH" in output + error
