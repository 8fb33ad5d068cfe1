#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moongen.sh MOONGEN SCRIPT [ARG...]: runs a MoonGen script and prints only its results.
# Standard output: the script's JSON lines. Standard error, if it failed: the lines of MoonGen's log that say why.
set -u
moongen=$1 script=$2
shift 2
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
mkfifo "$here/results"
# Both ends of the FIFO are opened here, so that no process waits for a MoonGen that dies before it opens its end. The
# writing end (3) is closed last; then tee ends.
exec 3<>"$here/results" 4<"$here/results"
tee "$here/told" <&4 3>&- &
reader=$!
"$moongen" "$script" "$@" --results "$here/results" >"$here/log" 2>&1 3>&- 4<&-
code=$?
exec 3>&-
wait "$reader"
if [ "$code" -ne 0 ]; then
    escape=$(printf '\033')
    sed "s/$escape\[[0-9;]*m//g" "$here/log" >"$here/plain"
    said=$(grep -E -i 'error|fatal|panic|cannot|unavailable|invalid|no free hugepages|failed' "$here/plain" | grep -v -E -i '\b(0|no) errors' | head -n 3 | tr '\n' ' ')
    [ -n "$said" ] || grep -q '"type":"error"' "$here/told" || said=$(tail -n 1 "$here/plain")
    [ -z "$said" ] || printf '%s\n' "$said" >&2
fi
exit "$code"
