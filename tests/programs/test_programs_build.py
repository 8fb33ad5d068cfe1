"""Objects are cached by content; an error has the compiler's message; a user's file is built unchanged."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from xdplab.compiler import find_clang
from xdplab.errors import MissingToolError, PlanError, ProgramError
from xdplab.programs.build import build
from xdplab.programs.onhost import load_report
from xdplab.programs.program import program
from xdplab.programs.proof import prove
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


def test_a_program_is_compiled_once(cache):
    spec = ProgramSpec("array", 77)
    first = build(spec, cache)
    stamp = first.object.stat().st_mtime_ns
    second = build(spec, cache)
    assert second == first
    assert second.object.stat().st_mtime_ns == stamp
    assert len(first.hash) == 16


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
    assert facts["program"]["accesses"] == 100
    assert facts["maps"] == ["working_set"]
    assert "bpf_map_lookup_elem" in (built.directory / "disassembly.txt").read_text()
    for path in built.directory.iterdir():
        assert os.fsencode(cache) not in path.read_bytes(), f"{path.name} names this machine's folders"


def test_nothing_unfinished_is_left(cache):
    build(ProgramSpec("array", 79), cache)
    assert not [path for path in cache.iterdir() if path.name.startswith(".")]


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


def test_the_compilers_message_is_shown(tmp_path, cache):
    (tmp_path / "bad.bpf.c").write_text("int x = nonsense;\n")
    with pytest.raises(ProgramError, match=r"refuses the program: bad\.bpf\.c:1:9: error: .*'nonsense'"):
        build(UserProgram(str(tmp_path / "bad.bpf.c")), cache)


def test_unrolled_code_that_the_compiler_does_not_end_with_says_what_to_do(cache, monkeypatch):
    """clang's time grows with N²: 18 s for 30,000 accesses in a row, more than 2 minutes for 100,000."""
    monkeypatch.setattr("xdplab.compiler.COMPILE_DEADLINE_S", 0.2)
    with pytest.raises(ProgramError, match=r"did not end within 0 s \(fewer than 30,000 accesses, or `form: bounded`"):
        build(ProgramSpec("array", 30_000, form="unrolled"), cache)


def test_a_missing_section_is_named_with_those_there_are(own, cache):
    with pytest.raises(ProgramError, match=r"no program in section 'tc'.*it has xdp, xdp/second"):
        build(UserProgram(str(own), section="tc"), cache)


def test_a_users_headers_count(own, cache):
    before = build(UserProgram(str(own)), cache)
    (own.parent / "limits.h").write_text("#define LIMIT 5\n")
    assert build(UserProgram(str(own)), cache).hash != before.hash
    second = build(UserProgram(str(own), section="xdp/second"), cache)
    assert second.image.name == "back"


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


def test_a_missing_compiler_is_said(monkeypatch):
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


def test_two_programs_in_one_section_are_named(own, cache):
    own.write_text(PASS.replace("xdp/second", "xdp"))
    words = r"section 'xdp' has 2 programs: front, back \(give each a section of its own, such as SEC\(\"xdp/back\"\)"
    with pytest.raises(ProgramError, match=words):
        build(UserProgram(str(own)), cache)
