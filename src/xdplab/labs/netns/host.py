"""PID 1 of a netns host: private mounts, keys, the link, then one ``sshd -i`` for each connection it gets.

Runs as a script under ``unshare``, standard library only. Standard input is a socket to the keeper; when that closes
this process ends, and the kernel ends everything else in the host with it.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

RUN = Path("/run/sshd")
OUTSIDE_NET = Path("/run/xdplab/outside-net")
WORK_DIR = "/tmp/xdplab"
BUILT = "/mnt/xdplab-native"
"""The mount point of the outside folder of compiled tools in a guest; each host's ``native`` links to it."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": PATH}
"""The environment of every process of a host, independent of the owner's; a host may extend it first."""

# type, where, does the lab need it (the rest is for tools that look there)
MOUNTS = (
    ("tmpfs", "/tmp", True),
    ("tmpfs", "/run", True),
    ("tmpfs", "/dev/shm", False),
    ("sysfs", "/sys", True),
    ("bpf", "/sys/fs/bpf", True),
    ("tracefs", "/sys/kernel/tracing", False),
    ("debugfs", "/sys/kernel/debug", False),
    ("securityfs", "/sys/kernel/security", False),
)

# The host answers no requests: the only frames on the link are those of the test.
QUIET = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv6/conf/default/router_solicitations": "0",
    "net/ipv4/ip_forward": "0",  # a new namespace has this machine's
}

# Root's login here needs no PAM, and /bin/sh reads no .bashrc (which costs 200 ms per command on some machines).
ROOT_ACCOUNT = {"/etc/passwd": "root:x:0:0:root:/root:/bin/sh", "/etc/shadow": "root:*:19000:0:99999:7:::"}

SSHD_CONFIG = f"""\
HostKey {RUN}/host_key
AuthorizedKeysFile {RUN}/authorized_keys
PermitRootLogin prohibit-password
AllowUsers root
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitUserRC no
PermitUserEnvironment no
AllowTcpForwarding no
AllowStreamLocalForwarding no
AllowAgentForwarding no
X11Forwarding no
PrintMotd no
UseDNS no
MaxSessions 256
SetEnv {{environment}}
Subsystem sftp internal-sftp
"""


def sshd_config() -> str:
    return SSHD_CONFIG.format(environment=" ".join(f"{name}={value}" for name, value in ENVIRONMENT.items()))


def command(*argv: str) -> None:
    """Run a tool; its own message is the error."""
    done = subprocess.run(argv, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(argv)}`: {(done.stderr or done.stdout).strip()}")


def mount_private() -> None:
    for kind, target, needed in MOUNTS:
        try:
            command("mount", "-t", kind, kind, target)
        except RuntimeError:
            if needed:
                raise
    for path in (RUN, Path(WORK_DIR)):
        path.mkdir(mode=0o755)
    Path("/run").chmod(0o755)  # a new tmpfs is writable by all, and sshd would trust no key in it


def show_outside(descriptor: int) -> None:
    """Settings such as net.core.bpf_jit_harden exist only in the machine's first network namespace: the reader enters
    the keeper's for them."""
    OUTSIDE_NET.parent.mkdir(mode=0o755)
    OUTSIDE_NET.touch(0o600)
    command("mount", "--bind", f"/proc/{os.getpid()}/fd/{descriptor}", str(OUTSIDE_NET))
    os.close(descriptor)


def replace_root_account() -> None:
    """Replace the machine's root account by the lab's own, only in this mount namespace."""
    for number, (path, root_line) in enumerate(ROOT_ACCOUNT.items()):
        others = [line for line in Path(path).read_text().splitlines() if not line.startswith("root:")]
        account = RUN / f"account{number}"
        account.touch(0o600)
        account.write_text("\n".join([root_line, *others, ""]))
        account.chmod(Path(path).stat().st_mode & 0o777)
        command("mount", "--bind", str(account), path)


def settle(hostname: str) -> None:
    socket.sethostname(hostname)
    for key, value in QUIET.items():
        path = Path("/proc/sys", key)
        if path.exists():
            path.write_text(value)
    command("ip", "link", "set", "lo", "up")
    with contextlib.suppress(ValueError, OSError):  # refused in some containers; `xdplab doctor` shows the limit
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def make_keys(hostname: str) -> dict[str, str]:
    """Return the host's public key and the private key that opens it; the latter stays on no disk."""
    for name in ("host_key", "client_key"):
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"xdplab {hostname}", "-f", str(RUN / name))
    (RUN / "authorized_keys").write_bytes((RUN / "client_key.pub").read_bytes())
    (RUN / "sshd_config").write_text(sshd_config())
    client_key = (RUN / "client_key").read_text()
    (RUN / "client_key").unlink()
    return {"host_key": (RUN / "host_key.pub").read_text().strip(), "client_key": client_key}


def bring_up(interface: str) -> dict[str, str]:
    """Set the link up with GRO on, which gives veth its NAPI and keeps one path in every mode."""
    command("ethtool", "-K", interface, "gro", "on")
    command("ip", "link", "set", interface, "up")
    return {"interface": interface, "mac": Path(f"/sys/class/net/{interface}/address").read_text().strip()}


def serve(keeper: socket.socket, sshd: str) -> None:
    """Start an sshd for every connection from the keeper, and set further links up, until the keeper is gone."""
    signal.signal(signal.SIGCHLD, reap)
    while True:
        message, descriptors, _, _ = socket.recv_fds(keeper, 64, 4)
        if not message:
            return
        if not descriptors:
            keeper.send(json.dumps(brought_up(json.loads(message)["interface"])).encode())
        for descriptor in descriptors:
            start_sshd(sshd, descriptor)
            os.close(descriptor)


def brought_up(interface: str) -> dict[str, str]:
    """Set a further link up; a failure is the answer, and the host lives on."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # `reap` would take the commands' exit codes
    try:
        return bring_up(interface)
    except (OSError, RuntimeError) as error:
        return {"error": str(error)}
    finally:
        signal.signal(signal.SIGCHLD, reap)
        reap(0, None)


def start_sshd(sshd: str, descriptor: int) -> None:
    """Start an sshd whose standard input and output is a connection."""
    argv = [sshd, "-i", "-f", str(RUN / "sshd_config"), "-E", str(RUN / "log")]
    actions = [
        (os.POSIX_SPAWN_DUP2, descriptor, 0),
        (os.POSIX_SPAWN_DUP2, descriptor, 1),
        (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
        (os.POSIX_SPAWN_CLOSE, descriptor),
    ]
    os.posix_spawn(sshd, argv, ENVIRONMENT, file_actions=actions)


def reap(_signal: int, _frame: object) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def main(hostname: str, sshd: str, outside: str) -> None:
    keeper = socket.socket(fileno=0)

    def tell(**answer: str) -> None:
        keeper.send(json.dumps(answer).encode())

    try:
        mount_private()
        show_outside(int(outside))
        replace_root_account()
        settle(hostname)
        tell(**make_keys(hostname))
        if link := keeper.recv(4096):
            tell(**bring_up(json.loads(link)["interface"]))
            serve(keeper, sshd)
    except (OSError, RuntimeError, ValueError) as error:
        tell(error=str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
