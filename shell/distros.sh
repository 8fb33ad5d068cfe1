#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README's two commands in fresh roots of Debian, by root and by an ordinary user with sudo: which versions of which
# tools, how many trials valid, how many tests passed. Takes about an hour per root; wants root, debootstrap and
# slirp4netns.
#
#   shell/distros.sh                          bookworm, trixie and sid
#   shell/distros.sh trixie                   that one
#   shell/distros.sh -u user -c trials sid    only as `user` (or `root`), only `trials` (or `tests`)
#   shell/distros.sh -w FOLDER …              roots and logs stay in FOLDER; a root that is there is used again
#
# Each root has mount and network namespaces of its own with a way out (slirp4netns), so that no lab meets one of this
# machine; what still runs in a root when its command has ended is ended. Not a process namespace: a lab pins the kernel's
# softirq threads, which are seen in the first one alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SUITES=(bookworm trixie sid)
USERS=(root user)
COMMANDS=(trials tests)
# Where this machine's own packages come from: the archive (-v), and its security updates (-e).
own_archive() { apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | sort -u | grep "$1" security | head -n 1; }
: "${XDPLAB_MIRROR:=$(own_archive -v || true)}"
: "${XDPLAB_SECURITY_MIRROR:=$(own_archive -e || true)}"
declare -A AS_WRITTEN=([trials]="shell/run_matrix.sh" [tests]="make test")

say() { printf 'distros: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

require() {
    local tool
    [ "$(id -u)" = 0 ] || die "roots are made by root: sudo make distros"
    [ -n "$XDPLAB_MIRROR" ] || die "no archive among this machine's apt sources: set XDPLAB_MIRROR"
    for tool in debootstrap slirp4netns git; do
        command -v "$tool" >/dev/null || die "$tool is missing: apt-get install debootstrap slirp4netns git"
    done
}

# ---- a root ----

# What a user has before a clone: git, certificates, sudo. Neither make nor a compiler.
make_root() { # SUITE ROOT
    [ -e "$2/made" ] && return
    rm -rf "$2"
    say "$1: making a fresh root"
    debootstrap --variant=minbase --include=ca-certificates,git,sudo "$1" "$2" "$XDPLAB_MIRROR" >"$2.debootstrap" 2>&1 ||
        die "$1: debootstrap failed, see $2.debootstrap"
    if [ "$1" != sid ] && [ -n "$XDPLAB_SECURITY_MIRROR" ]; then
        echo "deb $XDPLAB_SECURITY_MIRROR $1-security main" >>"$2/etc/apt/sources.list"
    fi
    trust_what_this_machine_trusts "$2"
    chroot "$2" useradd -m -s /bin/bash user
    echo "127.0.0.1 localhost $(hostname)" >"$2/etc/hosts" # or sudo waits for a name server
    echo 'user ALL=(ALL) NOPASSWD: ALL' >"$2/etc/sudoers.d/user"
    touch "$2/made"
}

# Behind a proxy with a certificate of its own nothing could be fetched without it.
trust_what_this_machine_trusts() { # ROOT
    printenv | grep -iE '^(https?|ftp|no)_proxy=' >"$1/etc/environment" || true
    if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
        cp /usr/local/share/ca-certificates/*.crt "$1/usr/local/share/ca-certificates/"
        chroot "$1" update-ca-certificates >/dev/null 2>&1
        echo PIP_CERT=/etc/ssl/certs/ca-certificates.crt >>"$1/etc/environment"
    fi
}

home_of() { [ "$1" = root ] && echo /root || echo "/home/$1"; }

fresh_clone() { # ROOT USER
    local clone
    clone=$1$(home_of "$2")/xdplab
    rm -rf "$clone"
    git clone -q --no-hardlinks . "$clone"
    chroot "$1" chown -R "$2:" "$(home_of "$2")/xdplab"
}

# ---- inside ----

end_all_in() { # ROOT
    local process
    for process in /proc/[0-9]*; do
        if [ "$(readlink "$process/root")" = "$1" ]; then kill -KILL "${process#/proc/}" 2>/dev/null || true; fi
    done
}

# in_root ROOT USER COMMAND: a login shell of that user's runs it
in_root() {
    local root=$1 user=$2 net=xdplab-distros-$$ door status=0
    ip netns add "$net"
    ip -n "$net" link set lo up
    slirp4netns --configure --mtu=65520 --netns-type=path "/run/netns/$net" tap0 >/dev/null 2>&1 &
    door=$!
    until ip -n "$net" -o addr show tap0 2>/dev/null | grep -q 'inet '; do
        kill -0 "$door" || die "slirp4netns ended: no network for $root"
        sleep 0.1
    done
    echo nameserver 10.0.2.3 >"$root/etc/resolv.conf"
    nsenter --net="/run/netns/$net" unshare --mount bash -e -c '
        root=$1
        mount --make-rprivate /
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount -t sysfs sys "$root/sys"
        mount -t bpf bpf "$root/sys/fs/bpf"
        mount -t debugfs debug "$root/sys/kernel/debug"
        mount -t tracefs tracing "$root/sys/kernel/tracing"
        mount -t devtmpfs dev "$root/dev"
        mkdir -p "$root/dev/pts" "$root/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 pts "$root/dev/pts"
        mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
        mount -t tmpfs -o mode=0755 run "$root/run"
        exec chroot "$root" su - "$2" -c "$3"
    ' - "$root" "$user" "$3" </dev/null || status=$?
    end_all_in "$root"
    kill "$door"
    wait "$door" 2>/dev/null || true
    ip netns delete "$net"
    return "$status"
}

# ---- what came out ----

# One line for each tool: its name, its version.
VERSIONS='
export PATH=$PATH:/usr/sbin:/sbin
first() { "$@" 2>&1 | grep -oE "[0-9]+\.[0-9]+(\.[0-9]+)*" | head -n 1; }
for tool in clang gcc qemu-system-x86_64 perf python3; do printf "%s %s\n" "$tool" "$(first "$tool" --version)"; done
printf "sysstat %s\n" "$(first sar -V)"
printf "libbpf %s\n" "$(dpkg-query -W -f "\${Version}" libbpf-dev)"
'

VERDICTS='
import sys
import xdplab
counts = xdplab.open(sys.argv[1]).trials["verdict"].value_counts()
print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
'

trials_of() { # ROOT USER LOG
    local clone=xdplab
    in_root "$1" "$2" "cd $clone && .venv/bin/python -c '$VERDICTS' results/2*-quick" 2>>"$3" || echo "no table"
}

tests_of() { # LOG
    grep -aE '^=+ .*(passed|failed|error).* in [0-9.]+s.* =+$' "$1" | tail -n 1 | tr -d = | sed 's/^ *//; s/ in .*//' | grep . ||
        echo "no test was run"
}

ask() { # SUITE USER WHAT
    local root=$WORK/$1 log=$WORK/$1.$2.$3.log began=$SECONDS said status=0
    say "$1: ${AS_WRITTEN[$3]} by $2 (its output: $log)"
    in_root "$root" "$2" "cd xdplab && ${AS_WRITTEN[$3]}" >"$log" 2>&1 || status=$?
    case $3 in trials) said=$(trials_of "$root" "$2" "$log") ;; tests) said=$(tests_of "$log") ;; esac
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "${AS_WRITTEN[$3]}" "$said" "$status" "$((SECONDS - began))" >>"$TABLE"
}

