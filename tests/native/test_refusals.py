"""A refused BPF object: every loader names the program, the compiler and the verifier's last line."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.compiled import build_once, made, tool_source

from xdplab.compiler import compiler_version, find_clang, run_tool
from xdplab.errors import HostError, ProgramError
from xdplab.formats.reading import last_words
from xdplab.formats.verifier import parse_bpfverify
from xdplab.generators.adapter import GeneratorSettings
from xdplab.generators.session import Generator
from xdplab.hosts.local import LocalHost
from xdplab.hosts.tool import PROGRAM_REFUSALS, ToolSession
from xdplab.programs.build import compile_command
from xdplab.programs.spec import ProgramSpec, UserProgram
from xdplab.programs.userspace import compile_user
from xdplab.resources import shipped
from xdplab.studies.jit.subjects import parse_jitbench
from xdplab.studies.loading.passes import parse_loadbench

pytestmark = pytest.mark.root
WILD = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
__u64 record SEC(".data.record");
SEC("xdp") int microbench(struct xdp_md *context) { return record + *(volatile __u32 *)(long)context->data; }
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"""
COMPLAINT = "R1 offset is outside of the packet"
# tool, its BPF source, and a line of it with the replacement that the verifier refuses
OWN_OBJECTS = {
    "xdpgen": ("send.bpf.c", "    __u64 *words = (void *)(long)ctx->data;", "send_frame"),
    "afxdp_user": ("redirect.bpf.c", "int xdplab_redirect(struct xdp_md *ctx) {", "xdplab_redirect"),
}
LOADS_NOTHING = {"cpuclock", "reader", "sampler", "costplugin"}
IN_GUESTS = {"costdrive"}
"""It loads its own programs, in guests: tests/studies/cost."""
READS_WILDLY = "\n    if (*(volatile int *)(long)ctx->data == 42)\n        return XDP_DROP;\n"


def said(*argv: object) -> tuple[str, str]:
    """Return a tool's output on both streams, in its own network namespace with a veth pair."""
    script = 'ip link add name refused0 type veth peer name refused1; ip link set refused0 up; exec "$@"'
    words = ["unshare", "--net", "sh", "-c", script, "sh", *map(str, argv)]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
    assert done.returncode != 0
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wild")
    (folder / "program.c").write_text(WILD)
    run_tool(compile_command(find_clang(), UserProgram(str(folder / "program.c"))), folder)
    return folder / "program.bpf.o"


@pytest.mark.parametrize("name", OWN_OBJECTS)
def test_a_tools_own_object(name: str, tmp_path: Path) -> None:
    file, line, program = OWN_OBJECTS[name]
    work = shutil.copytree(Path(build_once(name)).parent, tmp_path / name)  # only the changed file is compiled
    text = (work / file).read_text()
    assert line in text
    (work / file).write_text(text.replace(line, line + READS_WILDLY))
    more = ["--workload", compile_user(ProgramSpec(), tmp_path)] if name == "afxdp_user" else []
    out, _ = said(made(work), "--interface", "refused0", *more)
    error = json.loads(out.splitlines()[-1])
    assert (error["type"], error["step"], error["error"]) == ("error", "load", "EACCES")
    assert error["message"].startswith(f"the kernel refuses {program}, compiled by {compiler_version(find_clang())}")
    assert COMPLAINT.partition(" ")[2] in last_words(error["log"])


@pytest.mark.thorough
def test_an_object_that_is_handed_over(wild: Path, tmp_path: Path) -> None:
    who = f"microbench, compiled by {compiler_version(find_clang())}"
    for name, argv in (("xdpload", ("--interface", "refused0", "--mode", "none", "--object")), ("loadbench", ("bpf",))):
        out, _ = said(build_once(name), *argv, wild)
        error = json.loads(out.splitlines()[-1])
        assert who in error["message"]
        assert COMPLAINT in last_words(error["log"])
    driver = build_once("microbench")
    own = ("--backend", "own-bpf", "--map", ".data.record", "--object", wild, "--", "true")
    for argv in (("--backend", "bpf", "--benchmark", "wild", "--object", wild), own):
        error = json.loads(said(driver, *argv)[0])
        assert error["message"].startswith(f"the kernel refuses microbench of {wild}, compiled by ")
        assert compiler_version(find_clang()) in error["message"]
        assert COMPLAINT in last_words(error["log"])


