"""Objects are cached by content; an error has the compiler's message; a user's file is built unchanged."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from xdplab import compiler
from xdplab.compiler import find_clang, run_tool, sources_of
from xdplab.errors import MissingToolError, PlanError, ProgramError
from xdplab.programs import proof
from xdplab.programs.build import build, compile_command
from xdplab.programs.counting import AccessCounts
from xdplab.programs.onhost import TestRun, load_report
from xdplab.programs.program import Text, program
from xdplab.programs.proof import Proof, prove
from xdplab.programs.spec import ProgramSpec, UserProgram

PASS = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "limits.h"
const volatile __u32 backends = LIMIT;
SEC("xdp") int front(struct xdp_md *ctx) { return backends > 64 ? XDP_DROP : XDP_PASS; }
SEC("xdp/second") int back(struct xdp_md *ctx) { return XDP_DROP; }
char LICENSE[] SEC("license") = "GPL";
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "limits.h").write_text("#define LIMIT 4\n")
    (tmp_path / "lb.bpf.c").write_text(PASS)
    return tmp_path / "lb.bpf.c"


def test_a_program_is_compiled_once_and_nothing_unfinished_is_left(cache):
    spec = ProgramSpec("array", 77)
    with ThreadPoolExecutor() as pool:
        first, also = pool.map(lambda _: build(spec, cache), range(2))
    assert also == first, "the slower one takes what the quicker one has built"
    stamp = first.object.stat().st_mtime_ns
    second = build(spec, cache)
    assert second == first
    assert second.object.stat().st_mtime_ns == stamp
    assert len(first.hash) == 16
    assert not [path for path in cache.iterdir() if path.name.startswith(".")]
    assert first.add("proof.json", "{}").stat().st_mode & 0o777 == 0o644  # others read what is copied into a run


def test_other_contents_are_other_programs(cache):
    specs = [
        ProgramSpec("array", 77),
        ProgramSpec("array", 78),
        ProgramSpec("array", 77, "write"),
        ProgramSpec("array", 77, form="loop"),
        ProgramSpec("array", 77, working_set_bytes=1024),
    ]
    assert len({build(spec, cache).hash for spec in specs}) == len(specs)


def test_a_directory_holds_everything_about_its_program(cache):
    built = build(ProgramSpec("chase", 100), cache)
    names = {path.name for path in built.directory.iterdir()}
    wanted = {"program.c", "program.bpf.o", "disassembly.txt", "build.json", "init.bin", "state.bin", "workload_user.c"}
    assert wanted <= names
    facts = json.loads((built.directory / "build.json").read_text())
    assert facts["program"] == asdict(ProgramSpec("chase", 100)), "also what it leaves out, as null"
    assert (facts["function"], facts["maps"]) == ("xdplab_chase", ["working_set"])
    assert "bpf_map_lookup_elem" in (built.directory / "disassembly.txt").read_text()
    for path in built.directory.iterdir():
        assert os.fsencode(cache) not in path.read_bytes(), f"{path.name} names this machine's folders"


def test_a_users_program_is_described_without_the_place_of_its_file(own, cache):
    """The description went into runs and bundles, and named the folder of the first run that built it."""
    built = build(UserProgram(str(own)), cache)
    for path in built.directory.iterdir():
        assert os.fsencode(own.parent) not in path.read_bytes(), path.name


@pytest.mark.root
def test_a_copy_holds_only_what_is_whole_while_others_still_write(cache, dut, tmp_path):
    built = build(ProgramSpec("array", 80), cache)
    prove_it = partial(prove, built, dut.host, xdpload=dut.xdpload, folder=dut.folder)
    with ThreadPoolExecutor(1) as other_run:
        proofs = [other_run.submit(prove_it) for _ in range(4)]
        copies = 0
        while not all(proof.done() for proof in proofs):
            built.copy_to(tmp_path / "programs")
            copies += 1
        assert copies > len(proofs)
        assert {proof.result().kernel for proof in proofs} == {(80, 80, 80)}
    built.copy_to(tmp_path / "programs")
    there = {path.name: path.read_bytes() for path in built.directory.iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "programs").iterdir()} == there
    assert {"counting.bpf.o", "proof.json"} <= set(there)


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("In file included from a.c:3:\n./error_codes.h:7:9: warning: 'X'\na.c:9:13: error: no cnt\n", "a.c:9:13"),
        ("a.c:4:6: warning: unused 'last_error'\n    4 | int last_error;\na.c:12:2: error: ;\n", "a.c:12:2"),
        ("a.c:1:10: fatal error: 'error.h' file not found\n", "a.c:1:10: fatal error"),
        ("clang: error: unknown argument: '-Wno-error-x'\n", "clang: error"),
        ("ld.lld: error: undefined symbol\n", "ld.lld: error"),
        ("error: unable to open output file\n", "error: unable"),
        ("an error of another form", "an error of another form"),
    ],
)  # fmt: skip
def test_the_compilers_complaint_is_its_first_error(said: str, first: str) -> None:
    assert compiler._first_complaint(said).startswith(first)


def test_the_compilers_message_is_shown(tmp_path, cache):
    (tmp_path / "bad.bpf.c").write_text("int x = nonsense;\n")
    before = set(cache.iterdir())
    with pytest.raises(ProgramError, match=r"refuses the program: bad\.bpf\.c:1:9: error: .*'nonsense'"):
        build(UserProgram(str(tmp_path / "bad.bpf.c")), cache)
    assert set(cache.iterdir()) == before


def test_unrolled_code_that_the_compiler_does_not_end_with_says_what_to_do(cache, monkeypatch):
    """clang's time grows with N²: 18 s for 30,000 accesses in a row, more than 2 minutes for 100,000."""
    monkeypatch.setattr("xdplab.compiler.COMPILE_DEADLINE_S", 0.2)
    with pytest.raises(ProgramError, match=r"did not end within 0 s \(fewer than 30,000 accesses, or `form: bounded`"):
        build(ProgramSpec("array", 30_000, form="unrolled"), cache)
    monkeypatch.setattr("xdplab.compiler.COMPILE_DEADLINE_S", 0.001)
    with pytest.raises(ProgramError, match=r"did not end within 0 s$"):
        build(ProgramSpec("array", 30_001), cache)


