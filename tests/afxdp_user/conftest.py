"""The fixtures of tests/deploy, which build the application and the veth lab."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))

from deploy_fixtures import afxdp_user, cache, lab, swap_workload, xdpgen  # noqa: E402, F401
