"""A tool that dies on its host while programs are prepared is started again; other failures are reported."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xdplab.errors import CutOffError, HostError, HostLostError, ProgramError, XdplabError
from xdplab.plan import parse_plan, points_of
from xdplab.programs.build import BuiltProgram, build
from xdplab.programs.spec import ProgramSpec
from xdplab.programs.work import AccessWork
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic import prepare, runs
from xdplab.studies.traffic.prepare import require_content, tried_again

KILLED = HostError("dut: xdpload ended without an answer: Killed")


class Dying:
    def __init__(self, *errors: XdplabError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "prepared"


@pytest.mark.parametrize(
    ("errors", "retries", "calls", "shown"),
    [
        ([KILLED], 1, 2, None),
        ([KILLED] * 3, 1, 2, HostError),  # as often as the plan says and no more
        ([HostLostError("dut is gone")], 3, 1, HostLostError),
        ([ProgramError("too complex")], 3, 1, ProgramError),
    ],
)
def test_only_a_loader_that_is_killed_is_tried_again(
    errors: list[XdplabError], retries: int, calls: int, shown: type[XdplabError] | None
) -> None:
    work = Dying(*errors)
    with pytest.raises(shown) if shown else nullcontext():
        assert tried_again(retries, work) == "prepared"
    assert work.calls == calls


def test_a_connection_that_is_lost_after_the_last_trial_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose trials were all measured ended with an error, because its hosts' state was asked only once."""
    states, noted = Dying(CutOffError("dut: the connection is lost")), []
    monkeypatch.setattr(runs, "host_states", lambda *_: states())
    record = SimpleNamespace(note=lambda when, state: noted.append((when, state)), keep=lambda: None)
    runs._ask(record, "after", {"auto": SimpleNamespace(name="netns:auto")})
    assert noted == [("after", "prepared")]


def test_a_file_that_is_not_the_plans_is_not_measured(tmp_path: Path) -> None:
    """A worker on another machine reads its own file at the path that the run has its copy at."""
    file = tmp_path / "mine.bpf.c"
    file.write_text(f"{' ' * 9000}int x;")
    plan = {"name": "u", "blocks": [{"points": {"program": {"file": str(file)}}}]}
    (point,) = points_of(parse_plan(plan), "shared")
    require_content(point.program)
    file.write_text(f"{' ' * 9000}int y;")
    with pytest.raises(ProgramError, match="is not the file that this plan was made with"):
        require_content(point.program)


def test_labs_that_prepare_a_program_at_once_do_not_read_each_others_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs, or two labs of one, share the cache: the work of an access was read from the other kernel's image, and
    a kernel without a JIT had the machine code of another one in its run."""
    monkeypatch.setattr(prepare, "cache_directory", lambda: tmp_path / "cache")
    host = SimpleNamespace(run=lambda argv: SimpleNamespace(text="x86_64\n"), put=lambda *_: None)
    lab: Any = SimpleNamespace(dut=host, dut_interface="dut0", tg=host, work_dir=lambda _: "/w")
    cache = build(ProgramSpec(accesses=1), tmp_path / "cache").directory
    (cache / "jited.bin").write_bytes(b"of another kernel")

    def loaded(host: object, xdpload: str, built: BuiltProgram, folder: str, interface: str) -> SimpleNamespace:
        built.add("xlated.bin", b"mine")
        (cache / "xlated.bin").write_bytes(b"of another kernel")
        return SimpleNamespace(jit=True)

    def work(built: BuiltProgram, **_: object) -> AccessWork:
        return AccessWork(missing=(built.directory / "xlated.bin").read_text())

    monkeypatch.setattr(prepare, "load_report", loaded)
    monkeypatch.setattr(prepare, "prove", lambda *_, **__: None)
    monkeypatch.setattr(prepare, "kernel_work", work)
    run = RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="")
    point = next(p for p in points_of(parse_plan({"name": "t", "blocks": [{"points": {"accesses": 1}}]}), "shared")
                 if p.program.accesses)  # fmt: skip
    tools: Any = SimpleNamespace(xdpload="xdpload")
    (found,) = prepare.prepare_programs(lab, run, lambda: tools, [point]).values()
    assert found.work["kernel"].missing == "mine"
    kept = run.program_dir(found.built.hash)
    assert (kept / "xlated.bin").read_bytes() == b"mine"
    assert not (kept / "jited.bin").exists()
    assert (kept / "program.bpf.o").read_bytes() == (cache / "program.bpf.o").read_bytes()
