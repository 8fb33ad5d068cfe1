"""Every BPF object × every clang of Debian × kernels: the verifier accepts it, and N accesses stay N."""

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from tests.compiled import build_once
from tests.compilers import compilers_debian as debian
from tests.compilers import compilers_objects as objects

from xdplab.compiler import compiler_version, find_clang
from xdplab.errors import LabError, XdplabError
from xdplab.formats.verifier import VerifiedProgram, parse_bpfverify
from xdplab.hosts import Host
from xdplab.hosts.local import LocalHost
from xdplab.labs import use_lab
from xdplab.labs.vm import kernels
from xdplab.plan.maps import IN_USER_SPACE
from xdplab.programs.proof import count_bytecode, prove_user
from xdplab.programs.userspace import compile_user
from xdplab.studies.execution.benchmarks import BPF, all_benchmarks, object_name
from xdplab.studies.execution.counted import Wrapped
from xdplab.studies.execution.proof import differences, executed
from xdplab.studies.verifier.generated import PROGRAMS

pytestmark = pytest.mark.thorough

DEBIAN_13 = 19
"""The clang of Debian 13."""

HOOKS = ("fentry/", "fexit/", "kprobe/", "tp_btf/")
"""A kernel may lack what such a program attaches to: its loader then does without."""


@dataclass
class Clang:
    """One release of clang, set as $CLANG for the test; ``folder`` keeps its objects."""

    release: int
    folder: Path

    @cached_property
    def objects(self) -> list[str]:
        return [str(path) for path in objects.every(self.folder)]

    @cached_property
    def every_object(self) -> list[str]:
        """The same objects, and the generated programs of every N."""
        more = objects.generated(self.folder, objects.EVERY_N)
        return list(dict.fromkeys([*self.objects, *(str(built.object) for built in more)]))


def releases() -> Iterator[object]:
    """The ends of the range and the stable Debian's own; `nightly` tries those between."""
    known = debian.releases()
    always = {min(known), DEBIAN_13, max(known)}
    for release in known:
        yield pytest.param(release, id=f"clang-{release}", marks=() if release in always else pytest.mark.nightly)


@pytest.fixture(scope="module", params=releases())
def fetched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clang]:
    release: int = request.param
    try:
        command = debian.clang(release)
    except LabError as error:
        pytest.skip(f"clang {release} is not available: {error}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLANG", str(command))
        find_clang.cache_clear()
        yield Clang(release, tmp_path_factory.mktemp(f"clang-{release}"))
    find_clang.cache_clear()


@pytest.fixture(scope="session")
def bpfverify() -> str:
    return build_once("bpfverify")


def refused(rows: tuple[VerifiedProgram, ...]) -> list[str]:
    """Return each program that a kernel refused although it has what the program attaches to."""
    return [
        f"{Path(row.object).name}, {row.section or 'no program'}: {row.verdict}: {row.complaint or row.cause}"
        for row in rows
        if row.verdict != "accepted" and not (row.verdict == "environment" and (row.section or "").startswith(HOOKS))
    ]


def verified(host: Host, command: str, types: str, paths: list[str], deadline_s: float) -> tuple[VerifiedProgram, ...]:
    argv = [command, "--types", types, "--deadline", "120", *paths]
    return parse_bpfverify(host.run(argv, deadline_s=deadline_s).stdout)


def prove(clang: Clang, accesses: tuple[int, ...]) -> None:
    """Execute the bytecode of each generated program, and the machine code of its twin for user space."""
    for built in objects.generated(clang.folder, accesses):
        spec = built.program
        assert len(count_bytecode(built.image, spec)) == 4
        if spec.form == "bounded" and (spec.workload != "lookup" or spec.map_type in IN_USER_SPACE):
            prove_user(compile_user(spec, clang.folder, cc=find_clang()).read_bytes(), spec)


def test_it_is_the_release_that_was_asked_for(fetched: Clang) -> None:
    assert f"clang version {fetched.release}." in compiler_version(find_clang())


@pytest.mark.root
def test_this_kernel_takes_every_object(fetched: Clang, bpfverify: str) -> None:
    paths = fetched.objects
    rows = verified(LocalHost(), bpfverify, str(PROGRAMS / "known.types"), paths, 120)
    assert {row.object for row in rows} == set(paths)
    assert refused(rows) == []


def test_n_accesses_stay_n(fetched: Clang) -> None:
    prove(fetched, objects.SAMPLE)


@pytest.mark.guest
def test_the_clocks_of_a_benchmark_enclose_its_work(fetched: Clang) -> None:
    assert fetched.objects
    benchmarks = [one for one in all_benchmarks().values() if BPF in one.wrappers]
    folder = fetched.folder / "microbench"
    wrapped = [Wrapped(one, BPF, folder / object_name(one, BPF)) for one in benchmarks]
    for one, calls in zip(benchmarks, executed(wrapped), strict=True):
        assert not isinstance(calls, XdplabError), one.name
        assert differences(one, BPF, calls) == [], one.name


@pytest.mark.nightly
def test_every_n_stays_n(fetched: Clang) -> None:
    prove(fetched, objects.EVERY_N)


@pytest.mark.root
@pytest.mark.nightly
@pytest.mark.parametrize("kernel", kernels.KNOWN)
def test_every_kernel_takes_every_object(fetched: Clang, kernel: str, bpfverify: str) -> None:
    name = f"vm:{kernel}:functional"
    try:
        kernels.kernel(kernel)
    except LabError as error:
        pytest.skip(f"no guest of kernel {kernel} is available: {error}")
    paths = [path for path in fetched.every_object if kernel != "5.10" or not wants_more_than_5_10(Path(path))]
    with use_lab(name) as lab:
        guest = lab.host("guest")
        folder = guest.run(["mktemp", "-d"]).text.strip()
        guest.run(["tar", "-xf", "-", "-C", folder], stdin=packed([bpfverify, str(PROGRAMS / "known.types"), *paths]))
        inside = [f"{folder}/{rank}" for rank in range(len(paths) + 2)]
        rows = verified(guest, inside[0], inside[1], inside[2:], 500)
    assert {row.object for row in rows} == set(inside[2:])
    assert refused(rows) == []


def wants_more_than_5_10(path: Path) -> bool:
    """Tell whether 5.10 refuses an object from every compiler; three kinds of objects are such.

    A block of lookups is a subprogram that takes a pointer. The tests' own DUT uses atomic instructions with a result.
    The injector of selftest calls bpf_loop(), of 5.17, and redirects with BPF_F_BROADCAST, of 5.13.
    """
    facts = path.with_name("build.json")
    program = json.loads(facts.read_text())["program"] if facts.is_file() else {}
    is_subprogram = (program.get("workload"), program.get("form")) == ("lookup", "bounded")
    return is_subprogram or path.name in ("dut.bpf.o", "inject.bpf.o")


def packed(paths: list[str]) -> bytes:
    """Return an archive of files, named by their rank."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for rank, path in enumerate(paths):
            archive.add(path, str(rank))
    return buffer.getvalue()
