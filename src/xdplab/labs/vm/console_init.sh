#!/bin/busybox sh
# First process of a guest that is reached by its serial console: runs the scripts that come over it, one at a time.
# A script comes in base64, in lines of a number, a size and a piece, because a serial port has no room for more;
# each is acknowledged, and one that did not come whole comes again. A line ! runs the script, once.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
dmesg -n 1
console=/dev/$(sed 's/.*console=\([a-zA-Z0-9]*\).*/\1/' /proc/cmdline)
exec <"$console" >"$console" 2>&1
stty raw -echo
cd /tmp
# from here on the same on any machine, where the tests run it
echo
echo "xdplab:up"
job= pieces=0
( # not the first process: each orphan that ends would be told to it, and busybox loses the half of a line it has read
while read -r mark size piece; do
    case $mark in
    "+$pieces")
        [ "${#piece}" = "$size" ] && job=$job$piece && pieces=$((pieces + 1))
        echo "xdplab:more $pieces"
        ;;
    +*) echo "xdplab:more $pieces" ;;
    '!')
        [ -n "$job" ] || continue
        echo "$job" | base64 -d >job.sh
        job= pieces=0
        sh job.sh </dev/null >out 2>err
        echo "xdplab:exit $?"
        gzip -c out | base64
        echo "xdplab:err"
        gzip -c err | base64
        echo "xdplab:end"
        ;;
    esac
done)
poweroff -f
