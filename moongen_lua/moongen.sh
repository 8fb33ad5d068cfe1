#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moongen.sh MOONGEN SCRIPT [ARG...]: MoonGen as a tool that prints its results and nothing else.
# Standard output: the script's JSON lines. Standard error, where it failed: the line of MoonGen's log that says why.
set -u
moongen=$1 script=$2
shift 2
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
mkfifo "$here/results"
tee "$here/told" <"$here/results" &
reader=$!
"$moongen" "$script" "$@" --results "$here/results" >"$here/log" 2>&1
code=$?
# Where MoonGen died before it opened the file, tee still waits for a writer.
: 3<>"$here/results"
wait "$reader"
if [ "$code" -ne 0 ]; then
    escape=$(printf '\033')
    sed "s/$escape\[[0-9;]*m//g" "$here/log" >"$here/plain"
    said=$(grep -E -i 'error|fatal|panic|cannot|unavailable|invalid|no free hugepages|failed' "$here/plain" | head -n 3 | tr '\n' ' ')
    [ -n "$said" ] || grep -q '"type":"error"' "$here/told" || said=$(tail -n 1 "$here/plain")
    [ -z "$said" ] || printf '%s\n' "$said" >&2
fi
exit "$code"
