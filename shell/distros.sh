#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the README's two commands in fresh roots of Debian, as root and as an ordinary user with sudo. The table has the
# tools' versions, the valid trials and the passed tests. All parts take most of a day and need root, debootstrap and
# slirp4netns.
#
#   shell/distros.sh                    all of it, from the beginning
#   shell/distros.sh 13 user trials     a part of it: 12, 13 or sid; root or user; trials, tests, or fast (the tests
#                                       that need neither root nor traffic); the table has the parts that ran before, too
#   shell/distros.sh table              only the table of the parts that ran
#   shell/distros.sh -w FOLDER …        roots and downloads stay in FOLDER; a root that is there is used again
#   shell/distros.sh -w … sid root again  in the root of an earlier call: of its tests only those that failed, with the
#                                       newest commit. Their row joins that of all tests, which counts as passed with it
#   shell/distros.sh -m MINUTES …       so many at most for each part (else 30 for the trials, 45 for fast, 180 for the tests)
#
# All roots share one copy of each download: packages, wheels, and the kernels and compilers that the tests fetch.
# Results and logs of the parts are in build/distros. The superuser and the user have a root each, or sudo would find
# everything installed. Each root has its own mount and network namespaces with access to the network (slirp4netns), so
# its labs cannot meet those of this machine. Processes left in a root when its command ends are killed. There is no
# process namespace: a lab pins the kernel's softirq threads, which only the first namespace shows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SUITES=(bookworm trixie sid)
USERS=(root user)
COMMANDS=(trials fast tests again)
declare -A SUITE_OF=([12]=bookworm [13]=trixie)
declare -A AS_WRITTEN=([trials]="shell/run_matrix.sh" [fast]="make test-fast" [tests]="make test"
    [again]="shell/check.sh again")
# A root has no make until the first command has set it up, and the tests may be run alone.
MAKE="{ command -v make >/dev/null || shell/setup.sh --dev; } && make"
declare -A TO_RUN=([trials]="shell/run_matrix.sh" [fast]="$MAKE test-fast" [tests]="$MAKE test"
    [again]="shell/setup.sh --dev && shell/check.sh again")
declare -A MOST_MINUTES=([trials]=30 [fast]=45 [tests]=180 [again]=180)
PARTS=build/distros

# Where this machine's own packages come from: the archive (-v), and its security updates (-e).
own_archive() { apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | sort -u | grep "$1" security | head -n 1; }
: "${XDPLAB_MIRROR:=$(own_archive -v || true)}"
: "${XDPLAB_SECURITY_MIRROR:=$(own_archive -e || true)}"

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

# bounded MINUTES COMMAND…: in the background, so that Ctrl-C is heard at once; without `env` the command would be deaf to it.
CHILD=
bounded() {
    local status=0
    env --default-signal=INT,QUIT timeout --kill-after=30 "$1m" "${@:2}" </dev/null &
    CHILD=$!
    wait "$CHILD" || status=$?
    CHILD=
    return "$status"
}

# ---- a root ----

# A user has git, certificates and sudo before a clone, but neither make nor a compiler.
make_root() { # SUITE ROOT
    [ -e "$2/made" ] && return
    rm -rf "$2"
    say "$1: making a fresh root"
    # (what it mounts is gone with its namespace, however it ends)
    mkdir -p "$WORK/downloads/$1"
    bounded 30 unshare --mount debootstrap --variant=minbase --include=ca-certificates,git,sudo \
        --cache-dir="$WORK/downloads/$1" "$1" "$2" "$XDPLAB_MIRROR" || return
    if [ "$1" != sid ] && [ -n "$XDPLAB_SECURITY_MIRROR" ]; then
        echo "deb $XDPLAB_SECURITY_MIRROR $1-security main" >>"$2/etc/apt/sources.list"
    fi
    trust_what_this_machine_trusts "$2" || return
    chroot "$2" useradd -m -s /bin/bash user || return
    echo "127.0.0.1 localhost $(hostname)" >"$2/etc/hosts" # or sudo waits for a name server
    echo 'user ALL=(ALL) NOPASSWD: ALL' >"$2/etc/sudoers.d/user"
    touch "$2/made"
}

