"""The study without a kernel: searches, families, corpora, points and the columns of stacks."""

import json
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from xdplab.errors import PlanError, ProgramError
from xdplab.formats.verifier import parse_bpfverify
from xdplab.studies.points import schedule
from xdplab.studies.verifier import corpora
from xdplab.studies.verifier.corpora import CorpusObject, carve, collect
from xdplab.studies.verifier.generated import FAMILIES, Compiler, Member, compile_object, find_compilers, source
from xdplab.studies.verifier.machines import given_words
from xdplab.studies.verifier.paper import INSTRUCTIONS, WIDE_LOADS
from xdplab.studies.verifier.points import Given, VerifierPoint
from xdplab.studies.verifier.rows import stack_columns
from xdplab.studies.verifier.runs import VerifierRequest, members, searches, too_large
from xdplab.studies.verifier.study import SizeTried, answer, search

LIMIT = 1_000_000


def model(processed: Callable[[int], float]) -> Callable[[int], SizeTried]:
    return lambda n: SizeTried(n, processed(n) <= LIMIT, min(int(processed(n)), LIMIT + 1), LIMIT)


@pytest.mark.parametrize("limit", [0, 1, 7, 8, 31, 32, 33, 122, 207, 5000])
def test_the_search_finds_the_largest_n(limit):
    """If a cost grows with the square, two loads are near the limit."""
    probes = list(search(model(lambda n: LIMIT * (n / (limit + 0.5)) ** 2)))
    assert answer(probes) == (limit or None)
    assert len({p.n for p in probes}) == len(probes)
    assert len(probes) <= (5 if 32 <= limit < 500 else 40)


@pytest.mark.parametrize("processed", [lambda n: 50 * n, lambda n: n**3.3, lambda n: 1.02**n, lambda n: LIMIT + n - 99])
def test_another_growth_is_found_too(processed):
    probes = list(search(model(processed)))
    found = answer(probes)
    assert processed(found) <= LIMIT < processed(found + 1)
    assert len(probes) < 40


def test_a_limit_that_is_not_counted_is_found_too_and_no_limit_is_no_answer():
    assert answer(list(search(lambda n: SizeTried(n, n <= 77)))) == 77
    assert answer(list(search(lambda n: SizeTried(n, True)))) is None
    assert answer([SizeTried(16, False), SizeTried(8, True)]) is None  # interrupted between the two


def test_families_know_their_options():
    assert "unroll(full)" in source(Member("double_strcmp", 4, (("form", "unrolled"),)))
    assert source(Member("branches", 3)).count("if (data[") == 3
    with pytest.raises(PlanError, match="form=square"):
        source(Member("double_strcmp", 4, (("form", "square"),)))
    with pytest.raises(PlanError, match="no family"):
        source(Member("nothing", 4))
    labels = {Member(family, 2).label for family in FAMILIES}
    assert labels == {"double_strcmp 2 rolled < btf", "strcmp_return 2 rolled <", "branches 2", "pruning 2"}


def slots(path: Path) -> int:
    with path.open("rb") as file:
        return int(ELFFile(file).get_section_by_name("xdp")["sh_size"]) // 8


@pytest.mark.parametrize("build", [build for build in INSTRUCTIONS if build[0] != "clang 8"], ids=" ".join)
def test_double_strcmp_has_as_many_instructions_as_the_paper_counts(build: tuple[str, str], tmp_path: Path):
    """The paper counts a wide load once. For strcmp_return, once mistaken for it, clang 14 gives other counts."""
    compiler = next((one for one in find_compilers() if one.name == build[0]), None)
    if compiler is None:
        pytest.skip(f"{build[0]} is not here")
    texts = [source(Member("double_strcmp", n)) for n in (1, 2, 3, 9)]
    found = [slots(compile_object(text, compiler, build[1], tmp_path)) - WIDE_LOADS for text in texts]
    assert tuple(found[:3]) == INSTRUCTIONS[build]
    assert found[3] == found[2]


def test_a_compilers_refusal_has_its_message(compile_text):
    with pytest.raises(ProgramError, match=r"refuses the program: .*error: symbol 'twice' is already defined"):
        compile_text('int f(void) { asm volatile("twice: twice:"); return 1; }')


def test_v4_needs_clang_18():
    assert Compiler(17, ("clang-17",), "").instruction_sets == ("v1", "v2", "v3")
    assert Compiler(18, ("clang-18",), "").instruction_sets == ("v1", "v2", "v3", "v4")
    assert [c.release for c in find_compilers()] == sorted({c.release for c in find_compilers()})


