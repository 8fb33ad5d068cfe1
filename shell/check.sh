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

# Real traffic runs alone, in a network namespace of its own where no other test's labs are: beside tests that keep the
# CPUs busy, a sender is late now and then, and its verdict says so. Both parts always run; either decides.
tests() {
    local apart=() failed=0
    if [ "$(id -u)" = 0 ] && unshare --net true 2>/dev/null; then
        apart=(unshare --net sh -c 'ip link set lo up && exec "$@"' sh)
    fi
    say "pytest, real traffic"
    "${apart[@]}" "$bin/pytest" --durations=25 -m 'lab and not nightly' || failed=$?
    say "pytest, all other tests"
    "$bin/pytest" --durations=25 -m 'not lab and not nightly' || failed=$?
    return $failed
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
    tests
fi
