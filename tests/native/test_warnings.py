"""No C tool has a warning of this machine's compilers; a warning of a user's newer one ends no build."""

import subprocess
from pathlib import Path

import pytest
from tests.compiled import made, tool_source

ROOT = Path(__file__).resolve().parents[2]
TOOLS = sorted(path.parent.name for path in [*ROOT.glob("native/*/Makefile"), ROOT / "afxdp_user/Makefile"])


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_has_no_warning(name: str, tmp_path: Path) -> None:
    benchmarks = ["microbench", "objects"] if name == "microbench" else []
    made(tool_source(name, tmp_path), "STRICT=1", *benchmarks)


def test_a_users_compiler_may_warn(tmp_path: Path) -> None:
    work = tool_source("cpuclock", tmp_path)
    with (work / "cpuclock.c").open("a") as source:
        source.write("static int unused;\n")
    assert made(work).exists()
    with pytest.raises(subprocess.CalledProcessError):
        made(work, "-B", "STRICT=1")