def test_corpora_of_folders_archives_and_executables(compile_member, tmp_path):
    content = compile_member("double_strcmp", 1).read_bytes()
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.o").write_bytes(content)
    (folder / "same.o").write_bytes(content)
    (folder / "x86.o").write_bytes(content[:18] + b"\x3e\x00" + content[20:])
    (folder / "tool").write_bytes(b"\x7fELF" + bytes(92) + content + b"tail")
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as archive:
        archive.add(folder / "same.o", "x/same.o")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("same.o", content)
    names = [s.name for s in collect([str(folder)])]
    assert names == ["deep/a.o", "x86.o"]  # equal bytes only once; every file named .o gets a verdict
    assert [s.name for s in collect([str(tmp_path / "c.tar.gz")])] == ["x/same.o"]
    assert [s.name for s in collect([str(tmp_path / "c.zip")])] == ["same.o"]
    assert list(carve((folder / "tool").read_bytes())) == [content[: len(next(carve((folder / "tool").read_bytes())))]]
    with pytest.raises(PlanError):
        collect([str(tmp_path / "nothing")])


def test_an_object_is_left_out_for_lack_of_programs_alone(compile_member, compile_text, tmp_path, monkeypatch):
    """gcc-bpf's crti.o holds an empty .text and no more, as an empty file compiled for BPF does."""
    empty, whole = compile_text("").read_bytes(), compile_member("double_strcmp", 1).read_bytes()
    names_at = int.from_bytes(empty[40:48], "little") + 64 * int.from_bytes(empty[62:64], "little") + 24
    beyond = empty[:names_at] + b"\xff" * 8 + empty[names_at + 8 :]  # section names where no file can be read
    folder = tmp_path / "gcc" / "bpf"
    folder.mkdir(parents=True)
    for name, content in {"beyond.o": beyond, "crti.o": empty, "cut.o": whole[:200], "xdp.o": whole}.items():
        (folder / name).write_bytes(content)
    monkeypatch.setattr(corpora, "SYSTEM_FOLDERS", (str(folder),))
    monkeypatch.setattr(corpora, "SYSTEM_TOOLS", ())
    for name in ("system", str(folder)):
        assert [Path(one.name).name for one in collect([name])] == ["beyond.o", "cut.o", "xdp.o"]
    with pytest.raises(PlanError, match=r"crti\.o"):
        collect([str(folder / "crti.o")])


def test_a_guest_is_measured_once_and_blocks_stay_together():
    points = [VerifierPoint("linux", k, "verify", "c", f"o{i}", f"s{i}") for k in ("host", "6.1") for i in range(4)]
    trials = schedule(points, 3, seed=1)
    assert sum(t.point.kernel == "6.1" for t in trials) == 4
    assert sum(t.point.kernel == "host" for t in trials) == 12
    assert [t.block for t in trials if t.repetition == 1] == [0] * 4 + [1] * 4
    assert schedule(points, 3, seed=1) == trials != schedule(points, 3, seed=2)
    assert len({t.trial_id for t in trials}) == len(trials)


def test_a_guest_searches_for_the_largest_n_of_one_build():
    compilers = [Compiler(14, ("clang-14",), ""), Compiler(19, ("clang-19",), "")]
    found = searches(VerifierRequest(kernels=("host", "6.1")), compilers)
    assert Counter(p.kernel for p in found) == {"host": 2 * (2 + 3), "6.1": 2}
    in_guest = {(p.compiler, p.mcpu, p.form) for p in found if p.kernel == "6.1"}
    assert in_guest == {("clang 19", "v3", "rolled"), ("clang 19", "v3", "unrolled")}
    assert {p.kernel for p in searches(VerifierRequest(kernels=("host", "6.1"), smallest=True), compilers)} == {"host"}
    assert searches(VerifierRequest(), []) == []


def test_a_point_keeps_its_id_and_its_object_its_name_in_the_run():
    """The table of types depends on the name; what a program is given is part of the id, and nothing given is not."""
    usual = VerifierPoint("linux", "host", "verify", "c", "o.o", "s" * 64)
    assert usual.point_id == "676a0fc49fbb"
    ids = {replace(usual, given=given).point_id for given in (None, "test_state_freq", "globals 0", "globals 1")}
    assert len(ids) == 4
    assert str(replace(usual, given="test_state_freq")) == "c: o.o, Linux host (test_state_freq)"
    point = replace(usual, object="cilium/bpf_xdp #1, v3.o", sha256="0123456789abcdef")
    assert point.file_name == "c-cilium-bpf_xdp-1-v3-0123456789ab.o"
    generated = replace(point, corpus="branches", object="branches 10, clang 14 v3", family="branches")
    assert generated.file_name == "branches-10-clang-14-v3-0123456789ab.o"


