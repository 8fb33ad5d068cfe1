"""The user-space twin makes the same accesses (by its machine code and by counting) and returns the right sum."""

import ctypes
import shutil
from pathlib import Path

import numpy as np
import pytest

from xdplab.compiler import run_tool
from xdplab.errors import ProgramError
from xdplab.plan.maps import IN_USER_SPACE
from xdplab.programs.counting import AccessCounts, sample_frame
from xdplab.programs.proof import prove_user
from xdplab.programs.source import HEADER_BYTES, user_source, user_state
from xdplab.programs.spec import ACCESSING, OPS, ProgramSpec
from xdplab.programs.userspace import compile_user, count_natively

KINDS = [(w, m) for w in ACCESSING for m in (IN_USER_SPACE if w == "lookup" else (None,))]
PER_ACCESS = {
    "array": ((1, 0), (0, 1)),
    "packet": ((1, 0), (1, 1)),
    "chase": ((1, 0), (1, 1)),
    "lookup": ((1, 0), (0, 1)),
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("workload", "map_type"), KINDS)
def test_the_machine_code_makes_exactly_n_accesses(workload, map_type, op, tmp_path):
    loads, stores = PER_ACCESS[workload][OPS.index(op)]
    for n, form in ((0, "bounded"), (1, "bounded"), (33, "unrolled"), (100, "loop"), (1600, "bounded")):
        spec = ProgramSpec(workload, n, op, form, map_type=map_type)
        library = compile_user(spec, tmp_path, "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter").read_bytes()
        assert prove_user(library, spec) == (AccessCounts(n * loads, n * stores, None),) * 4


@pytest.mark.parametrize(("workload", "map_type"), KINDS)
def test_a_counting_build_counts_the_same(workload, map_type):
    assert count_natively(ProgramSpec(workload, 100, "write", map_type=map_type), packets=3) == 300


@pytest.mark.parametrize("compiler", ["aarch64-linux-gnu-gcc", "clang"])
def test_other_compilers_and_machines_are_proved_too(compiler, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    spec = ProgramSpec("chase", 100, "write")
    library = compile_user(spec, tmp_path, cc=compiler).read_bytes()
    assert prove_user(library, spec) == (AccessCounts(100, 100, None),) * 4


def test_a_tampered_twin_is_found_out(tmp_path):
    spec = ProgramSpec("array", 100)
    text = user_source(spec).replace("#define ACCESSES 100", "#define ACCESSES 101")
    (tmp_path / "workload_user.c").write_text(text)
    run_tool(["cc", "-O2", "-fPIC", "-shared", "workload_user.c", "-o", "workload.so"], tmp_path)
    with pytest.raises(ProgramError, match=r"user space: array-read-100 promises 100 loads, .* makes 101 loads"):
        prove_user((tmp_path / "workload.so").read_bytes(), spec)


def call(spec: ProgramSpec, folder: Path, packets: int) -> list[int]:
    library = ctypes.CDLL(str(compile_user(spec, folder)))
    assert ctypes.c_ulong.in_dll(library, "xdplab_state_bytes").value == len(user_state(spec))
    library.xdplab_workload.restype = ctypes.c_ulong
    library.xdplab_workload.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
    state = ctypes.create_string_buffer(user_state(spec) or b"\0")
    frame = ctypes.create_string_buffer(sample_frame(60), 60)
    return [library.xdplab_workload(state, frame, 60) for _ in range(packets)]


@pytest.mark.parametrize(("workload", "map_type"), [kind for kind in KINDS if kind[0] in ("array", "lookup")])
def test_what_is_read_is_what_is_there(workload, map_type, tmp_path):
    spec = ProgramSpec(workload, 600, working_set_bytes=8192, map_type=map_type)
    words = np.frombuffer(user_state(ProgramSpec("array", 1, working_set_bytes=8192)), np.uint64)[HEADER_BYTES // 8 :]
    first, second = call(spec, tmp_path, 2)
    assert first == int(words[:600].sum())
    # Blocks of 32 from 600 to 1015, the one that ends with the working set, and the rest from the start.
    assert second == int(np.concatenate([words[600:1016], words[992:1024], words[:152]]).sum())


def test_the_frames_bytes_are_summed(tmp_path):
    payload = np.frombuffer(sample_frame(60), np.uint8)[14:].astype(int)
    sums = call(ProgramSpec("packet", 92), tmp_path, 1)
    # 46 bytes: 0 to 31, 14 to 45, and 28 from the start
    assert sums == [payload[:32].sum() + payload[14:46].sum() + payload[:28].sum()]
