"""The driver built once, and a function that runs its driver."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from xdplab.studies.execution.benchmarks import Microbench, all_benchmarks, build, parse_microbench
from xdplab.studies.guests import driver

Run = Callable[..., subprocess.CompletedProcess[bytes]]
COUNTS = (1, 100)


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Objects and states of every benchmark."""
    folder = tmp_path_factory.mktemp("microbench")
    for name, content in build(all_benchmarks(COUNTS).values()).items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="session")
def microbench() -> Run:
    command = str(driver("microbench"))

    def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([command, *arguments], capture_output=True, timeout=60, check=False)

    return run


@pytest.fixture(scope="session")
def called(microbench: Run, objects: Path) -> Callable[..., Microbench]:
    """Call a benchmark by name through one wrapper and return its output."""

    def run(name: str, wrapper: str, *options: str) -> Microbench:
        benchmark = all_benchmarks(COUNTS)[name]
        file = objects / f"{benchmark.kernel}.{'bpf.o' if wrapper == 'bpf' else 'so'}"
        state = objects / f"{benchmark.kernel}.state"
        given = ["--state", str(state)] if state.exists() else []
        done = microbench(
            *("--backend", wrapper, "--benchmark", benchmark.kernel, "--object", str(file), "--pause-us", "0"),
            *("--input", str(benchmark.input), *given, *options),
        )
        assert done.returncode == 0, done.stderr
        return parse_microbench(done.stdout)

    return run
