"""The recorded runs: one smallest run of every kind, and the command that measures it."""

import shlex
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LAB = "netns:oracle-a"
LABS = f"{LAB},netns:oracle-b"
PLANS = "tests/oracle/plans"


@dataclass(frozen=True)
class Recorded:
    """A run to be recorded.

    ``measured_by``: words after `xdplab`, in the checkout. ``other``: the run that it is compared with, itself by
    default. ``alone``: work beside it would disturb it, unlike guests that count.
    """

    name: str
    measured_by: str
    other: str = ""
    alone: bool = True

    @property
    def archive(self) -> Path:
        return HERE / "recorded" / f"{self.name}.tar.xz"

    @property
    def argv(self) -> list[str]:
        return shlex.split(self.measured_by)


RECORDED = {
    run.name: run
    for run in (
        Recorded("live", f"--lab {LAB} run {PLANS}/live.yaml --no-figures"),
        Recorded("afxdp", f"--lab {LAB} run {PLANS}/afxdp.yaml --no-figures"),
        Recorded("programs", f"--lab {LAB} run {PLANS}/programs.yaml --no-figures"),
        Recorded("ports", f"--lab {LAB} run {PLANS}/ports.yaml --no-figures"),
        Recorded("labs", f"run {PLANS}/labs.yaml --no-figures"),
        Recorded("shared", f"run {PLANS}/shared.yaml --labs {LABS} --no-figures", "labs"),
        Recorded("race", f"--lab {LAB} race array packet -n 100 --window 0.2 --at-most 8"),
        Recorded("windows", f"--lab {LAB} race array chase -n 400 --by windows --window 0.2 --at-most 8"),
        Recorded("search", f"--lab {LAB} search {PLANS}/search.yaml"),
        Recorded("verifier", "study verifier --smallest --size 10 --size 100"),
        Recorded("execution", "study execution --smallest --place host --place vm:6.1:count", alone=False),
        Recorded("loading", "study loading --smallest", alone=False),
        Recorded("jit", "study jit --smallest", alone=False),
        Recorded("offload", "study offload --smallest", alone=False),
        Recorded("outage", "study outage --smallest --place netns:oracle-a"),
        Recorded("neighbour", f"study neighbour --smallest --place {LAB}"),
        Recorded("cost", "cost array:10 --mode test_run", alone=False),
    )
}
