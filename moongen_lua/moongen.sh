#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moongen.sh MOONGEN SCRIPT [ARG...]: MoonGen as a tool that prints its results and nothing else.
# Standard output: the script's JSON lines. Standard error: the end of MoonGen's log, where it failed.
set -u
moongen=$1 script=$2
shift 2
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
mkfifo "$here/results"
cat "$here/results" &
reader=$!
"$moongen" "$script" "$@" --results "$here/results" >"$here/log" 2>&1
code=$?
# Where MoonGen died before it opened the file, cat still waits for a writer.
: 3<>"$here/results"
wait "$reader"
[ "$code" -eq 0 ] || tail -n 20 "$here/log" | tr -d '\033' >&2
exit "$code"
