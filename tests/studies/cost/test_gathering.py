# SPDX-License-Identifier: Apache-2.0
"""Which points of a plan a guest counts; what it leaves out is named."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from xdplab.cli import cost
from xdplab.errors import PlanError, ProgramError
from xdplab.plan.model import parse_plan
from xdplab.plan.points import block_points
from xdplab.studies.cost.gathering import countable
from xdplab.studies.cost.points import CostRequest
from xdplab.studies.kinds import kind_named, request_in

PROGRAM = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "action.h"
const volatile int ports = 1;
SEC("xdp") int mine(struct xdp_md *ctx) { return ports ? ACTION : XDP_DROP; }
char _license[] SEC("license") = "GPL";
"""


@pytest.mark.parametrize(
    ("points", "counted", "left_out"),
    [
        ({"mode": ["native", "generic"], "accesses": [0, 10]}, 4, []),
        ({"mode": ["native", "offload"]}, 1, ["1 point with mode offload"]),
        ({"queues": [1, 2], "accesses": [0, 10]}, 2, ["2 points with 2 queues"]),
    ],
)
def test_points_that_no_guest_counts_are_named(
    points: dict[str, list[object]], counted: int, left_out: list[str]
) -> None:
    plan = parse_plan({"name": "p", "blocks": [{"points": {"accesses": [0], "workload": ["array"], **points}}]})
    planned, notes = countable(block_points(plan.blocks[0], "shared"))
    assert len(planned) == counted
    assert [note.removeprefix("not counted: ") for note in notes] == left_out


def test_a_constant_that_a_program_lacks_is_refused_before_a_guest_boots(tmp_path: Path) -> None:
    (tmp_path / "action.h").write_text("#define ACTION XDP_TX\n")
    (tmp_path / "mine.bpf.c").write_text(PROGRAM)
    request = CostRequest(programs=(str(tmp_path / "mine.bpf.c"),), settings=json.dumps({"rodata": {"port": 2}}))
    with pytest.raises(PlanError, match="no constant port") as refused:
        kind_named("cost").start(request, tmp_path / "results")
    assert "ports" in (refused.value.remedy or "")
    assert not (tmp_path / "results").exists()


def test_a_program_that_is_bound_to_a_device_is_not_test_run(tmp_path: Path) -> None:
    kfunc = "extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *time) __ksym;\n"
    calls = PROGRAM.replace("return ports", "__u64 time; return bpf_xdp_metadata_rx_timestamp(ctx, &time)")
    (tmp_path / "mine.bpf.c").write_text(calls.replace("const volatile", f"{kfunc}const volatile"))
    (tmp_path / "action.h").write_text("#define ACTION XDP_TX\n")
    request = CostRequest(programs=(str(tmp_path / "mine.bpf.c"),), modes=("test_run",))
    with pytest.raises(PlanError, match="mode test_run"):
        kind_named("cost").start(request, tmp_path / "results")


def test_a_runs_plan_needs_no_file_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = tmp_path / "users"
    (users / "include").mkdir(parents=True)
    (users / "include/action.h").write_text("#define ACTION XDP_TX\n")
    (users / "mine.bpf.c").write_text(PROGRAM)
    monkeypatch.chdir(users)
    settings = json.dumps({"rodata": {"ports": 2}, "cflags": ["-Iinclude"]})
    request = CostRequest(programs=("mine.bpf.c", "array:10"), settings=settings)
    first = kind_named("cost").start(request, tmp_path / "first")
    users.rename(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    read = request_in(first.directory.path / "plan.yaml")
    assert read is not None
    second = read[0].start(read[1], tmp_path / "second")
    assert second.plan.points == first.plan.points


@pytest.mark.parametrize(
    ("committed", "counted"),
    [({"include/action.h": "then"}, "then"), ({}, "today"), ({"include/other.h": ""}, "today")],
    ids=["the commit's own", "a made folder", "a made header"],
)
def test_a_commits_program_has_the_commits_headers(
    committed: Mapping[str, str], counted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "include").mkdir()
    for name, text in {"mine.bpf.c": PROGRAM, **{name: _header(text) for name, text in committed.items()}}.items():
        (tmp_path / name).write_text(text)
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "include/action.h").write_text(_header("today"))
    monkeypatch.chdir(tmp_path)
    read: list[str] = []

    def not_counted(request: CostRequest, results: Path) -> list[object]:
        run = kind_named("cost").start(request, results)
        read.extend(path.read_text() for path in run.directory.path.rglob("action.h"))
        return []

    monkeypatch.setattr(cost, "_cases", not_counted)
    settings = json.dumps({"cflags": "-Iinclude"})
    cost._cases_in("git:HEAD", CostRequest(programs=("mine.bpf.c",), settings=settings))
    assert read == [_header(counted)]


def test_an_error_of_a_commits_program_is_not_that_of_todays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.bpf.c").write_text("int x = ;")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "mine.bpf.c").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProgramError, match="git:HEAD: clang refuses"):
        cost._cases_in("git:HEAD", CostRequest(programs=("mine.bpf.c",)))


def _header(text: str) -> str:
    return f"#define ACTION XDP_TX /* {text} */\n"
