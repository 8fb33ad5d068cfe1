"""An impossible program is refused with the field's name; every other one is written as a person would write it."""

import math
import shutil
import subprocess
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from xdplab.errors import PlanError, ProgramError
from xdplab.plan.points import ProgramFactors
from xdplab.programs.source import hash_bits, map_contents, random_cycle, source, user_source, user_state
from xdplab.programs.spec import ACCESSING, FORMS, MAP_TYPES, OPS, ProgramSpec, UserProgram, program_of

KINDS = [(w, m) for w in ACCESSING for m in (MAP_TYPES if w == "lookup" else (None,))]


@st.composite
def specs(draw: st.DrawFn) -> ProgramSpec:
    workload = draw(st.sampled_from(ACCESSING))
    return ProgramSpec(
        workload,
        draw(st.integers(0, 20000)),
        draw(st.sampled_from(OPS)),
        draw(st.sampled_from(FORMS)),
        None if workload == "packet" else 1 << draw(st.integers(8, 20)),
        draw(st.sampled_from(MAP_TYPES)) if workload == "lookup" else None,
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"workload": "arry"}, "workload: 'arry' is none of array, packet, chase, lookup"),
        ({"op": "reads"}, "op: 'reads'"),
        ({"form": "rolled"}, "form: 'rolled'"),
        ({"accesses": -1}, "accesses: -1"),
        ({"accesses": (1 << 24) + 1}, "accesses: 16777217"),
        ({"action": "drop"}, "action: 'drop' is none of tx, redirect"),
        ({"working_set_bytes": 3 << 28}, "from 256 to 536870912"),
        ({"workload": "lookup", "hit": -1}, "hit: -1 is not a whole number from 0 to 100"),
        ({"workload": "rx_hash", "hit": 100}, "hit: workload rx_hash has none"),
        ({"accesses": True}, "accesses: True"),
        ({"accesses": 1.5}, "accesses: 1.5"),
        ({"working_set_bytes": 1000}, r"working_set_bytes: 1000 is not a power of two.*take 512 or 1024"),
        ({"working_set_bytes": 64}, "working_set_bytes: 64"),
        ({"working_set_bytes": 1 << 30}, "from 256 to 536870912"),
        ({"workload": "chase", "working_set_bytes": 64}, "working_set_bytes: 64 is not a whole number from 128"),
        ({"workload": "packet", "working_set_bytes": 4096}, "working_set_bytes: workload packet has none"),
        ({"workload": "lookup", "working_set_bytes": 1001}, "working_set_bytes: 1001 is no multiple"),
        ({"workload": "lookup", "map_type": "queue"}, "map_type: 'queue' is none of percpu_array, array, hash"),
        ({"workload": "rx_hash", "op": "write"}, "op: 'write': workload rx_hash only reads"),
        ({"entries": 10}, "entries: workload array has none"),
        ({"workload": "rx_hash", "working_set_bytes": 4096}, "working_set_bytes: .* has none"),
        ({"workload": "lookup", "entries": 0}, "entries: 0 is not a whole number from 1"),
        ({"workload": "lookup", "entries": 1_000_001}, "entries: 1000001"),
        ({"workload": "lookup", "entries": 64, "working_set_bytes": 4096}, "working_set_bytes: .* has none"),
        ({"workload": "lookup", "map_type": "hash", "hit": 101}, "hit: 101"),
        ({"workload": "lookup", "map_type": "array", "hit": 50}, "hit: 50: each index"),
        ({"workload": "lookup", "map_type": "hash", "entries": 50, "hit": 1}, "hit: 1 % of 50 entries"),
        ({"hit": 50}, "hit: workload array has none"),
        ({"map_type": "hash"}, "map_type: workload array has none"),
    ],
)
def test_nonsense_is_refused_by_the_name_of_its_field(fields, words):
    with pytest.raises(PlanError, match=words):
        ProgramSpec(**fields)


@pytest.mark.parametrize(
    ("workload", "size"), [("array", 256), ("chase", 128), ("array", 1 << 29), ("lookup", 1 << 29)]
)
def test_a_working_set_may_be_as_small_and_as_large_as_the_refusals_say(workload, size):
    assert ProgramSpec(workload, working_set_bytes=size).working_set_bytes == size


LOOKUP = {"workload": "lookup", "accesses": 9}


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"accesses": 0}, "array-read-0 baseline xdp 4096 32 010"),
        ({"accesses": 9}, "array-read-9 array xdp 4096 32 110"),
        ({"accesses": 9, "form": "loop", "op": "write", "frags": True}, "array-write-9 array xdp.frags 4096 1 110"),
        ({"workload": "packet", "accesses": 9, "hook": "tc"}, "packet-read-9 packet tc 0 32 010"),
        ({"workload": "chase", "accesses": 9, "working_set_bytes": 256}, "chase-read-9 chase xdp 32 32 110"),
        ({"workload": "rx_hash", "accesses": 9}, "rx_hash-read-9 metadata xdp 0 32 100"),
        (LOOKUP | {"entries": 5}, "lookup-percpu_array-read-9-of-5 lookup xdp 5 5 110"),
        (LOOKUP | {"map_type": "hash", "entries": 99, "hit": 0}, "lookup-hash-read-9-of-99-hit-0 lookup xdp 99 32 101"),
        (LOOKUP | {"map_type": "hash"}, "lookup-hash-read-9 lookup xdp 4096 32 110"),
        (LOOKUP | {"map_type": "lru_hash"}, "lookup-lru_hash-read-9 lookup xdp 4096 32 100"),
    ],
)  # fmt: skip
def test_what_follows_from_a_specification(fields, facts):
    """Name, template, section, entries, block; and whether it has state, a twin in user space, and misses."""
    spec = ProgramSpec(**fields)
    flags = f"{spec.has_state:d}{spec.in_user_space:d}{spec.misses:d}"
    assert f"{spec.name} {spec.kernel} {spec.section} {spec.table_entries} {spec.block} {flags}" == facts


