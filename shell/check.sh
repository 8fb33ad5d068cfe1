#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that is checked before a change lands, cheapest first. `check.sh lint` leaves the tests out.
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

say ruff && "$bin/ruff" check .
say ruff format && "$bin/ruff" format --check .
say mypy && "$bin/mypy"
say lint-imports && "$bin/lint-imports"
say clang-format && c_layout
if [ "${1:-}" != lint ]; then
    say pytest && "$bin/pytest"
fi
