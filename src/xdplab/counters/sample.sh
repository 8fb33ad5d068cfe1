#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sample.sh DEVICE SECONDS: note the CPUs' ticks and the device's packets every SECONDS until standard input ends.
# Notes go to a file and are printed at the end: neither a command nor an answer travels while traffic runs.

export LC_ALL=C
packets=/sys/class/net/$1/statistics
[ -r "$packets/rx_packets" ] || {
    echo "no network device $1" >&2
    exit 1
}
notes=$(mktemp "$(dirname "$0")/samples.XXXXXX") || exit 1

while :; do
    grep -h '^cpu[0-9]\|^[0-9]' /proc/uptime "$packets/rx_packets" "$packets/tx_packets" /proc/stat
    sleep "$2"
done >"$notes" 2>/dev/null </dev/null &
# After the fork: a child that has not yet put its parent's traps aside loses a signal that comes then, and stays.
trap 'rm -f "$notes"' EXIT
trap 'exit 1' HUP INT TERM

read -r word && echo "$word"
cat >/dev/null
# Once our child has ended, another process may have its number.
{ read -r stat <"/proc/$!/stat"; } 2>/dev/null && set -- ${stat##*) } && [ "$2" = $$ ] && kill $!
cat "$notes"
