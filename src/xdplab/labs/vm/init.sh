#!/bin/busybox sh
# PID 1 of a guest until it has its root: this machine's own one, read-only, under a memory that takes the changes.
# What ends this script ends the guest: the kernel panics without PID 1, and the lab's keeper tells its last words.

. /settings # RELEASE MODULES SHARE PYTHON GUEST PORTS
PATH=/bin

die() {
    echo "xdplab: guest: $*"
    exit 1
}

busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs dev /dev
for module in /modules/*.ko; do
    busybox insmod "$module" || die "cannot load $module"
done

busybox mount -t 9p -o "$SHARE" host /host || die "no share of the host's root"
busybox mount -t tmpfs -o mode=755 changes /mnt || die "no memory for the changes"
busybox mkdir /mnt/upper /mnt/work
busybox mount -t overlay -o lowerdir=/host,upperdir=/mnt/upper,workdir=/mnt/work root /root || die "no overlay"

busybox mkdir -p "/root/lib/modules/$RELEASE" || die "no room for modules"
busybox mount --bind "/root$MODULES" "/root/lib/modules/$RELEASE" || die "the kernel's modules are not on the share"
for place in proc sys dev; do
    busybox mount --move /$place /root/$place
done
exec busybox switch_root /root "$PYTHON" -I -S -B "$GUEST" "$PORTS" <root/dev/null >root/dev/console 2>&1
