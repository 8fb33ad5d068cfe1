# SPDX-License-Identifier: Apache-2.0
"""shell/distros.sh, with fakes of its tools: a part fails alone, is limited, joins one table, and leaves nothing."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from tests.waiting import until

pytestmark = pytest.mark.thorough

DISTROS = Path(__file__).resolve().parents[2] / "shell" / "distros.sh"
ENTER = r"""#!/bin/sh
# what a command in a root would say, and how it would end
case "$*" in
*value_counts*) echo "138 valid, 6 unsupported" ;;
*run_matrix.sh*) eval "$TRIALS" ;;
*"make test-fast"*) echo "================ 1500 passed, 2 skipped in 90.15s ================" ;;
*"check.sh again"*) echo "========= 2 passed, 1055 deselected in 8.15s ========="; exit "$AGAIN" ;;
*"make test"*)
    mkdir -p "$CLONE/.pytest_cache/v/cache" && touch "$CLONE/.pytest_cache/v/cache/nodeids"
    echo "================ 2 failed, 17 passed, 40 deselected in 8.15s ================"
    echo "SKIPPED [3] tests/labs/test_vm.py:47: needs root"
    echo "=== 1000 passed, 3 skipped, 17 deselected, 2 warnings in 238.15s (0:03:58) ==="
    exit 1 ;;
*) echo "clang 19.1.7"; echo "Python 3.13.5" ;;
esac
"""
DEBOOTSTRAP = r"""#!/bin/sh
case $4 in "$NO_ROOT") echo "E: no such suite"; exit 1 ;; esac
echo "fresh root" >>"$CALLS"
cd "$5" 2>/dev/null || mkdir -p "$5" && cd "$5"
mkdir -p etc/apt etc/sudoers.d root home/user usr/local/share/ca-certificates
"""
TOOLS = {
    "id": "#!/bin/sh\necho 0\n",
    "unshare": '#!/bin/sh\nshift\nexec "$@"\n',
    "chroot": "#!/bin/sh\n",
    "slirp4netns": "#!/bin/sh\nexec sleep 1000\n",
    "ip": '#!/bin/sh\necho "$*" >>"$CALLS"\ncase $* in *show*) echo "inet 10.0.2.100" ;; esac\n',
    "nsenter": ENTER,
    "debootstrap": DEBOOTSTRAP,
}


class Checkout:
    """A checkout with only this script and the scripts that it calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self.temporary = folder / "temporary"
        self.calls = folder / "calls"
        for path, text in {"bin": TOOLS, "checkout/shell": {"setup.sh": "#!/bin/sh\n"}}.items():
            (folder / path).mkdir(parents=True)
            for name, content in text.items():
                (folder / path / name).write_text(content)
                (folder / path / name).chmod(0o755)
        self.temporary.mkdir()
        shutil.copy(DISTROS, self.folder / "shell")
        subprocess.run(["git", "init", "-q"], cwd=self.folder, check=True)
        self.commit("all")
        own = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "TMPDIR": str(self.temporary),
            "CALLS": str(self.calls),
        }
        archive = {"XDPLAB_MIRROR": "http://archive.invalid", "XDPLAB_SECURITY_MIRROR": "http://archive.invalid"}
        self.environment = os.environ | own | archive | {"TRIALS": "true", "NO_ROOT": "none", "AGAIN": "0"}
        self.environment["CLONE"] = str(folder / "none")

    def commit(self, name: str) -> None:
        (self.folder / name).touch()
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        for argv in (["add", "."], [*identity, "commit", "-qm", name]):
            subprocess.run(["git", *argv], cwd=self.folder, check=True)

    def start(self, *argv: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["shell/distros.sh", *argv],
            cwd=self.folder,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *argv: str, **environment: str) -> tuple[int, list[list[str]], str]:
        """Return the exit code, the rows of the table, and the whole output."""
        process = self.start(*argv, **environment)
        out, errors = process.communicate(timeout=120)
        lines = [line.strip("| ").split(" | ") for line in out.splitlines() if line.startswith("| ")]
        return process.returncode, [line for line in lines if len(line) == 7 and line[0] in SUITES], out + errors


