"""A host is reached without libraries that serve only files of settings, and those files are read as before."""

from __future__ import annotations

import json
import subprocess
import sys

REACH = """
import json, sys
import xdplab.hosts.ssh
loaded = [name for name in ("invoke", "asyncio", "unittest") if name in sys.modules]
import paramiko
settings = paramiko.SSHConfig.from_text('Match exec "true"\\n  User x\\n')
print(json.dumps([loaded, settings.lookup("h")["user"], "invoke" in sys.modules]))
"""


def test_invoke_is_loaded_only_where_a_file_of_settings_needs_it() -> None:
    done = subprocess.run([sys.executable, "-c", REACH], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], "x", True]