# Behind a proxy with its own certificate, nothing can be fetched without it.
trust_what_this_machine_trusts() { # ROOT
    printenv | grep -iE '^(https?|ftp|no)_proxy=' >"$1/etc/environment" || true
    if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
        cp /usr/local/share/ca-certificates/*.crt "$1/usr/local/share/ca-certificates/"
        chroot "$1" update-ca-certificates || return
        echo PIP_CERT=/etc/ssl/certs/ca-certificates.crt >>"$1/etc/environment"
    fi
}

home_of() { [ "$1" = root ] && echo /root || echo "/home/$1"; }

fresh_clone() { # ROOT USER
    local clone
    clone=$1$(home_of "$2")/xdplab
    rm -rf "$clone"
    git clone -q --no-hardlinks . "$clone" && chroot "$1" chown -R "$2:" "$(home_of "$2")/xdplab"
}

# The clone of an earlier part with this checkout's commit: it still knows which tests failed.
renewed_clone() { # ROOT USER
    local clone
    clone=$1$(home_of "$2")/xdplab
    [ -e "$clone/.pytest_cache/v/cache/nodeids" ] || { echo "no tests ran here before" && return 1; }
    git -c safe.directory="$clone" -C "$clone" fetch -q "$PWD" HEAD &&
        git -c safe.directory="$clone" -C "$clone" reset -q --hard FETCH_HEAD &&
        chroot "$1" chown -R "$2:" "$(home_of "$2")/xdplab"
}

# What the roots share, as lines "folder of downloads, folder in the root". Each suite has packages of its own; a user's
# folders are the user's own, or pip and xdplab would not use them.
shared() { # ROOT USER
    local name home suite=${1##*/}
    home=$(home_of "$2")
    mkdir -p "$WORK/downloads/${suite%.*}" || return
    echo "$WORK/downloads/${suite%.*} /var/cache/apt/archives"
    chroot "$1" runuser -u "$2" -- mkdir -p "$home/.cache/pip" "$home/.cache/xdplab"/{compilers,kernels} || return
    for name in pip xdplab/compilers xdplab/kernels; do
        mkdir -p "$WORK/downloads/$2/$name" && chown "$(stat -c %u "$1$home")" "$WORK/downloads/$2/$name" || return
        echo "$WORK/downloads/$2/$name $home/.cache/$name"
    done
}

# ---- inside ----

end_all_in() { # ROOT
    find /proc -mindepth 2 -maxdepth 2 -path '/proc/[0-9]*/root' -lname "$1" -printf '%h\n' 2>/dev/null |
        sed 's,/proc/,,' | xargs -r kill -KILL 2>/dev/null || true
}

# Makes a network namespace with access to the network. `leave` removes it and ends all processes in the root.
NET=xdplab-distros-$$
DOOR=
INSIDE=
enter() { # ROOT
    INSIDE=$1
    ip netns add "$NET" && ip -n "$NET" link set lo up || return
    slirp4netns --configure --mtu=65520 --netns-type=path "/run/netns/$NET" tap0 >/dev/null 2>&1 &
    DOOR=$!
    until ip -n "$NET" -o addr show tap0 2>/dev/null | grep -q 'inet '; do
        kill -0 "$DOOR" 2>/dev/null || return
        sleep 0.1
    done
    echo nameserver 10.0.2.3 >"$1/etc/resolv.conf"
}

leave() {
    [ -n "$INSIDE" ] || return 0
    end_all_in "$INSIDE"
    if [ -n "$DOOR" ]; then
        kill "$DOOR" 2>/dev/null || true
        wait "$DOOR" 2>/dev/null || true
    fi
    ip netns delete "$NET" 2>/dev/null || true
    DOOR='' INSIDE=''
}

# in_root ROOT USER MINUTES COMMAND: runs it in a login shell of that user, for at most so many minutes. Do not call it in
# a subshell, which would not clean up.
in_root() {
    local status=0 shared
    shared=$(shared "$1" "$2") || return
    if ! enter "$1"; then
        leave
        echo "no network for $1: slirp4netns ended"
        return 1
    fi
    bounded "$3" nsenter --net="/run/netns/$NET" unshare --mount bash -e -c '
        root=$1
        mount --make-rprivate /
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount -t sysfs sys "$root/sys"
        mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
        mount -t bpf bpf "$root/sys/fs/bpf"
        mount -t debugfs debug "$root/sys/kernel/debug"
        mount -t tracefs tracing "$root/sys/kernel/tracing"
        mount -t devtmpfs dev "$root/dev"
        mkdir -p "$root/dev/pts" "$root/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 pts "$root/dev/pts"
        mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
        mount -t tmpfs -o mode=0755 run "$root/run"
        # Labs that take turns on a CPU lock its folder here, and other instances of sysfs have folders of their own.
        mount --bind /sys/devices/system/cpu "$root/sys/devices/system/cpu"
        while read -r from to; do mount --bind "$from" "$root$to"; done <<<"$4"
        exec chroot "$root" su - "$2" -c "$3"
    ' - "$1" "$2" "$4" "$shared" || status=$?
    leave
    return "$status"
}