versions() { in_root "$WORK/$1" root "$VERSIONS" | tr '\n' ',' | sed 's/,$/\n/; s/,/, /g'; }

print_table() { # SUITE…
    local suite
    printf '\n| root | by | command | result | exit code | seconds |\n| --- | --- | --- | --- | --- | --- |\n'
    awk -F '\t' '{ printf "| %s | %s | `%s` | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6 }' "$TABLE"
    printf '\n| root | versions |\n| --- | --- |\n'
    for suite in "$@"; do printf '| %s | %s |\n' "$suite" "$(versions "$suite")"; done
    printf '\nSkipped tests, and why:\n'
    for suite in "$@"; do
        sed -n "s/^SKIPPED \[\([0-9]*\)\] [^:]*:[0-9]*: /\1 × /p" "$WORK/$suite".*.tests.log 2>/dev/null |
            sort | uniq | sed "s/^/$suite: /"
    done
}

# ---- all of it ----

work=
while getopts u:c:w: option; do
    case $option in
    u) USERS=("$OPTARG") ;;
    c) COMMANDS=("$OPTARG") ;;
    w) work=$OPTARG ;;
    *) die "see the head of shell/distros.sh" ;;
    esac
done
shift $((OPTIND - 1))
[ $# = 0 ] || SUITES=("$@")
for what in "${COMMANDS[@]}"; do [ -n "${AS_WRITTEN[$what]:-}" ] || die "-c is trials or tests, not $what"; done
require
WORK=${work:-$(mktemp -d /var/tmp/xdplab-distros.XXXXXX)}
mkdir -p "$WORK"
WORK=$(realpath "$WORK")
[ -n "$work" ] || trap 'rm -rf "$WORK"' EXIT
TABLE=$WORK/table.$$
: >"$TABLE"
for suite in "${SUITES[@]}"; do
    make_root "$suite" "$WORK/$suite"
    for user in "${USERS[@]}"; do
        fresh_clone "$WORK/$suite" "$user"
        for what in "${COMMANDS[@]}"; do ask "$suite" "$user" "$what"; done
    done
done
print_table "${SUITES[@]}"
awk -F '\t' '$5 != 0 { failed = 1 } END { exit failed }' "$TABLE"
