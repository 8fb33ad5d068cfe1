# SPDX-License-Identifier: Apache-2.0
"""shell/check.sh runs the tests in two parts: either decides, nothing is left, files are given back."""

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