# ---- what came out ----

# One line per tool: name and version.
VERSIONS='
export PATH=$PATH:/usr/sbin:/sbin
first() { if command -v "$1" >/dev/null; then "$@" 2>&1 | grep -oE "[0-9]+\.[0-9]+(\.[0-9]+)*" | head -n 1; else echo none; fi; }
package() { dpkg-query -W -f "\${Version}" "$1" 2>/dev/null | sed "s/^[0-9]*://"; }
printf "clang %s\n" "$(first clang --version)"
printf "gcc %s\n" "$(first gcc --version)"
printf "QEMU %s\n" "$(first qemu-system-x86_64 --version)"
printf "sysstat %s\n" "$(first sar -V)"
printf "perf %s\n" "$(first perf --version)"
printf "Python %s\n" "$(first python3 --version)"
printf "libbpf %s\n" "$(package libbpf-dev)"
'

VERDICTS='
import sys
import xdplab
counts = xdplab.open(sys.argv[1]).trials["verdict"].value_counts()
print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
'

trials_of() { # what VERDICTS said
    grep valid "$1" || echo "no table"
}

# pytest ends with one line. `make test` calls it for real traffic and for all other tests; tests with traffic that failed
# run once more, and count twice here.
tests_of() { # LOG
    sed -nE 's/^=+ (.*[0-9]+ (passed|failed|errors?|skipped).*) in [0-9.]+s.*=+$/\1/p' "$1" | tr ',' '\n' |
        awk '{ sum[$2 == "errors" ? "error" : $2] += $1 }
            END { n = split("passed failed error skipped", kinds)
                for (i = 1; i <= n; i++)
                    if (kinds[i] in sum) { printf "%s%d %s", comma, sum[kinds[i]], kinds[i]; comma = ", " }
                print comma ? "" : "no test was run" }'
}

# A part's row: suite, user, command, result, exit code, minutes, commit. Each is a file of its own, so that a repeated
# part replaces only its own row.
write_row() { # SUITE USER WHAT RESULT STATUS SECONDS COMMIT
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "${AS_WRITTEN[$3]}" "$4" "$5" $(($6 / 60)) "$7" >"$PARTS/$1.$2.$3.row"
}

# measure ROOT USER WHAT PART: its exit code; what came out is in PART.said
measure() {
    local status=0
    in_root "$1" "$2" "${MOST_MINUTES[$3]}" "cd xdplab && ${TO_RUN[$3]}" >"$4.log" 2>&1 || status=$?
    case $3 in
    trials)
        in_root "$1" "$2" 5 "cd xdplab && .venv/bin/python -c '$VERDICTS' results/2*-quick" >"$4.verdicts" 2>>"$4.log" || true
        trials_of "$4.verdicts"
        ;;
    *) tests_of "$4.log" ;;
    esac >"$4.said"
    return "$status"
}

ready() { # ROOT SUITE USER WHAT
    if [ "$4" = again ]; then renewed_clone "$1" "$3"; else make_root "$2" "$1" && fresh_clone "$1" "$3"; fi
}

ask() { # SUITE USER WHAT
    local root=$WORK/$1.$2 part=$PARTS/$1.$2.$3 began=$SECONDS said status=0 commit
    commit=$(git rev-parse --short HEAD)
    say "$1: ${AS_WRITTEN[$3]} by $2 (its output: $part.log)"
    rm -f "$part".*
    [ "$3" != tests ] || rm -f "$PARTS/$1.$2.again".*
    if ready "$root" "$1" "$2" "$3" >"$part.log" 2>&1; then
        measure "$root" "$2" "$3" "$part" || status=$?
        said=$(cat "$part.said")
        [ "$status" != 124 ] || said="stopped after ${MOST_MINUTES[$3]} minutes: $said"
        in_root "$root" root 1 "$VERSIONS" >"$PARTS/$1.versions" 2>>"$part.log" || true
    else
        status=1 said="no root: $(tail -n 1 "$part.log")"
    fi
    write_row "$1" "$2" "$3" "$said" "$status" $((SECONDS - began)) "$commit"
}