def test_a_missing_section_is_named_with_those_there_are(own, cache):
    with pytest.raises(ProgramError, match=r"no program in section 'tc'.*it has xdp, xdp/second"):
        build(UserProgram(str(own), section="tc"), cache)


def test_a_users_headers_count(own, cache):
    before = build(UserProgram(str(own)), cache)
    (own.parent / "limits.h").write_text("#define LIMIT 5\n")
    assert build(UserProgram(str(own)), cache).hash != before.hash
    second = build(UserProgram(str(own), section="xdp/second"), cache)
    assert second.image.name == "back"


@pytest.mark.parametrize("counts", [(33, 32), (33, 34), (32.5,)])
def test_a_count_that_is_not_n_is_no_proof(counts):
    proof.require_count(ProgramSpec("array", 33), [33, 33], "here")
    with pytest.raises(ProgramError, match="promises 33"):
        proof.require_count(ProgramSpec("array", 33), counts, "here")


def test_a_proof_names_the_ways_that_were_taken():
    counts = (AccessCounts(2, 0, 0),)
    assert len(Proof(2, "h", counts).ways) == 1
    assert "in 6.1" in repr(Proof(2, "h", counts, kernel=(2,), kernel_host="h1", kernel_way="counting in 6.1"))
    assert TestRun(64, 9, (5.0, 3.0, 4.0)).testrun_ns == 3.0
    whole = Proof(2, "h", counts, (2,), "h1", "its image", counts, 2, "cc")
    assert [way.split()[0] for way in whole.ways] == ["bytecode,", "kernel", "machine", "counting"]
    assert "kernel of h1, by its image" in whole.ways[1]


