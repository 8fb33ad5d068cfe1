# SPDX-License-Identifier: Apache-2.0
"""shell/check.sh runs the tests in parts, and with each Python: each part counts, and nothing is left."""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from itertools import combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression
from tests.waiting import until

CHECK = Path(__file__).resolve().parents[2] / "shell" / "check.sh"
SETUP = '#!/bin/sh\n[ "$1" = --where ] && echo "$PWD/venv" || echo "$1" >>"$PWD/given-back"\n'
PYTEST = r"""#!/bin/sh
echo "$*" >>asked
arguments=$(printf '%s\t' "$@")
echo "$arguments" >>arguments
case "$*" in
*"-m guest"*) echo "the guests"; exit "$CODE_OF_GUEST" ;;
*" --ignore="*) exit "$CODE_OF_REST" ;;
*" tests/analysis "*) echo "in user space"; exit "$CODE_OF_USERSPACE" ;;
*last-failed*) echo "a second time"; exit "$CODE_OF_SECOND" ;;
*) echo "the traffic part"; exit "$CODE_OF_TRAFFIC" ;;
esac
"""


MYPY = '#!/bin/sh\necho "the types"; exit "$CODE_OF_TYPES"\n'
PARTS = ("rest", "traffic", "guest", "userspace", "types")


def make(folder: Path, pytest_tool: str) -> Path:
    """Put check.sh and what it calls into a folder, and return the one for its temporary files."""
    tools = {"ruff": "#!/bin/sh\n", "lint-imports": "#!/bin/sh\n", "mypy": MYPY, "pytest": pytest_tool}
    files = {"shell/setup.sh": SETUP, **{f"venv/bin/{name}": text for name, text in tools.items()}}
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        (folder / path).chmod(0o755)
    shutil.copy(CHECK, folder / "shell" / "check.sh")
    (temporary := folder / "temporary").mkdir()
    return temporary


def check(folder: Path, *argv: str, second: int = 1, **codes: int) -> subprocess.CompletedProcess[str]:
    """Run check.sh with a pytest whose parts end with these exit codes, and see that nothing is left."""
    temporary = make(folder, PYTEST)
    codes = dict.fromkeys(PARTS, 0) | {"second": second} | codes
    own = {f"CODE_OF_{name.upper()}": str(code) for name, code in codes.items()} | {"TMPDIR": str(temporary)}
    argv = ("shell/check.sh", *argv)
    result = subprocess.run(argv, cwd=folder, env=os.environ | own, capture_output=True, text=True)
    assert list(temporary.iterdir()) == []
    assert (folder / "given-back").read_text() == "--give-back\n"
    return result


@pytest.mark.parametrize("codes", [{}, *({part: 1} for part in PARTS), dict.fromkeys(PARTS, 1), {"rest": 5}], ids=str)
def test_each_part_decides_and_nothing_is_left(tmp_path: Path, codes: dict[str, int]) -> None:
    result = check(tmp_path, **codes)
    assert result.returncode == (1 if codes else 0), result.stderr
    for words in ("the traffic part", "the guests", "in user space", "the types"):
        assert words in result.stdout


def runs(pid: str) -> bool:
    """Whether a process has not ended: one that nobody waits for has no arguments."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    return False


def ended_and_nothing_left(tmp_path: Path) -> None:
    pids = (tmp_path / "pids").read_text().split()
    try:
        assert until(lambda: not any(map(runs, pids)))
        assert list((tmp_path / "temporary").iterdir()) == []
    finally:
        for pid in filter(runs, pids):
            os.kill(int(pid), signal.SIGKILL)


def test_a_signal_to_the_script_alone_ends_the_tests_and_leaves_nothing(tmp_path: Path) -> None:
    temporary = make(tmp_path, "#!/bin/sh\necho $$ >>pids\nexec sleep 600\n")
    own = os.environ | {"TMPDIR": str(temporary)}
    (tmp_path / "pids").touch()
    with subprocess.Popen(["shell/check.sh", "thorough"], cwd=tmp_path, env=own, stdout=subprocess.DEVNULL) as script:
        assert until(lambda: len((tmp_path / "pids").read_text().split()) == 3)
        script.terminate()
    ended_and_nothing_left(tmp_path)


MARKS = ("lab", "guest", "machine", "thorough", "nightly")
ALL = [[], ["core", "thorough"]]


@pytest.fixture(scope="module", params=ALL, ids=" then ".join)
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The arguments of each call of pytest: of `check.sh`, and of `make test-all`."""
    calls: list[list[str]] = []
    for words in request.param or [""]:
        folder = tmp_path_factory.mktemp("parts")
        check(folder, *words.split())
        calls += [line.split("\t") for line in (folder / "arguments").read_text().splitlines()]
    assert len(calls) == 4 * (len(request.param) or 1)
    return calls


