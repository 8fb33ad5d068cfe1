"""The fixtures of tests/deploy, which build the application and the veth lab."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))

from deploy_fixtures import afxdp_user, cache, drop_object, lab, swap_workload, xdpgen  # noqa: F401
