"""Programs that need what their own loader gives them: a target, a module, an operations table of the kernel."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from test_verifier_command import NOTHING_ELSE, command
from tests.studies.verifier.objects import source_of

from xdplab.errors import PlanError, UnsupportedError
from xdplab.studies.verifier.machines import TARGETS, _load_modules, put_targets, tables_of
from xdplab.studies.verifier.points import Given

TARGET = source_of("""
__attribute__((noinline)) int replaced(struct xdp_md *context) {
    volatile int kept = XDP_PASS;
    return context ? kept : 0;
}
SEC("xdp")
int holder(struct xdp_md *context) {
    return replaced(context);
}
""")
ATTACHED = source_of("""
SEC("freplace/replaced")
int replaces(struct xdp_md *context) {
    return context->rx_queue_index ? XDP_PASS : XDP_DROP;
}
SEC("fentry/holder")
int enters(void *context) {
    return 0;
}
""")
OF_A_MODULE = source_of("""
SEC("fentry/veth_xmit")
int sends(void *context) {
    return 0;
}
""")
OPERATIONS = source_of("""
struct tcp_congestion_ops {
    unsigned int (*ssthresh)(void *);
    void (*cong_avoid)(void *, unsigned int, unsigned int);
    unsigned int (*undo_cwnd)(void *);
    char name[16];
} __attribute__((preserve_access_index));
SEC("struct_ops/threshold") unsigned int threshold(unsigned long long *arguments) { return 2; }
SEC("struct_ops/avoid") void avoid(unsigned long long *arguments) {}
SEC("struct_ops/undo") unsigned int undo(unsigned long long *arguments) { return 2; }
SEC(".struct_ops")
struct tcp_congestion_ops mine = {(void *)threshold, (void *)avoid, (void *)undo, "xdplab_mine"};
""")


def table_in(folder: Path, target: Path) -> Path:
    table = folder / "mine.targets"
    table.write_text(
        f"# what each attaches to\n* freplace/* {target} holder replaced\n* fentry/holder {target} holder holder\n"
    )
    return table


def test_a_run_keeps_the_targets_and_a_place_gets_them(tmp_path: Path):
    (tmp_path / "target.o").write_bytes(b"elf")
    files = tables_of(Given(attached=str(table_in(tmp_path, Path("target.o")))), ["mine.o"])
    (name,) = set(files) - {TARGETS}
    assert files[name] == b"elf"
    lines = files[TARGETS].decode().splitlines()
    assert lines == [f"* freplace/* {name} holder replaced", f"* fentry/holder {name} holder holder"]
    run = tmp_path / "run"
    run.mkdir()
    (run / TARGETS).write_bytes(files[TARGETS])
    there = []
    place = SimpleNamespace(put=lambda path: there.append(path) or f"/guest/{path.name}")
    assert put_targets(run / TARGETS, place) == f"/guest/{TARGETS}"
    assert set(there) == {run / name, run / TARGETS}


@pytest.mark.parametrize(
    ("option", "text", "why"),
    [
        ("attached", "* freplace/a x.o holder\n", "line 1: not a rule"),
        ("attached", "\n* freplace/a absent.o a b\n", "line 2: .*absent.o: No such file"),
        ("attached", "other* freplace/a t t t\n", "no object matches other"),
        ("variables", "# mine\nother.o rounds 50\n", "line 2: no object matches other.o"),
        ("variables", "# mine\n* rounds many\n", "line 2: not a rule"),
    ],
)
def test_a_table_that_cannot_be_followed_is_refused(tmp_path: Path, option: str, text: str, why: str):
    (tmp_path / "t").write_text(text)
    with pytest.raises(PlanError, match=why):
        tables_of(Given(**{option: str(tmp_path / "t")}), ["mine.o"])


def test_a_module_that_a_guest_does_not_have_is_told():
    done = SimpleNamespace(ok=False, error_text="modprobe: FATAL: Module x not found\n")
    place = SimpleNamespace(label="guest", host=SimpleNamespace(run=lambda argv, check: done))
    with pytest.raises(UnsupportedError, match="module x cannot be loaded: modprobe"):
        _load_modules(place, ["x"])


@pytest.mark.root
def test_what_a_program_attaches_to_is_said_or_asked_for(verify, compile_text, tmp_path: Path):
    path, target = compile_text(ATTACHED), compile_text(TARGET)
    replaces, enters = verify(path)
    assert (replaces.verdict, replaces.cause) == ("no_type", "what program it attaches to is not said")
    assert (enters.verdict, enters.cause) == ("environment", "what it attaches to is not in this kernel")
    said = verify(path, "--targets", str(table_in(tmp_path, target)))
    for program in said:  # where the kernel lets nobody trace, it asks nothing more of the target
        assert program.verdict == "accepted" or program.cause.startswith("not permitted"), program.complaint
    for program in verify(path, "--targets", str(table_in(tmp_path, path))):
        assert (program.verdict, program.cause) == ("loader", "what it attaches to cannot be loaded")
        assert "holder: No such file" in program.complaint


@pytest.mark.root
def test_operations_of_the_kernel_are_verified(verify, compile_text):
    found = {program.name: program for program in verify(compile_text(OPERATIONS))}
    assert {name: (p.program_type, p.verdict) for name, p in found.items()} == dict.fromkeys(
        ("threshold", "avoid", "undo"), ("struct_ops", "accepted")
    )


@pytest.mark.root
@pytest.mark.guest
@pytest.mark.nightly
def test_a_guest_accepts_what_attaches_to_a_program_and_to_a_module(compile_text, tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, text in (("attached", ATTACHED), ("module", OF_A_MODULE), ("operations", OPERATIONS)):
        (folder / f"{name}.o").write_bytes(compile_text(text).read_bytes())
    table = table_in(tmp_path, compile_text(TARGET))
    given = ("--targets", str(table), "--load-module", "veth", "--kernel", "6.1")
    command(str(folder), *NOTHING_ELSE, *given, "--out", str(tmp_path / "r"))
    (run,) = (tmp_path / "r").iterdir()
    rows = pd.read_parquet(run / "verifier.parquet")
    assert dict(zip(rows["program"], rows["verdict"], strict=True)) == dict.fromkeys(
        ("replaces", "enters", "sends", "threshold", "avoid", "undo"), "accepted"
    )
