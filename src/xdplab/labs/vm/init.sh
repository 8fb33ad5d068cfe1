#!/bin/busybox sh
# PID 1 of a guest until it is told whose it is: up to there all guests of a kernel are the same, and QEMU's state may be
# kept here, for the next one to go on from. All is done by one small static binary: under emulation every other
# program, a Python above all, takes longer to start than the rest of this takes to do.
# What ends this script ends the guest: the kernel panics without PID 1, and the lab's keeper tells its last words.

PATH=/bin # of names for the one binary; its shell need not even run it anew

die() {
    echo "xdplab: guest: $*"
    exit 1
}

open_port() { # there is no udev that would give it a name
    for name in /sys/class/virtio-ports/*/name; do
        read -r found <"$name"
        port=${name%/name}
        [ "$found" = xdplab ] && exec 3<>"/dev/${port##*/}" && return
    done
    die "no virtio port xdplab"
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do
    [ -e "$module" ] || continue # all of it is built in
    insmod "$module" || die "cannot load $module"
done

open_port
set -- /sys/bus/*/drivers/vmgenid/*:00 # it has the kernel draw new random numbers when it goes on a second time
[ -e "$1" ] && notices=true || notices=false
echo "{\"notices_restore\": $notices}" >&3
read -r now <&3 || die "its keeper has gone"
date -s "@$now" >/said 2>&1 || die "$(cat /said)"
cpio -i <&3 2>/said || die "$(cat /said)"
. /root.sh