@pytest.mark.thorough
def test_a_row_on_a_refused_program(wild: Path, tmp_path: Path) -> None:
    done = subprocess.run([build_once("bpfverify"), wild], capture_output=True, check=True, timeout=60)
    (row,) = parse_bpfverify(done.stdout)
    assert (row.name, row.verdict) == ("microbench", "rejected")
    assert str(row.compiler).startswith(compiler_version(find_clang()))
    assert COMPLAINT in str(row.complaint)


def test_a_row_on_a_refused_program_of_raw_instructions(tmp_path: Path) -> None:
    """No compiler made it, so the error names the input."""
    load = bytes.fromhex("611200000000000061000000000000009500000000000000")  # r0 = *(u32 *)(r0 + 0), unset
    asked = f"wild {load.hex()} {bytes(64).hex()} 0\n".encode()
    command = [build_once("jitbench"), "programs", "1", "1"]
    done = subprocess.run(command, input=asked, capture_output=True, check=True, timeout=60)
    (subject,) = parse_jitbench(done.stdout).subjects.values()
    assert subject.name == "wild"
    assert subject.failed == "BPF_PROG_LOAD: Permission denied: R0 !read_ok"


def test_what_python_says_of_a_refused_program(wild: Path, tmp_path: Path) -> None:
    """One line has the program, its compiler and the verifier's last line, through a session and through one call."""
    who = f"microbench.*, compiled by .*{re.escape(compiler_version(find_clang()))}.*: .*{COMPLAINT}"
    microbench = build_once("microbench")
    driver = [microbench, "--backend", "bpf", "--benchmark", "x", "--object", str(wild)]
    with pytest.raises(HostError, match=who) as caught:
        LocalHost().run(driver)
    assert "\n" not in str(caught.value)
    found = subprocess.run([build_once("loadbench"), "bpf", wild], capture_output=True, check=False)
    error = parse_loadbench(found.stdout).error
    assert re.search(who, error.message)
    xdpload = [build_once("xdpload"), "--mode", "none", "--object", str(wild)]
    with ToolSession(LocalHost(), xdpload, deadline_s=30, refusals=PROGRAM_REFUSALS) as session:
        session.open()
        with pytest.raises(ProgramError, match=who):
            session.read("loaded")


def test_every_loader_is_tried_here() -> None:
    """Each C tool that loads a program."""
    text = Path(__file__).read_text()
    makefiles = [shipped("afxdp_user") / "Makefile", *shipped("common").parent.glob("*/Makefile")]
    tools = [path.parent for path in makefiles if path.parent.name not in LOADS_NOTHING | IN_GUESTS]
    assert len(tools) >= 7
    assert all(f'"{folder.name}"' in text for folder in tools)


@pytest.mark.thorough
def test_an_object_that_a_tool_can_do_without(tmp_path: Path, wild: Path) -> None:
    """Then its counts are missing, and the reason says the same."""
    work = tool_source("bpfverify", tmp_path)
    text = (work / "watch.bpf.c").read_text()
    line = "    watch.tgid = current_tgid();"
    assert line in text
    (work / "watch.bpf.c").write_text(text.replace(line, f"{line}\n    watch.tgid += *(volatile int *)8;"))
    done = subprocess.run([made(work), "--watch", wild], capture_output=True, check=True, timeout=60)
    (row,) = parse_bpfverify(done.stdout)
    expected = rf"whoami, compiled by {re.escape(compiler_version(find_clang()))}: .*invalid mem access 'scalar'"
    assert re.search(expected, str(row.watched.peak_reason))


def test_the_generators_log_reaches_the_caller(tmp_path: Path) -> None:
    log = (
        "libbpf: prog 'f': BPF program load failed: Permission denied\n5: (79) r1 = *(u64 *)(r2 +0)\nR7 max value is\n"
    )
    line = {"type": "error", "step": "load", "error": "EACCES", "message": "the kernel refuses f", "log": log}
    binary = tmp_path / "xdpgen"
    binary.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(line)}\nEND\n")
    binary.chmod(0o755)
    session = Generator(LocalHost(), GeneratorSettings(engine="live", interface="none"), str(binary))
    with pytest.raises(HostError, match=r"load: the kernel refuses f \(EACCES\): R7 max value is$"), session:
        session.start()