def test_the_words_of_what_is_given_tell_every_setting_apart(tmp_path: Path):
    (tmp_path / "types").write_text("* 2/1 xdp\n")
    usual = Given(flags=("test_state_freq", "strict_alignment"))
    settings = ({"types": str(tmp_path / "types")}, {"variables": "own"}, {"attached": "own"}, {"loaded": ("veth",)})
    files = {"globals.txt": b"* a 1\n", "targets.txt": b"* a b c d\n"}
    words = [given_words(given, files) for given in (Given(), usual, *(replace(usual, **one) for one in settings))]
    assert words[:2] == [None, "strict_alignment, test_state_freq"]
    assert words[-1] == "strict_alignment, test_state_freq, module veth"
    assert len(set(words)) == len(words)
    assert words[3] != given_words(replace(usual, variables="own"), files | {"globals.txt": b"* a 2\n"})
    assert given_words(Given(flags=("a", "b", "a")), {}) == given_words(Given(flags=("b", "a")), {})


NO_LOG, NO_CHAIN = "the verifier's log says none", "this kernel's log does not say it (that of 7.2 does)"
UNREACHED, STOPPED = "it came to no verifier", "the verifier stopped before it followed the calls"
STACK = ("stack_depths", "stack_sum_bytes", "stack_chain_bytes")
DEPTHS = {"stack_depths": "8+104+40", "stack_sum_bytes": 152}


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ({"log": "stack depth 8+104+40\n"}, DEPTHS | {"stack_chain_bytes": NO_CHAIN}),
        ({"log": "stack depth 8+104+40 max 176\n"}, DEPTHS | {"stack_chain_bytes": 176}),
        ({"log": "stack depth 8+104+40 max 0\n", "verdict": "rejected"}, DEPTHS | {"stack_chain_bytes": STOPPED}),
        ({}, dict.fromkeys(STACK, NO_LOG)),
        ({"load_ns": [], "verify_us": []}, dict.fromkeys(STACK, UNREACHED)),
    ],
)
def test_stack_depths_and_their_most_along_the_calls_or_the_reason_why_not(fields, columns):
    line = {"object": "o", "verdict": "accepted", "load_ns": [5], "verify_us": [None]}
    (program,) = parse_bpfverify(json.dumps(line | fields) + "\n")
    assert {name: str(value) for name, value in stack_columns(program).items()} == {
        n: str(v) for n, v in columns.items()
    }


OWN = """#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int own(struct xdp_md *c) {
{% for i in range(n) %}
    if (c->rx_queue_index == {{ i }}) return XDP_DROP;
{% endfor %}
    return XDP_PASS;
}
"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "queues.bpf.c.j2"
    path.write_text(OWN)
    return path


def own(*paths: Path, sizes: tuple[int, ...] = (2, 5)) -> list[Member]:
    return members(VerifierRequest(families=tuple(map(str, paths)), sizes=sizes))


def test_a_template_of_ones_own_is_a_family_named_after_its_file(template: Path):
    queues = [(m.label, source(m).count("XDP_DROP"), m.chosen) for m in own(template, template, sizes=(2, 2, 5))]
    assert queues == [("queues 2", 2, {}), ("queues 5", 5, {})]
    sized = members(VerifierRequest(sizes=(7,), families=("branches", "double_strcmp")))
    assert {(m.family, m.n) for m in sized} == {("branches", 7), ("double_strcmp", 7)}
    usual = members(VerifierRequest(families=("branches", "double_strcmp")))
    assert {m.n for m in usual} >= {350, 1000}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{% for %}", "queues, line 1"),
        ("{{ m }}", "'m' is undefined"),
        ("{{ 1 // (n - 2) }}", r"the template of queues: (integer division or modulo|division) by zero"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_template_that_makes_no_text_is_refused(template: Path, text: str, why: str):
    template.write_text(text)
    with pytest.raises(PlanError, match=why):
        source(own(template)[0])


def test_a_template_needs_sizes_and_a_name_of_its_own(template: Path, tmp_path: Path):
    with pytest.raises(PlanError, match="no sizes"):
        own(template, sizes=())
    (tmp_path / "other").mkdir()
    namesake, branches = tmp_path / "other" / template.name, tmp_path / "branches.bpf.c.j2"
    for path in (namesake, branches):
        path.write_text(OWN)
    with pytest.raises(PlanError, match="queues is a family of another file"):
        own(template, namesake)
    with pytest.raises(PlanError, match="study's own"):
        own(branches)
    with pytest.raises(PlanError, match="No such file"):
        own(tmp_path / "absent.j2")


def test_what_guests_do_not_get_is_noted():
    subjects = [CorpusObject("", "", b"", Member("double_strcmp", n)) for n in (3, 100)]
    subjects.append(CorpusObject("", "", b"", Member("branches", 1000)))
    request = VerifierRequest(kernels=("host", "6.1"))
    assert too_large(request, subjects) == ["guests: generated programs of N = 100 are left out: too slow there"]
    assert too_large(request, subjects[:1]) == too_large(VerifierRequest(kernels=("host",)), subjects) == []
