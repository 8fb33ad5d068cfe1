"""Both images of the Containerfile, built on a fresh root of Debian: what they do with few rights and with all."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.shell.test_cost_gate import PROGRAM, ROOT, fresh_root

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.root,
    pytest.mark.skipif(
        None in (shutil.which("podman"), shutil.which("debootstrap")), reason="podman or debootstrap is not installed"
    ),
]
BASE = "localhost/xdplab-test-base"


def podman(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=False)


@pytest.mark.lab
@pytest.mark.guest
def test_results_are_read_with_few_rights_packets_counted_and_with_all_a_lab_measures(tmp_path: Path) -> None:
    fresh_root(tmp_path / "root")
    subprocess.run(f"tar -C {tmp_path}/root -c . | podman import -q - {BASE}", shell=True, check=True)
    work = tmp_path / "work"
    shutil.copytree(ROOT / "results/sample", work / "sample")
    (work / "mine.bpf.c").write_text(PROGRAM)
    folders = ("--network=host", "-v", f"{work}:/work", "-v", f"{tmp_path}/cache:/cache")
    (tmp_path / "cache").mkdir()
    images = {"reading": ["--target", "reading"], "all": []}
    try:
        for image, options in images.items():
            name = f"{BASE}-{image}"
            built = podman("build", "--network=host", "-t", name, f"--build-arg=BASE={BASE}", *options, ROOT)
            assert built.returncode == 0, built.stderr[-2000:]
            read = podman("run", "--rm", "--cap-drop=all", *folders, name, "report", "sample", "--out", f"{image}.html")
            assert (read.returncode, (work / f"{image}.html").exists()) == (0, True), read.stderr
        counted = podman("run", "--rm", *folders, name, "cost", "mine.bpf.c")
        assert counted.returncode == 0, counted.stderr
        refused = podman("run", "--rm", *folders, name, "--lab", "netns:image", "run", "smoke")
        assert refused.returncode == 3
        assert "lacks CAP_SYS_ADMIN" in refused.stderr.splitlines()[-1]
        measured = podman("run", "--rm", "--privileged", *folders, name, "--lab", "netns:image", "run", "smoke")
        assert measured.returncode == 0, measured.stderr
    finally:
        podman("rmi", "-f", *(f"{BASE}-{image}" for image in images), BASE)