def test_a_users_program_has_no_proof(own, cache):
    built = build(UserProgram(str(own)), cache)
    with pytest.raises(ProgramError, match="its number of accesses is not known"):
        prove(built)


def test_an_object_file_is_taken_as_it_is(own, cache, tmp_path):
    compiled = build(UserProgram(str(own)), cache)
    copy = tmp_path / "lb.o"
    copy.write_bytes(compiled.object.read_bytes())
    assert build(UserProgram(str(copy)), cache).object.read_bytes() == compiled.object.read_bytes()
    copy.write_bytes(b"text")
    with pytest.raises(ProgramError, match="no BPF object"):
        build(UserProgram(str(copy)), cache)


def test_a_missing_compiler_is_said(monkeypatch, tmp_path):
    find_clang.cache_clear()
    monkeypatch.setenv("CLANG", sys.executable)  # the user's choice comes first
    assert find_clang() == sys.executable
    find_clang.cache_clear()
    monkeypatch.delenv("CLANG")
    for version in (14, 15):
        (tmp_path / f"clang-{version}").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_clang() == "clang-15"  # the newest
    find_clang.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingToolError, match=r"no clang on this machine.*clang 14 or newer"):
        find_clang()
    find_clang.cache_clear()


def test_the_notebooks_program_shows_itself(cache):
    one = program("array", accesses=100, cache_dir=cache)
    assert "static __always_inline __u64 workload" in one.source
    assert repr(one).startswith("Program(array-read-100: N = 100 proved: 100 loads, 0 stores per packet;")
    assert "<summary>source</summary><pre>" in one._repr_html_()
    assert "#include &lt;linux/bpf.h&gt;" in one.source._repr_html_()
    assert [Text("x\n" * n)._repr_html_()[-20:] for n in (400, 401)] == ["\nx" * 7 + "</pre>", "… 1 more lines</pre>"]
    assert "call bpf_map_lookup_elem" in one.disassembly
    assert one.proof.accesses == 100


def test_the_notebook_names_a_wrong_field(cache, own):
    with pytest.raises(PlanError, match=r"has no field 'access'.*its fields are accesses, op"):
        program("array", access=100)
    with pytest.raises(PlanError, match="'aray' is neither a workload nor a file"):
        program("aray", accesses=100)
    mine = program(str(own), action="pass", rodata={"backends": 64}, cache_dir=cache)
    assert mine.proof is None
    assert "N not proved" in repr(mine)


@pytest.mark.root
def test_a_users_program_is_loaded_with_its_constants(own, cache, dut):
    tags = set()
    for backends in (4, 65):
        built = build(UserProgram(str(own), rodata={"backends": backends}), cache)
        report = load_report(dut.host, dut.xdpload, built, dut.folder)
        tags.add((report.tag, report.xlated_insns))
        assert report.lookup_inlined is None
    assert len(tags) == 2, "the constant did not reach the verifier, which drops the dead branch"


OBJECTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "one of several": ({"function": "back"}, None),
    "of another section": ({"function": "alone"}, None),
    "several": ({}, r"section 'xdp' has 2 programs: front, back \(name one: `function: front` in a plan"),
    "none of that name": ({"function": "nobody"}, r"no program nobody \(it has front, alone, back\)"),
    "not of that section": ({"section": "xdp.mine", "function": "back"}, "back is in section 'xdp', not in 'xdp.mine'"),
    "cut": ({"cut": 0.5}, "no whole BPF object"),
    "cut within a section": ({"cut": 0.9}, "no whole BPF object"),
    "empty": ({"cut": 0.0}, "no BPF object"),
    "of another machine": ({"at": (18, b"\x3e")}, "no BPF object"),
    "big-endian": ({"target": "bpfeb"}, r"big-endian BPF object \(compile it with `clang -target bpfel`"),
}


