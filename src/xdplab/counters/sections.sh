#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sections.sh MARK [NAME COUNT ARG...]...: run commands (COUNT arguments each) one after another in one SSH command.
# Each leaves: its standard output, a line `MARK NAME EXIT_CODE`, its standard error, a line `MARK`.

export LC_ALL=C

# COUNT ARG...: run the first COUNT of the arguments as a command.
run_first() {
    left=$1 rest=$(($# - 1 - $1))
    shift
    while [ "$left" -gt 0 ]; do
        set -- "$@" "$1"
        shift
        left=$((left - 1))
    done
    shift "$rest"
    exec "$@" </dev/null # in a subshell: a process less per command
}

mark=$1
shift
while [ $# -gt 2 ]; do
    name=$1 count=$2
    shift 2
    { error=$(run_first "$count" "$@" 2>&1 >&3); } 3>&1
    printf '\n%s %s %s\n%s\n%s\n' "$mark" "$name" $? "$error" "$mark"
    shift "$count"
done
