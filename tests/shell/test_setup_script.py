"""shell/setup.sh and run_matrix.sh on machines that lack things.

Package managers, sudo and the environment are faked, so nothing here is installed or needs root.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "shell/setup.sh"

# Each fakes a tool: it records its arguments, and makes the changes that the real one would make.
FAKE_APT = """#!/bin/sh
echo "apt-get $*" >> "$LOG"
test -e "$XDPLAB_POLICY" && echo "policy: $("$XDPLAB_POLICY"; echo $?)" >> "$LOG"
case "$*" in
*update*) touch "$BIN/updated" ;;
*install*) test -z "$STALE" || test -e "$BIN/updated" || exit 100
    printf '#!/bin/sh\\n' > "$BIN/no-such-tool"; chmod 755 "$BIN/no-such-tool" ;;
esac
"""
FAKE_DNF = FAKE_APT.replace("apt-get $*", "dnf $*")
FAKE_SUDO = '#!/bin/sh\necho "sudo" >> "$LOG"\nexec "$@"\n'
FAKE_PYTHON = '#!/bin/sh\ncase "$*" in *"pip install"*) echo "python $*" >> "$LOG"; exit ${PIP_FAILS:-0} ;; esac\n'
FAKE_XDPLAB = '#!/bin/sh\necho "xdplab $*" >> "$LOG"\nexit 7\n'

TABLE = (
    "command\tno-such-tool\trun\tdeb-tool\tubu-tool ubu-more\tfed-tool\twhy\n"
    "command\tno-such-dev\tdev\tdeb-dev\tubu-dev\tfed-dev\twhy\n"
    "command\tno-such-vm\tvm\tdeb-vm\tubu-vm\tfed-vm\twhy\n"
    "command\tsh\trun\tdash\tdash\tdash\tthere\n"
)


class Machine:
    """The parts of a machine that setup.sh sees, below one folder."""

    def __init__(self, folder: Path, distribution: str = "debian", *, root: bool = True) -> None:
        self.folder, self.bin, self.conda = folder, folder / "bin", folder / "conda"
        self.log, self.policy = folder / "log", folder / "sbin/policy-rc.d"
        self.log.touch()
        for name, text in (
            ("apt-get", FAKE_APT),
            ("dnf", FAKE_DNF),
            ("id", f"#!/bin/sh\necho {0 if root else 1000}\n"),
        ):
            self.tool(self.bin / name, text)
        self.tool(self.conda / "bin/python", FAKE_PYTHON)
        self.tool(self.conda / "bin/xdplab", FAKE_XDPLAB)
        self.policy.parent.mkdir()
        (folder / "os-release").write_text(f'NAME="Some Linux"\nID={distribution}\n')
        (folder / "packages.tsv").write_text(TABLE)

    def tool(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *argv: str, script: Path = SETUP, **environment: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "BIN": str(self.bin),
            "LOG": str(self.log),
            "CONDA_DEFAULT_ENV": "xdplab",
            "CONDA_PREFIX": str(self.conda),
            "XDPLAB_PACKAGES": str(self.folder / "packages.tsv"),
            "XDPLAB_OS_RELEASE": str(self.folder / "os-release"),
            "XDPLAB_POLICY": str(self.policy),
        }
        argv = (str(script), *argv)
        env = settings | {"STALE": ""} | environment
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, cwd="/")

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_is_missing_is_installed_and_no_daemon_starts(machine: Machine) -> None:
    done = machine.run()
    assert done.returncode == 0, done.stderr
    apt = "apt-get -qq -y -o DPkg::Lock::Timeout=120 install --no-install-recommends deb-tool"
    assert machine.calls[:2] == [apt, "policy: 101"]
    assert not machine.policy.exists()


def test_a_policy_of_the_machines_own_stays(machine: Machine) -> None:
    machine.tool(machine.policy, "#!/bin/sh\nexit 0\n")
    assert machine.run().returncode == 0
    assert machine.calls[1] == "policy: 0"
    assert machine.policy.read_text() == "#!/bin/sh\nexit 0\n"


def test_stale_package_lists_are_refreshed(machine: Machine) -> None:
    assert machine.run(STALE="1").returncode == 0
    asked = [word for call in machine.calls for word in call.split() if word in ("install", "update")]
    assert asked == ["install", "update", "install", "install", "install"]  # the last two are pip's
    assert not machine.policy.exists()


@pytest.mark.parametrize(
    ("option", "packages", "missing"),
    [
        ("--dev", "deb-dev deb-tool deb-vm", "deb-dev deb-vm"),
        ("--guests", "deb-tool deb-vm", "deb-vm"),
        ("--packages", "deb-tool deb-vm", "deb-vm"),
    ],
)
def test_tests_and_guests_need_more_and_an_installation_that_did_not_bring_it_is_no_success(
    machine: Machine, option: str, packages: str, missing: str
) -> None:
    done = machine.run(option)
    assert machine.calls[0].endswith(f"install --no-install-recommends {packages}")
    assert done.returncode == 1
    assert f"still missing after the installation: {missing}" in done.stderr


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [
        ("ubuntu", "apt-get -qq -y -o DPkg::Lock::Timeout=120 install --no-install-recommends ubu-more ubu-tool"),
        ("fedora", "dnf -q -y install --setopt=install_weak_deps=False fed-tool"),
        ("linuxmint\nID_LIKE='ubuntu debian'", "apt-get"),
    ],
)
def test_each_distribution_has_its_own_commands(tmp_path: Path, distribution: str, expected: str) -> None:
    machine = Machine(tmp_path, distribution)
    assert machine.run().returncode == 0
    assert machine.calls[0].startswith(expected)


@pytest.mark.parametrize(("known", "installed"), [("new-tool", "new-tool"), ("", "old-tool")])
def test_what_a_release_does_not_have_is_installed_by_its_older_name(
    tmp_path: Path, known: str, installed: str
) -> None:
    """Ubuntu 26.04's linux-tools-generic has neither perf nor bpftool: since 25.04 they have their own packages."""
    machine = Machine(tmp_path, "ubuntu")
    (tmp_path / "packages.tsv").write_text(TABLE.replace("ubu-tool ubu-more", "new-tool|old-tool ubu-more"))
    machine.tool(machine.bin / "apt-cache", f'#!/bin/sh\ncase $2 in "{known}") echo "Package: $2" ;; esac\n')
    assert machine.run().returncode == 0
    assert machine.calls[0].endswith(f"--no-install-recommends {installed} ubu-more")


