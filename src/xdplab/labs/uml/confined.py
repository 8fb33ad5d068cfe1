"""Starts a user-mode Linux without capabilities, and with read-only access to all files of this machine.

Root in the guest can mount hostfs again, writable, and can load a module into its kernel, which is a process of the
lab's owner. So the limits are set outside, in a separate mount namespace (made by ``unshare``): all mounts become
read-only; /dev/shm and the folder for the kernel's own files become private tmpfs mounts. Arguments: that
folder, then the command. Standard library only.
"""

import ctypes
import os
import sys

SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE = 442, -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 0x1, 0x2
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x4000, 1 << 18
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24

libc = ctypes.CDLL(None, use_errno=True)


def require(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    names = [word.encode() if word else None for word in (source, target, kind)]
    require(libc.mount(*names, ctypes.c_ulong(flags), options.encode()), f"mount {target}")


class MountAttr(ctypes.Structure):
    """struct mount_attr of linux/mount.h (5.12)."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def make_all_read_only() -> None:
    """Make each mount of this namespace read-only."""
    wanted = MountAttr(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    arguments = (ctypes.c_int(AT_FDCWD), b"/", ctypes.c_uint(AT_RECURSIVE), ctypes.byref(wanted), size)
    require(libc.syscall(ctypes.c_long(SYS_MOUNT_SETATTR), *arguments), "mount_setattr (Linux 5.12) of /")


def drop_all_capabilities() -> None:
    """Drop all capabilities for the next program, even as root, with no way to regain them."""
    capability = 0
    while libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) == 0:
        capability += 1
    require(libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0), "no_new_privs")


def main(folder: str, *command: str) -> None:
    try:
        mount("", "/", "", MS_REC | MS_PRIVATE)
        make_all_read_only()
        mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
        mount("own", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=700")
        drop_all_capabilities()
        os.environ["TMPDIR"] = "/dev/shm"
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"xdplab: guest: it cannot be confined: {error.strerror or error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
