# Sourced by init.sh: from what the keeper has sent to the guest's root, this machine's own one, read-only, under a memory
# that takes the changes. It makes a host of the guest's initial namespaces.

. /settings # RELEASE MODULES SHARE BUILT BUILT_SHARE CODE MOUNTS QUIET ACCOUNTS WORK_DIR INTERFACE ADDRESS SSHD

mount -t 9p -o "$SHARE" host /host || die "no share of the host's root"
mount -t tmpfs -o mode=755 changes /mnt || die "no memory for the changes"
mkdir /mnt/upper /mnt/work
mount -t overlay -o lowerdir=/host,upperdir=/mnt/upper,workdir=/mnt/work root /root || die "no overlay"

mkdir -p "/root/lib/modules/$RELEASE" "/root$BUILT" || die "no space for modules"
mount --bind "/root$MODULES" "/root/lib/modules/$RELEASE" || die "the kernel's modules are not on the share"
mkdir /native /mnt/built /mnt/built/upper /mnt/built/work
mount -t 9p -o "$BUILT_SHARE" native /native || die "no share of what is compiled"
mount -t overlay -o lowerdir=/native,upperdir=/mnt/built/upper,workdir=/mnt/built/work built "/root$BUILT" ||
    die "no memory for what is compiled here"

# What a distribution's init would have done, as far as a host needs it.
umount /sys
for place in proc dev; do
    mount --move /$place /root/$place
done
mkdir -p /root/dev/shm /root/dev/pts
ln -s /proc/self/fd /root/dev/fd
for number_name in 0/stdin 1/stdout 2/stderr; do
    ln -s "/proc/self/fd/${number_name%/*}" "/root/dev/${number_name#*/}"
done
while read -r kind target needed; do
    mount -t "$kind" "$kind" "/root$target" || [ "$needed" = no ] || die "mount -t $kind $kind $target"
done 2>/root/dev/null <<END
$MOUNTS
END

# Root's home may be closed to the user who runs the guest, and sshd would complain with each command.
(cd /root/root) 2>/root/dev/null || mount -t tmpfs -o mode=700 home /root/root || die "no home"

# A memory of the host's own may hide what its scripts run: a checkout may lie below /tmp.
while read -r folder; do
    [ -e "/root$folder" ] && continue
    mkdir -p "/root$folder" && mount --bind "/host$folder" "/root$folder" || die "no $folder"
done <<END
$CODE
END

# The rest of a file may be missing: not all of them can be read by the user who runs the guest.
while read -r path mode line; do
    { echo "$line" && grep -v ^root: "/root$path"; } >/root/run/account 2>/root/dev/null
    rm -f "/root$path"
    mv /root/run/account "/root$path" && chmod "$mode" "/root$path" || die "no account in $path"
done <<END
$ACCOUNTS
END

while read -r key value; do
    [ ! -e "/root/proc/sys/$key" ] || echo "$value" >"/root/proc/sys/$key"
done <<END
$QUIET
END
hostname guest
ip link set lo up
ip link set "$INTERFACE" up
ip address add "$ADDRESS/24" dev "$INTERFACE" || die "no address for $INTERFACE"
ulimit -l unlimited

mkdir -p "/root$WORK_DIR"
ln -s "$BUILT" "/root$WORK_DIR/native"
chmod 755 /root/run # or sshd, to which it is writable by all, trusts no key in it
mv /sshd /root/run/sshd
mkfifo /root/run/sshd/pid # what waits for the file's content waits for an sshd that listens
mv /settings /answer.sh /root/run/
# -r: each connection's sshd is a fork of the one that listens, not another start of the program (OpenSSH < 9.8).
cat >/root/etc/inittab <<END
::respawn:$SSHD -D -r -f /run/sshd/sshd_config -E /run/sshd/log
::once:/run/busybox sh /run/answer.sh
END
mv /bin/busybox /root/run/
exec /root/run/busybox switch_root /root /run/busybox init <root/dev/null >root/dev/console 2>&1
