# What answers the lab's keeper, on the virtio port that is open as 3: says that the guest is up, then answers line by
# line: `link` by making what its users may want a link for, anything else by itself. What ends this script ends the
# guest.

. /run/settings # PYTHON LINK PORTS

busybox() {
    /run/busybox "$@"
}

die() {
    echo "xdplab: guest: $*"
    busybox poweroff -f
}

await_sshd() { # it writes its number once it listens
    read -r -t 20 _ <&4 || die "sshd: $(busybox tail -n 1 /run/sshd/log)"
}

exec 4<>/run/sshd/pid
await_sshd
echo '{"up": true}' >&3
while read -r line <&3; do
    if [ "$line" = link ]; then
        "$PYTHON" -I -S -B "$LINK" "$PORTS" <&3 >&3 || die "the hosts of its link have ended"
    else
        echo "$line" >&3
    fi
done
die "its keeper has gone"