def test_a_points_program_has_each_of_its_factors(tmp_path):
    given = {
        "workload": "lookup",
        "accesses": 7,
        "op": "write",
        "form": "loop",
        "map_type": "hash",
        "entries": 200,
        "hit": 50,
    }
    made = ProgramFactors(**given, action="redirect", frags="on", hook="xdp")
    assert program_of(made) == ProgramSpec(**given, action="redirect", frags=True)
    assert program_of(replace(made, hook="tc")) == ProgramSpec(**given, action="redirect", hook="tc")
    assert program_of(replace(made, frags="off")).frags is False
    assert program_of(ProgramFactors(workload="chase", working_set_bytes=512)).working_set_bytes == 512
    for name in ("a.bpf.c", "f.pcap"):
        (tmp_path / name).touch()
    own = {"file": str(tmp_path / "a.bpf.c"), "section": "s", "action": "drop", "setup": (("a", "b"), ("c",)),
           "frames": str(tmp_path / "f.pcap"), "function": "f", "cflags": ("-DX=1", "-O1"), "pinned": "keep",
           "hook": "tc"}  # fmt: skip
    factors = ProgramFactors(**own, rodata=(("x", 1), ("y", 2)), maps=(("m", "1", "2"),), setup_files=(("n", "p"),))
    assert program_of(factors) == UserProgram(
        **own, rodata={"x": 1, "y": 2}, maps={"m": [{"key": "1", "value": 2}]}, setup_files={"n": "p"}
    )


def test_a_users_program_needs_its_file_and_a_known_action(tmp_path):
    with pytest.raises(PlanError, match=r"program\.file: there is no file"):
        UserProgram(str(tmp_path / "lb.bpf.c"))
    file = tmp_path / "lb.bpf.c"
    file.touch()
    with pytest.raises(PlanError, match="action: 'reflect' is none of tx, drop, pass, redirect, mixed"):
        UserProgram(str(file), action="reflect")
    assert UserProgram(str(file)).name == "lb"
    assert UserProgram(str(file)).accesses is None


@pytest.mark.parametrize("entries", [1, 2, 3, 4, 5, 1000, 1024, 1025])
def test_a_table_in_user_space_has_twice_its_entries_at_least(entries):
    assert 2 * entries <= 1 << hash_bits(entries) < 4 * entries


def test_without_accesses_all_workloads_are_one_program():
    assert len({source(ProgramSpec(workload)) for workload in ACCESSING}) == 1


@settings(deadline=None)
@given(specs())
def test_the_workload_is_the_same_text_in_the_kernel_and_in_user_space(spec):
    assume(spec.in_user_space)
    begin = "/* ---- the workload:"
    kernel = source(spec).split(begin)[1].split("/* ---- the XDP program")[0]
    user = user_source(spec).split(begin)[1].split("/* ---- what the AF_XDP")[0]
    assert kernel == user
    assert ("#define ACCESSES" in kernel) == bool(spec.accesses)


def test_a_map_that_user_space_lacks_has_no_twin():
    with pytest.raises(ProgramError, match="has no twin in user space"):
        user_source(ProgramSpec("lookup", 1, map_type="lru_hash"))


@settings(deadline=None)
@given(specs())
def test_what_fills_the_maps_fits_the_working_set(spec):
    contents = map_contents(spec)
    if not spec.accesses or spec.workload == "packet":
        assert (contents, user_state(spec)) == ({}, b"")
        return
    (content,) = contents.values()
    entries = spec.working_set_bytes // 8
    keys = entries * {"lpm_trie": 8, "lpm_trie_v6": 20}.get(spec.map_type, 4)
    groups = 8 + 8 * math.ceil(entries / 256) if spec.map_type == "hash_of_maps" else 0
    extra = {"array": 64 + (0 if spec.form == "loop" else 31 * 8), "chase": 64, "lookup": keys + groups}[spec.workload]
    assert len(content) == spec.working_set_bytes + extra


@pytest.mark.parametrize("slots", [2, 3, 64, 512])
def test_the_chase_is_one_cycle_through_every_slot(slots):
    following = random_cycle(slots)
    at, seen = 0, set()
    for _ in range(slots):
        at = int(following[at])
        seen.add(at)
    assert at == 0
    assert seen == set(range(slots))


@pytest.mark.skipif(shutil.which("clang-format") is None, reason="clang-format is not installed")
def test_programs_are_formatted_as_hand_written_ones_are(request, tmp_path):
    texts = set()
    for (workload, map_type), form, accesses in product(KINDS, FORMS, (0, 1, 100)):
        hit = 50 if map_type and "array" not in map_type else None
        spec = ProgramSpec(workload, accesses, "write", form, map_type=map_type, hit=hit)
        texts |= {source(spec), *([user_source(spec)] if spec.in_user_space else [])}
    for number, text in enumerate(texts):
        assert text.endswith("\n")  # which clang-format 14 does not ask for
        (tmp_path / f"{number}.c").write_text(text)
    style = f"--style=file:{request.config.rootpath / '.clang-format'}"
    subprocess.run(["clang-format", style, "--dry-run", "-Werror", *tmp_path.iterdir()], check=True)