SUITES = ("bookworm", "trixie", "sid")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_all_of_it_is_one_table(checkout: Checkout) -> None:
    code, rows, said = checkout.run()
    assert code == 1, said
    assert [tuple(row[:3]) for row in rows] == [
        (suite, user, command)
        for suite in SUITES
        for user in ("root", "user")
        for command in ("`shell/run_matrix.sh`", "`make test`")
    ]
    assert {tuple(row[3:5]) for row in rows} == {
        ("138 valid, 6 unsupported", "0"),
        ("1017 passed, 2 failed, 3 skipped", "1"),
    }
    assert "| sid | clang 19.1.7, Python 3.13.5 |" in said
    assert "trixie: 3 × needs root" in said
    assert list(checkout.temporary.iterdir()) == []
    assert checkout.calls.read_text().count("fresh root") == 6


def test_a_root_that_cannot_be_made_costs_its_own_rows_alone(checkout: Checkout) -> None:
    code, rows, said = checkout.run("trials", NO_ROOT="trixie")
    assert code == 1, said
    results = {(row[0], row[1]): row[3] for row in rows}
    assert len(results) == 6
    for (suite, _), result in results.items():
        assert result == ("no root: E: no such suite" if suite == "trixie" else "138 valid, 6 unsupported")


def test_parts_are_joined_and_a_part_that_runs_again_replaces_its_own_row(checkout: Checkout) -> None:
    checkout.run("13", "user", "trials", TRIALS="exit 3")
    code, rows, said = checkout.run("12", "root", "trials")
    assert (code, [row[4] for row in rows]) == (1, ["0", "3"]), said
    assert checkout.run("13", "user", "trials")[0] == 0
    code, rows, said = checkout.run("table")
    assert (code, [row[:2] for row in rows]) == (0, [["bookworm", "root"], ["trixie", "user"]]), said


def test_the_fast_tests_are_a_part_of_their_own(checkout: Checkout) -> None:
    _, rows, _ = checkout.run("sid", "user", "fast")
    assert [row[:4] for row in rows] == [["sid", "user", "`make test-fast`", "1500 passed, 2 skipped"]]


@pytest.mark.parametrize("code", [0, 1])
def test_what_failed_runs_again_with_the_newest_commit(checkout: Checkout, tmp_path: Path, code: int) -> None:
    roots = tmp_path / "roots"
    assert "no root: no tests ran here before" in checkout.run("-w", str(roots), "sid", "root", "again")[2]
    clone = roots / "sid.root" / "root" / "xdplab"
    assert checkout.run("-w", str(roots), "sid", "root", "tests", CLONE=str(clone))[0] == 1
    checkout.commit("newer")
    result, rows, said = checkout.run("-w", str(roots), "sid", "root", "again", AGAIN=str(code))
    assert (result, [row[3:5] for row in rows]) == (
        code,
        [["1017 passed, 2 failed, 3 skipped", "1"], ["2 passed", str(code)]],
    ), said
    assert rows[0][6] != rows[1][6]
    assert (clone / "newer").exists()
    assert checkout.run("-w", str(roots), "sid", "root", "tests", CLONE=str(clone))[0] == 1  # the old row is gone


def test_roots_share_what_was_fetched(checkout: Checkout, tmp_path: Path) -> None:
    checkout.run("-w", str(tmp_path / "roots"), "13", "trials")
    downloads = tmp_path / "roots/downloads"
    shared = {str(path.relative_to(downloads)) for path in downloads.glob("*/*")}
    assert shared == {f"{user}/{name}" for user in ("root", "user") for name in ("pip", "xdplab")}
    assert (downloads / "trixie").is_dir()


def test_each_part_is_bounded(checkout: Checkout) -> None:
    code, (row,), said = checkout.run("-m", "0.02", "sid", "user", "trials", TRIALS="sleep 600")
    assert code == 1, said
    assert row[3:5] == ["stopped after 0.02 minutes: 138 valid, 6 unsupported", "124"]


def test_ctrl_c_leaves_nothing(checkout: Checkout, tmp_path: Path) -> None:
    process = checkout.start("sid", "user", "trials", TRIALS=f"touch {tmp_path}/inside && exec sleep 601")
    assert until((tmp_path / "inside").exists, 60)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(checkout.temporary.iterdir()) == []
    assert "netns delete" in checkout.calls.read_text()


def test_a_word_that_is_no_part_is_refused(checkout: Checkout) -> None:
    code, rows, said = checkout.run("14")
    assert (code, rows) == (1, [])
    assert "14 is not known: 12, 13, sid; root, user; trials, fast, tests, again; table" in said
