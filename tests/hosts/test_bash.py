"""What bash does for this program does not depend on its user's start-up file."""

import os
import subprocess
from pathlib import Path

from xdplab.hosts import BASH


def test_bash_begun_by_sshd_reads_no_file_of_its_user(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("echo hello; exit 3\n")
    by_sshd = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SSH_CLIENT": "a", "SSH_CONNECTION": "a"}
    done = subprocess.run([*BASH, "echo held"], env=by_sshd, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "held\n")