def path_without(name: str, machine: Machine) -> str:
    """Return a PATH with every command of the machine except those whose names begin so."""
    others = machine.folder / "others"
    others.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if not tool.name.startswith(name):
            (others / tool.name).symlink_to(tool)
    return f"{machine.bin}:{others}"


def test_a_machine_without_python_gets_it_with_the_packages(machine: Machine) -> None:
    """Like a new root of Debian, in which the README's command ended with `Python 3.11 or newer is needed`."""
    (machine.folder / "packages.tsv").write_text(TABLE + "python\tvenv\trun\tdeb-python\tubu\tfed\twhy\n")
    python = shutil.which("python3")
    fake = FAKE_APT.replace("*install*)", f'*install*) ln -s {python} "$BIN/python3";')
    machine.tool(machine.bin / "apt-get", fake)
    done = machine.run(PATH=path_without("python", machine))
    assert "installing deb-python deb-tool" in done.stderr
    assert done.returncode == 0, done.stderr


def test_a_python_that_is_too_old_is_told_before_anything_is_installed(machine: Machine) -> None:
    machine.tool(machine.bin / "python3", "#!/bin/sh\nexit 1\n")
    done = machine.run(PATH=path_without("python", machine))
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr
    assert machine.calls == []


def test_an_unknown_distribution_gets_the_list_unless_it_has_everything(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "plan9")
    done = machine.run()
    assert done.returncode == 1
    assert "install the packages that Debian calls: deb-tool" in done.stderr
    assert machine.calls == []
    machine.tool(machine.bin / "no-such-tool", "#!/bin/sh\n")
    assert machine.run().returncode == 0


def test_an_ordinary_user_calls_sudo_for_the_packages_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path, root=False)
    machine.tool(machine.bin / "sudo", FAKE_SUDO)
    assert machine.run().returncode == 0
    first_pip = next(index for index, call in enumerate(machine.calls) if call.startswith("python"))
    assert "sudo" in machine.calls[:first_pip]
    assert "sudo" not in machine.calls[first_pip:]
    assert not machine.policy.exists()


def test_without_sudo_it_says_what_to_ask_root_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path, root=False)
    done = machine.run(PATH=path_without("sudo", machine))
    assert done.returncode == 1
    assert "there is no sudo; ask root to install: deb-tool" in done.stderr
    assert machine.calls == []


