"""A lab for these tests, and the command line as a user types it."""

import contextlib
import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests import forked
from tests.labs.rack import rack, written
from tests.run.nulls import unexplained
from xdplab import labs
from xdplab.cli.common import NOTHING_VALID
from xdplab.labs import Lab


def xdplab(
    *argv: str, cwd: Path | None = None, check: bool = True, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run the command line; if it fails, show its output. A run without a valid trial has not failed."""
    done = forked.xdplab(*argv, cwd=cwd, timeout_s=timeout_s)
    if check and done.returncode not in (0, NOTHING_VALID):
        pytest.fail(f"xdplab {' '.join(argv)} ended {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


def plan(blocks: str, repetitions: int = 1, **trial: float) -> str:
    """Return a plan of short trials; ``blocks`` is YAML, and ``trial`` has other times than usual."""
    times = {"warmup_s": 0.05, "window_s": 0.2, "pause_s": 0.0} | trial
    return f"name: t\nrepetitions: {repetitions}\ntrial: {json.dumps(times)}\nblocks: {blocks}\n"


def run_of(lab_name: str, folder: Path, text: str, *options: str) -> Path:
    """Measure a plan in a lab and return the run's directory; no figures are drawn."""
    (folder / "plan.yaml").write_text(text)
    xdplab("--lab", lab_name, "run", "plan.yaml", "--out", "out", "--no-figures", *options, cwd=folder)
    return max((folder / "out").iterdir(), key=lambda path: path.stat().st_mtime)


def trials_of(run: Path) -> pd.DataFrame:
    """Return a run's table; each null of a measured trial must have its reason."""
    trials = pd.read_parquet(run / "trials.parquet")
    assert unexplained(trials) == []
    return trials


def measured(lab_name: str, folder: Path, text: str) -> pd.DataFrame:
    """Measure a plan in a lab, and return the run's table."""
    return trials_of(run_of(lab_name, folder, text))


def source(name: str, body: str, maps: str = "") -> str:
    """Return the C source of a program of this name. ``back(ctx)`` exchanges the MACs and answers XDP_TX."""
    return f"""
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "GPL";
static __always_inline int back(struct xdp_md *ctx) {{
    __u16 *half = (void *)(long)ctx->data;
    if ((void *)(half + 9) > (void *)(long)ctx->data_end)
        return XDP_DROP;
    for (int i = 0; i < 3; i++) {{
        __u16 other = half[i];
        half[i] = half[i + 3];
        half[i + 3] = other;
    }}
    return XDP_TX;
}}
{maps}
SEC("xdp") int {name}(struct xdp_md *ctx) {{ {body} }}
"""


def attached(host: Any, interface: str) -> bool:
    """Whether the kernel says that a program is on the interface."""
    return "xdp" in json.loads(host.run(["ip", "-j", "link", "show", "dev", interface]).text)[0]


@pytest.fixture(scope="session")
def lab_name(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return a netns lab; with XDPLAB_TEST_INVENTORY set, an inventory that names its hosts as servers.

    It ends with this process, however that ends: in a network namespace of the tests' own nobody would find it.
    """
    name = f"netns:e2e-{secrets.token_hex(4)}"
    with labs.use_lab(name):
        yield _inventory_of(name, tmp_path_factory.mktemp("rack")) if "XDPLAB_TEST_INVENTORY" in os.environ else name


def _inventory_of(name: str, folder: Path) -> str:
    with contextlib.closing(labs.open_lab(name)) as lab:
        return written(rack(lab, folder), folder)


@pytest.fixture
def lab(lab_name: str) -> Iterator[Lab]:
    lab = labs.open_lab(lab_name)
    try:
        yield lab
    finally:
        lab.close()
