#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sar.sh: let sar's collector write one sample a second to a file until standard input ends; then print it as JSON.

export LC_ALL=C
PATH=$PATH:/usr/lib/sysstat:/usr/lib64/sa:/usr/lib/sa # Debian, Fedora, Arch: sadc is on nobody's PATH
record=$(mktemp -d "$(dirname "$0")/sar.XXXXXX") || exit 1
trap 'rm -rf "$record"' EXIT
trap 'exit 1' HUP INT TERM

for tool in sadc sadf; do
    command -v "$tool" >/dev/null || {
        echo "$tool: not found" >&2
        exit 127
    }
done
sadc -S XALL 1 "$record/sar" </dev/null >/dev/null 2>"$record/errors" &

read -r word && echo "$word"
cat >/dev/null
kill $!
cat "$record/errors" >&2
sadf -j "$record/sar" -- -u ALL -P ALL -n DEV