@pytest.mark.parametrize("marks", [marks for n in range(6) for marks in combinations(MARKS, n)], ids="+".join)
@pytest.mark.parametrize("listed", [True, False])
def test_each_test_is_in_one_part(parts: list[list[str]], listed: bool, marks: tuple[str, ...]) -> None:
    """Whatever marks it has, and whether its file is in the list of those that work in user space."""
    selected = 0
    for words in parts:
        files = listed if "tests/analysis" in words else not (listed and "--ignore=tests/analysis" in words)
        wanted = Expression.compile(words[words.index("-m") + 1])
        selected += files and wanted.evaluate(lambda mark, **_: mark in marks)
    assert selected == ("nightly" not in marks)


def test_a_fault_in_the_types_alone_ends_lint_without_a_test(tmp_path: Path) -> None:
    assert check(tmp_path, "lint", types=1).returncode == 1
    assert not (tmp_path / "asked").exists()


def test_traffic_that_failed_may_pass_the_second_time(tmp_path: Path) -> None:
    result = check(tmp_path, traffic=1, second=0)
    assert result.returncode == 0, result.stderr
    assert "a second time" in result.stdout


@pytest.mark.parametrize(("rest", "second", "code"), [(0, 0, 0), (5, 5, 0), (5, 0, 0), (1, 5, 1), (5, 1, 1)])
def test_again_runs_what_failed_and_a_part_may_have_nothing_left(
    tmp_path: Path, rest: int, second: int, code: int
) -> None:
    result = check(tmp_path, "again", rest=rest, second=second, guest=rest, userspace=rest)
    assert result.returncode == code, result.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked
    assert all("--last-failed --last-failed-no-failures=none" in line for line in asked)


UV = """#!/bin/sh
case "$*" in
*"--python 3.14"*) echo "error: no such download" >&2; exit 2 ;;
venv*) for last; do :; done; mkdir -p "$last/bin"; cp "$DOUBLE" "$last/bin/python" ;;
*sync*3.13/*) exit "${SYNC:-0}" ;;
esac
"""
OWN = """#!/bin/sh
case "$*" in -c*) echo 3.11 ;; *index-url) exit 1 ;; *" install "*) exit "${PIP:-1}" ;; esac
"""
OTHER = """#!/bin/sh
[ -z "${PYTHONDONTWRITEBYTECODE:-}" ] || exit 9
case "$0" in */3.13/*) echo "1 of 9 failed"; exit "${TESTS:-0}" ;; *) echo "9 passed" ;; esac
"""


def with_pythons(tmp_path: Path, other: str) -> dict[str, str]:
    """Lay the script out beside a uv that makes environments whose Python is ``other``; return its environment."""
    temporary = make(tmp_path, "#!/bin/sh\n")
    for path, text in {"double": other, "venv/bin/uv": UV, "venv/bin/python": OWN}.items():
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    return os.environ | {"TMPDIR": str(temporary), "DOUBLE": str(tmp_path / "double"), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize(
    ("own", "code"), [({}, 0), ({"TESTS": "1"}, 1), ({"SYNC": "2"}, 1), ({"SYNC": "2", "PIP": "0"}, 0)]
)
def test_each_python_counts_except_an_unavailable_one(tmp_path: Path, own: dict[str, str], code: int) -> None:
    environment = with_pythons(tmp_path, OTHER) | own
    argv = ["shell/check.sh", "pythons"]
    result = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == code, result.stdout + result.stderr
    assert "== Python 3.11\nleft to make test-all" in result.stdout
    assert "== Python 3.12, the tests of make test-fast\n9 passed\n" in result.stdout
    assert "skipped: it is not here, and uv cannot fetch it: error: no such download" in result.stdout
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_signal_ends_the_tests_of_each_python(tmp_path: Path) -> None:
    environment = with_pythons(tmp_path, f"#!/bin/sh\necho $$ >>{tmp_path}/pids\nexec sleep 600\n")
    (tmp_path / "pids").touch()
    argv = ["shell/check.sh", "pythons"]
    with subprocess.Popen(argv, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as script:
        assert until(lambda: len((tmp_path / "pids").read_text().split()) == 2)
        script.terminate()
    ended_and_nothing_left(tmp_path)


def test_each_test_file_that_the_script_names_is_there(tmp_path: Path) -> None:
    """pytest runs no test at all where one of its files is missing."""
    check(tmp_path)
    arguments = (tmp_path / "asked").read_text().split()
    paths = {argument.removeprefix("--ignore=") for argument in arguments if "tests/" in argument}
    assert len(paths) > 10
    assert [path for path in sorted(paths) if not any(CHECK.parents[1].glob(path))] == []
