#!/bin/sh
# PID 1 of a user-mode Linux until it has its root: this machine's own one, read-only, under a memory that takes the
# changes. Arguments: the modules' folder (of this machine), the folder to share, then PID 1 from then on.

modules=$1 native=$2
shift 2
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

die() {
    echo "xdplab: guest: $*"
    exit 1
}

# If an ordinary user runs this kernel, files of the outside's root belong to the user `nobody` here. A set-user-ID mount
# would run as that user, so the bit must not count.
busybox mount -t proc proc /proc || die "no /proc"
busybox mount -o remount,ro,nosuid / || die "the root cannot be mounted anew"
insmod "$modules/kernel/fs/overlayfs/overlay.ko" || die "no overlay module"
mount -t tmpfs -o mode=755 changes /mnt || die "no memory for the changes"
mkdir /mnt/upper /mnt/work /mnt/root /mnt/lower
mount -t hostfs -o / host /mnt/lower || die "no share of the host's root"
mount -o remount,ro,nosuid /mnt/lower || die "the host's root stays writable"
mount -t overlay -o nosuid,lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work root /mnt/root || die "no overlay"
cd /mnt/root || die "no root"

release=$(uname -r)
mkdir -p "lib/modules/$release" mnt/xdplab-native mnt/before
mount --bind "/mnt/lower$modules" "lib/modules/$release" || die "the kernel's modules are not on the share"
mkdir /mnt/native /mnt/built /mnt/built/upper /mnt/built/work
mount -t hostfs -o "$native" native /mnt/native && mount -o remount,ro,nosuid /mnt/native || die "no share of what is compiled"
mount -t overlay -o nosuid,lowerdir=/mnt/native,upperdir=/mnt/built/upper,workdir=/mnt/built/work built mnt/xdplab-native ||
    die "no memory for what is compiled here"
mount -t proc proc proc && mount -t devtmpfs dev dev || die "no /proc or /dev"
# Root's home may be closed to the user who runs this kernel, and sshd would complain with each command.
(cd root) 2>/dev/null || mount -t tmpfs -o mode=700 home root || die "no home"
busybox pivot_root . mnt/before || die "no way into the new root"
exec chroot . "$@" <dev/null >dev/console 2>&1