def test_the_environment_is_made_once(machine: Machine) -> None:
    machine.tool(machine.bin / "no-such-tool", "#!/bin/sh\n")
    made = machine.run()
    assert made.returncode == 0
    assert [call.split(" ", 6)[6] for call in machine.calls] == ["-r requirements.lock", "--no-deps -e ."]
    assert len(made.stderr.splitlines()) == len(machine.calls)  # each step takes long, and is named before
    assert machine.run().returncode == 0
    assert len(machine.calls) == 2


def test_what_conda_has_installed_stays_condas(machine: Machine) -> None:
    machine.tool(machine.bin / "no-such-tool", "#!/bin/sh\n")
    (machine.conda / "conda-meta").mkdir()
    assert machine.run().returncode == 0
    assert [call.split(" ", 6)[6] for call in machine.calls] == ["--no-deps -e ."]


def test_an_interrupted_installation_is_done_again(machine: Machine) -> None:
    machine.tool(machine.bin / "no-such-tool", "#!/bin/sh\n")
    assert machine.run(PIP_FAILS="1").returncode == 1
    assert machine.run().returncode == 0
    assert len(machine.calls) == 3


def test_nothing_to_do_takes_a_moment_and_says_what_comes_next(machine: Machine) -> None:
    shutil.copy(ROOT / "src/xdplab/doctor/packages.tsv", machine.folder / "packages.tsv")
    first = machine.run()
    if first.returncode or "installing" in first.stderr:
        pytest.skip(f"this machine lacks something: {first.stderr}")
    started = time.monotonic()
    again = machine.run()
    assert (again.returncode, again.stderr) == (0, "")
    ready, *commands = again.stdout.splitlines()
    assert (ready, len(commands)) == ("Ready. For example:", 3)
    assert f"{machine.conda}/bin/xdplab doctor" in commands[0]
    assert time.monotonic() - started < 2.0  # 0.2 s on a quiet machine


def test_where_the_environment_is(machine: Machine) -> None:
    assert machine.run("--where").stdout.strip() == str(machine.conda)
    assert machine.run("--where", CONDA_DEFAULT_ENV="base").stdout.strip() == str(ROOT / ".venv")
    assert machine.run("--where", CONDA_PREFIX="/nowhere").stdout.strip() == str(ROOT / ".venv")


@pytest.mark.parametrize(
    ("shell", "file"),
    [("bash", "share/bash-completion/completions/xdplab"), ("fish", "config/fish/completions/xdplab.fish")],
)
def test_completion_is_installed_on_request_where_the_shell_looks(tmp_path: Path, shell: str, file: str) -> None:
    environment = {
        "SHELL": f"/bin/{shell}",
        "XDG_DATA_HOME": f"{tmp_path}/share",
        "XDG_CONFIG_HOME": f"{tmp_path}/config",
    }
    own = subprocess.run([SETUP, "--where"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(own, "bin/xdplab").exists():
        pytest.skip(f"xdplab is not set up in {own}")
    done = subprocess.run(
        [SETUP, "--completion"], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    assert f"written: {tmp_path / file}" in done.stdout
    assert f"{shell}_complete" in (tmp_path / file).read_text()


def test_where_completion_cannot_be_installed_the_line_is_told(machine: Machine) -> None:
    assert 'eval "$(_XDPLAB_COMPLETE=zsh_source xdplab)"' in machine.run("--completion", SHELL="/bin/zsh").stderr
    assert "no completion is known for tcsh" in machine.run("--completion", SHELL="/bin/tcsh").stderr


def test_an_option_that_is_not_known_is_named(machine: Machine) -> None:
    done = machine.run("--wher")
    assert done.returncode == 1
    assert "--wher is not known" in done.stderr


def test_run_matrix_runs_the_plan_and_hands_options_and_exit_code_on(machine: Machine) -> None:
    machine.tool(machine.bin / "no-such-tool", "#!/bin/sh\n")
    script = ROOT / "shell/run_matrix.sh"
    assert machine.run(script=script).returncode == 7
    assert machine.calls[-1] == f"xdplab run {ROOT}/plans/quick.yaml"
    plan = machine.folder / "my plan.yaml"
    machine.run(str(plan), "--only", "mode=native", script=script)
    assert machine.calls[-1] == f"xdplab run {plan} --only mode=native"
    machine.run("--name", "x", script=script)
    assert machine.calls[-1] == f"xdplab run {ROOT}/plans/quick.yaml --name x"
