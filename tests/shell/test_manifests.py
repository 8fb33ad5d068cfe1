"""The files that list requirements agree with each other."""

import re
import subprocess
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from xdplab.doctor.checks import INSTALLERS, distribution, needs
from xdplab.labs.netns import lab as netns
from xdplab.labs.uml import lab as uml_lab
from xdplab.labs.uml import package as uml_source
from xdplab.labs.vm import qemu

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = MANIFEST["project"]
NOT_LOCKED = {"compilers"}  # 80 MB that only one axis of the verifier study needs; it is used if it is installed
EXTRAS = [lines for extra, lines in PROJECT["optional-dependencies"].items() if extra not in NOT_LOCKED]
WANTED = [Requirement(line) for line in PROJECT["dependencies"] + [line for lines in EXTRAS for line in lines]]
LOCK = (ROOT / "requirements.lock").read_text()
TARGETS = ("setup", "notebook", "lab", "run", "test", "figures", "lint", "bench", "nightly", "distros")


CONDA_FORGE = pd.read_csv(Path(__file__).parent / "recorded-conda-forge.tsv", sep="\t", dtype=str).set_index("package")
"""Packages of conda-forge, the project on PyPI that each is, and the version of its recipe at a commit."""


def test_the_conda_environment_is_in_step_with_pyproject() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, *by_conda, by_pip = environment["dependencies"]
    assert [python, pip] == [f"python{PROJECT['requires-python']}", "pip"]
    named = [Requirement(line) for line in by_conda]
    of_conda = [f"{CONDA_FORGE.loc[one.name, 'project']}{one.specifier}" for one in named]
    found = {canonicalize_name(one.name): str(one.specifier) for one in map(Requirement, [*of_conda, *by_pip["pip"]])}
    assert found == {canonicalize_name(one.name): str(one.specifier) for one in WANTED}
    assert len(found) == len(by_conda) + len(by_pip["pip"])
    assert environment["name"] == PROJECT["name"]
    for one in named:
        assert one.specifier.contains(Version(CONDA_FORGE.loc[one.name, "version"])), one


@pytest.mark.parametrize("wanted", WANTED, ids=lambda wanted: wanted.name)
def test_the_lock_satisfies_pyproject(wanted: Requirement) -> None:
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", LOCK, re.MULTILINE))
    pinned = {canonicalize_name(name): Version(version) for name, version in locked.items()}
    assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)])


def test_the_lock_names_hashes_and_no_place() -> None:
    entries = re.split(r"\n(?=\S)", LOCK.strip())
    assert all("--hash=sha256:" in entry for entry in entries if "==" in entry)
    assert not re.search(r"https?:|file:|^\s*--(?!hash)|(^|\s)/", LOCK, re.MULTILINE)


def test_every_need_has_a_package_everywhere() -> None:
    table = needs()
    assert {need.look for need in table} == {"command", "header", "file", "python"}
    assert {need.use for need in table} == {"run", "study", "vm", "arch", "dev"}
    assert all(need.packages[name] for need in table for name in INSTALLERS)
    assert len({need.name for need in table}) == len(table)


def test_what_commands_look_for_is_in_the_table() -> None:
    """`bc` was missing: set-up left a machine on which no module for uml could be built."""
    tools = {*netns.TOOLS, *uml_lab._NEEDED, *uml_source.TOOLS, *qemu._INSIDE, qemu.QEMU, "apt-get", "dpkg-deb"}
    given_with = {"modprobe": "depmod", "insmod": "depmod"}  # kmod's, as depmod is
    listed = {need.name for need in needs() if need.look == "command"}
    assert {given_with.get(tool, tool) for tool in tools} <= listed


def test_an_image_has_what_is_copied_and_installed_into_it() -> None:
    entering = re.findall(r"^!(\S+)$", (ROOT / ".containerignore").read_text(), re.MULTILINE)
    containerfile = (ROOT / "Containerfile").read_text()
    copied = set(re.findall(r"^COPY ([^-.\s]\S*) ", containerfile, re.MULTILINE))
    wheel = MANIFEST["tool"]["hatch"]["build"]["targets"]["wheel"]
    of_wheel = {*wheel["packages"], *wheel["force-include"], *PROJECT["license-files"], PROJECT["readme"]}
    for path in {*copied, *of_wheel, "pyproject.toml", "requirements.lock"}:
        assert any(Path(path).is_relative_to(name) for name in entering), path
    assert [name for name in entering if not (ROOT / name).exists()] == []
    installed = set(" ".join(re.findall(r"--no-install-recommends ([^>&]*)", containerfile)).split())
    assert installed - {"ca-certificates", "python3"} <= {need.packages["debian"] for need in needs()}


def test_a_need_tells_its_remedy() -> None:
    (clang,) = [need for need in needs("run") if need.name == "clang"]
    assert clang.remedy("debian") == "apt-get install clang"
    assert clang.remedy("fedora") == "dnf install clang"
    (perf,) = [need for need in needs("run") if need.name == "perf"]
    assert perf.remedy("ubuntu") == "apt-get install linux-perf (in older releases linux-tools-generic)"
    assert clang.remedy(None) == "install what has clang (Debian: clang)"


@pytest.mark.parametrize(
    ("os_release", "expected"),
    [
        ("ID=debian\n", "debian"),
        ('ID="ubuntu"\nID_LIKE=debian\n', "ubuntu"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "ubuntu"),
        ("ID=arch\n", None),
        ("", None),
    ],
)
def test_the_distribution_is_read_from_os_release(os_release: str, expected: str | None) -> None:
    assert distribution(os_release) == expected


@pytest.mark.parametrize("target", TARGETS)
def test_make_has_the_target(target: str) -> None:
    done = subprocess.run(["make", "-n", "-C", ROOT, target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", sorted([*ROOT.glob("shell/*.sh"), ROOT / ".ci/run"]), ids=lambda path: path.name)
def test_scripts_can_be_run(script: Path) -> None:
    assert script.stat().st_mode & 0o111 == 0o111
    subprocess.run(["bash", "-n", script], check=True)
