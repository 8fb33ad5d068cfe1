#!/bin/busybox sh
# First and only process of a guest that is reached by its serial console: runs the scripts that come over it, one at a
# time. A script comes in base64, in lines that begin with + and are acknowledged one by one, because a serial port has
# no room for more; a line ! runs it.
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
job=
while read -r line; do
    case $line in
    +*)
        job=$job${line#+}
        echo "xdplab:more"
        ;;
    '!')
        echo "$job" | base64 -d >job.sh
        job=
        sh job.sh </dev/null >out 2>err
        echo "xdplab:exit $?"
        gzip -c out | base64
        echo "xdplab:err"
        gzip -c err | base64
        echo "xdplab:end"
        ;;
    esac
done
poweroff -f