@pytest.mark.parametrize("case", OBJECTS)
@pytest.mark.parametrize("ending", [".o", ""])
def test_a_program_of_an_object_is_chosen_by_its_function(own, cache, tmp_path, case, ending):
    """An object's sections cannot be renamed, and Rust's objects have no ending."""
    given, words = OBJECTS[case]
    text = PASS.replace("xdp/second", "xdp") + 'SEC("xdp.mine") int alone(struct xdp_md *ctx) { return backends; }'
    own.write_text(text)
    command = compile_command(find_clang(), UserProgram(str(own)))[:-4]
    target = tmp_path / f"lb{ending}"
    run_tool([*command, "-target", given.get("target", "bpf"), "-c", own.name, "-o", str(target)], own.parent)
    data = bytearray(target.read_bytes())
    at, byte = given.get("at", (0, b"\x7f"))
    data[at : at + 1] = byte
    target.write_bytes(data[: int(len(data) * given.get("cut", 1))])
    if case == "empty" and not ending:
        with pytest.raises(PlanError, match=r"neither C .* nor a BPF object"):
            UserProgram(str(target))
        return
    asked = UserProgram(str(target), section=given.get("section", "xdp"), function=given.get("function"))
    if words:
        with pytest.raises(ProgramError, match=words):
            build(asked, cache)
        return
    image = build(asked, cache).image
    assert image.functions == {0: asked.function}
    assert len(image.insns) == {"back": 2, "alone": 4}[asked.function]
    assert [one.symbol for one in image.references.values()] == ["backends"] * (asked.function == "alone")


def test_programs_that_a_setup_or_its_files_name_are_loaded_too(own, cache, tmp_path):
    names = ["called", "a_name_of_more_than_fifteen", "in_a_script", "needless"]
    more = "".join(f'SEC("xdp") int {name}(struct xdp_md *ctx) {{ return 0; }}\n' for name in names)
    jump = 'struct { int (*type)[3], (*max_entries)[4], (*key_size)[4], (*value_size)[4]; } jump SEC(".maps");\n'
    own.write_text(PASS + jump + more)
    (tmp_path / "fill.sh").write_text("bpftool map update name jump value name in_a_script")
    setup = [
        ["sh", "-c", "bpftool map update name jump value name called"],
        ["x", "a_name_of_more_"],
        ["sh", "fill.sh"],
    ]
    files = {"fill.sh": str(tmp_path / "fill.sh")}
    asked = UserProgram(str(own), function="front", setup=setup, setup_files=files, maps={"jump": {0: "back"}})
    options = build(asked, cache).load_options
    assert [one for word, one in pairwise(options) if word == "--also"] == names[:3]
    assert [one for word, one in pairwise(options) if word == "--map"] == ["jump=0=back"]


def test_flags_find_headers_and_set_names(own, cache, tmp_path):
    (tmp_path / "inc").mkdir()
    (tmp_path / "limits.h").rename(tmp_path / "inc/mine.h")
    own.write_text(PASS.replace("limits.h", "mine.h"))
    with pytest.raises(ProgramError, match=r"'mine.h' file not found"):
        build(UserProgram(str(own)), cache)
    one, other = (build(UserProgram(str(own), cflags=("-I", "inc", *more)), cache) for more in ((), ("-DNOTHING",)))
    assert one.image == other.image
    with pytest.raises(ProgramError, match="there is no none in"):
        UserProgram(str(own), cflags=("-Inone",))
    for text, remedy in (('#include "mine.h"', "name its folder in `cflags: [-IFOLDER]`"), ("#error no", None)):
        own.write_text(text + "\n")
        with pytest.raises(ProgramError) as refused:
            sources_of(own)
        assert refused.value.remedy == remedy
    with pytest.raises(PlanError, match="-fplugin=x' is not a flag"):
        UserProgram(str(own), cflags=("-fplugin=x",))
