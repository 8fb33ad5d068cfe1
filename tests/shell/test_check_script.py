# SPDX-License-Identifier: Apache-2.0
"""shell/check.sh runs the tests in two parts, and with each Python: each decides, and nothing is left."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[2] / "shell" / "check.sh"
SETUP = '#!/bin/sh\n[ "$1" = --where ] && echo "$PWD/venv" || echo "$1" >>"$PWD/given-back"\n'
PYTEST = '#!/bin/sh\ncase "$*" in *"not lab"*) exit "$REST" ;; *) echo "the traffic part"; exit "$TRAFFIC" ;; esac\n'


@pytest.mark.parametrize(("rest", "traffic"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_either_part_decides_and_nothing_is_left(tmp_path: Path, rest: int, traffic: int) -> None:
    tools = dict.fromkeys(("ruff", "mypy", "lint-imports"), "#!/bin/sh\n") | {"pytest": PYTEST}
    files = {"shell/setup.sh": SETUP, **{f"venv/bin/{name}": text for name, text in tools.items()}}
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    shutil.copy(CHECK, tmp_path / "shell" / "check.sh")
    (temporary := tmp_path / "temporary").mkdir()
    own = {"REST": str(rest), "TRAFFIC": str(traffic), "TMPDIR": str(temporary)}
    result = subprocess.run(["shell/check.sh"], cwd=tmp_path, env=os.environ | own, capture_output=True, text=True)
    assert result.returncode == (rest | traffic), result.stderr
    assert "the traffic part" in result.stdout
    assert list(temporary.iterdir()) == []
    assert (tmp_path / "given-back").read_text() == "--give-back\n"


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


@pytest.mark.parametrize("argv", [["shell/check.sh", "pythons"], ["shell/check.sh", "with-pythons"]], ids=" ".join)
@pytest.mark.parametrize(
    ("own", "code"), [({}, 0), ({"TESTS": "1"}, 1), ({"SYNC": "2"}, 1), ({"SYNC": "2", "PIP": "0"}, 0)]
)
def test_each_python_decides_but_one_that_cannot_be_had(
    tmp_path: Path, argv: list[str], own: dict[str, str], code: int
) -> None:
    """By itself, and beside tests that pass."""
    tools = dict.fromkeys(("ruff", "mypy", "lint-imports", "pytest"), "#!/bin/sh\n") | {"uv": UV, "python": OWN}
    files = {"shell/setup.sh": SETUP, "double": OTHER, **{f"venv/bin/{name}": text for name, text in tools.items()}}
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    shutil.copy(CHECK, tmp_path / "shell" / "check.sh")
    (temporary := tmp_path / "temporary").mkdir()
    environment = (
        os.environ
        | {"TMPDIR": str(temporary), "DOUBLE": str(tmp_path / "double")}
        | own
        | {"PYTHONDONTWRITEBYTECODE": "1"}
    )
    result = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == code, result.stdout + result.stderr
    assert "== Python 3.11\nleft to make test" in result.stdout
    assert "== Python 3.12, the tests of make test-fast\n9 passed\n" in result.stdout
    assert "skipped: it is not here, and uv cannot fetch it: error: no such download" in result.stdout
    assert list(temporary.iterdir()) == []
