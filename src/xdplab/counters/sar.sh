#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sar.sh: let sar's collector write one sample a second to a file until standard input ends; then print it as JSON.

export LC_ALL=C
refuse() {
    echo "$1" >&2
    exit 127
}

for tool in sar sadf; do
    command -v "$tool" >/dev/null || refuse "sysstat's $tool: not found"
done
# The collector is on no PATH, and each distribution has it elsewhere, Debian 12 and 13 too. sar knows where its own is.
sar=$(command -v sar)
sadc=$(command -v sadc || grep -aom1 '/[[:alnum:]/_.-]*/sadc' "$sar") || {
    said=$(timeout 5 "$sar" -V 2>&1 | head -c 200 | tr '\n' ' ')
    refuse "$sar is not sysstat's: it names no collector (sadc); \`sar -V\` printed: ${said:-nothing}"
}
[ -x "$sadc" ] || refuse "sysstat's $sadc, which $sar names: not found"
record=$(mktemp -d "$(dirname "$0")/sar.XXXXXX") || exit 1
"$sadc" -S XALL 1 "$record/sar" </dev/null >/dev/null 2>"$record/errors" &
# After the fork: a child that has not yet put its parent's traps aside loses a signal that comes then, and stays.
trap 'rm -rf "$record"' EXIT
trap 'exit 1' HUP INT TERM

read -r word && echo "$word"
cat >/dev/null
# Once our child has ended, another process may have its number.
{ read -r stat <"/proc/$!/stat"; } 2>/dev/null && set -- ${stat##*) } && [ "$2" = $$ ] && kill $!
cat "$record/errors" >&2
sadf -j "$record/sar" -- -u ALL -P ALL -n DEV