# Rows in the order of SUITES, USERS and COMMANDS.
rows() {
    local suite user what
    for suite in "${SUITES[@]}"; do
        for user in "${USERS[@]}"; do
            for what in "${COMMANDS[@]}"; do cat "$PARTS/$suite.$user.$what.row" 2>/dev/null || true; done
        done
    done
}

print_table() {
    local suite
    printf '\n| root | by | command | result | exit code | minutes | commit |\n| --- | --- | --- | --- | --- | --- | --- |\n'
    rows | awk -F '\t' '{ printf "| %s | %s | `%s` | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6, $7 }'
    printf '\n| root | versions |\n| --- | --- |\n'
    for suite in "${SUITES[@]}"; do
        [ ! -e "$PARTS/$suite.versions" ] || printf '| %s | %s |\n' "$suite" "$(paste -sd , "$PARTS/$suite.versions" | sed 's/,/, /g')"
    done
    printf '\nSkipped tests, and why:\n'
    for suite in "${SUITES[@]}"; do
        cat "$PARTS/$suite".*.{tests,again}.log 2>/dev/null |
            sed -n "s/^SKIPPED \[\([0-9]*\)\] [^:]*:[0-9]*: /$suite: \1 × /p" | sort -u || true
    done
}

# ---- all of it ----

finish() {
    trap - INT TERM HUP
    if [ -n "$CHILD" ]; then
        kill "$CHILD" 2>/dev/null || true
        wait "$CHILD" 2>/dev/null || true
        kill -KILL -- "-$CHILD" 2>/dev/null || true # the rest of its process group, which would write on
    fi
    leave
    [ -z "$FORGET" ] || rm -rf --one-file-system "$FORGET"
    shell/setup.sh --give-back
}

main() { # in one piece: bash reads a script as it goes, and this one runs for hours beside changes of the checkout
    FORGET= # the folder of roots that is removed at the end
    WORK=
    suites=() users=() commands=() only_table=
    while getopts w:m: option; do
        case $option in
        w) WORK=$OPTARG ;;
        m) MOST_MINUTES=([trials]=$OPTARG [fast]=$OPTARG [tests]=$OPTARG [again]=$OPTARG) ;;
        *) die "see the head of shell/distros.sh" ;;
        esac
    done
    shift $((OPTIND - 1))
    for word in "$@"; do
        word=${SUITE_OF[$word]:-$word}
        case $word in
        bookworm | trixie | sid) suites+=("$word") ;;
        root | user) users+=("$word") ;;
        trials | fast | tests | again) commands+=("$word") ;;
        table) only_table=yes ;;
        *) die "$word is not known: 12, 13, sid; root, user; trials, fast, tests, again; table" ;;
        esac
    done
    [ -n "$only_table" ] || require
    trap finish EXIT
    trap 'exit 130' INT TERM HUP
    mkdir -p "$PARTS"
    if [ -z "$only_table" ]; then
        if [ -z "$WORK" ]; then
            FORGET=$(mktemp -d "${TMPDIR:-/var/tmp}/xdplab-distros.XXXXXX")
            WORK=$FORGET
        fi
        mkdir -p "$WORK"
        WORK=$(realpath "$WORK")
        [ $# != 0 ] || rm -f "$PARTS"/*
        [ ${#suites[@]} != 0 ] || suites=("${SUITES[@]}")
        [ ${#users[@]} != 0 ] || users=("${USERS[@]}")
        [ ${#commands[@]} != 0 ] || commands=(trials tests)
        for suite in "${suites[@]}"; do
            for user in "${users[@]}"; do
                for what in "${commands[@]}"; do ask "$suite" "$user" "$what"; done
                [ -z "$FORGET" ] || rm -rf --one-file-system "${FORGET:?}/$suite.$user"
            done
        done
    fi
    print_table
    rows | awk -F '\t' -v again="${AS_WRITTEN[again]}" -v tests="${AS_WRITTEN[tests]}" '
        { if ($3 == again && $5 == 0) delete failed[$1, $2, tests]; else if ($5 != 0) failed[$1, $2, $3] }
        END { for (row in failed) exit 1 }'
}

main "$@"
exit
