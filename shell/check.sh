#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that is checked before a change lands, cheapest first. `check.sh lint` leaves the tests out; `check.sh fast`
# is only the tests of parsers, plans, analysis, figures and refusals: no root, no lab, no compiler of the kernel's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$(shell/setup.sh --where)/bin
trap 'shell/setup.sh --give-back' EXIT
CLANG_FORMAT=14 # others lay out a few lines differently

say() { printf '\n== %s\n' "$*"; }

c_sources() {
    find . \( -path ./.venv -o -path ./results -o -path ./.git \) -prune -o \
        -name '*.[ch]' ! -name '*.skel.h' ! -name vmlinux.h -print
}

c_layout() {
    if clang-format --version 2>/dev/null | grep -q "version $CLANG_FORMAT\."; then
        c_sources | xargs -r clang-format --dry-run -Werror
    else
        echo "skipped: clang-format $CLANG_FORMAT is not here"
    fi
}

# Two runs of pytest at a time, since each waits more than it works: real traffic first in line for the CPU and in a
# network namespace of its own, where no other test's labs are; guests count instructions, which load does not disturb.
tests() {
    local apart=() traffic=0 rest=0
    if [ "$(id -u)" = 0 ] && unshare --net true 2>/dev/null; then
        apart=(unshare --net sh -c 'ip link set lo up && exec "$@"' sh)
    fi
    said=$(mktemp) # like traffic_pid not local: the trap runs when this function is left
    trap 'kill -- "-${traffic_pid:-none}" 2>/dev/null || :; rm -f "$said"; shell/setup.sh --give-back' EXIT
    set -m # without it a process in the background ignores Ctrl-C, which tests send
    "${apart[@]}" "$bin/pytest" --durations=25 -m 'lab and not nightly' -o cache_dir=.pytest_cache/traffic >"$said" 2>&1 &
    traffic_pid=$!
    set +m
    nice "$bin/pytest" --durations=25 -m 'not lab and not nightly' || rest=$?
    say "pytest, the tests with real traffic, which ran beside these"
    wait "$traffic_pid" || traffic=$?
    traffic_pid=
    cat "$said"
    return $((traffic | rest))
}

fast() {
    "$bin/pytest" --durations=25 -m 'not nightly and not root and not lab' \
        tests/{analysis,cli,figures,formats,plan,thesis} tests/run/test_{store,runner,sample_run,derived_tables}.py \
        tests/studies/test_{golden_attempts,planned,search,load_shares}.py tests/test_*.py
}

if [ "${1:-}" = fast ]; then
    fast
    exit
fi
say ruff && "$bin/ruff" check .
say ruff format && "$bin/ruff" format --check .
say mypy && "$bin/mypy"
say lint-imports && "$bin/lint-imports"
say clang-format && c_layout
if [ "${1:-}" != lint ]; then
    say pytest && tests
fi
