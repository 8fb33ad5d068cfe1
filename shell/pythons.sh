#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests that need neither root nor a lab, by each Python from 3.11 on that is on this machine; the others are named.
# `make setup` comes first: its uv makes the environments, which are kept in .pythons/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$(shell/setup.sh --where)/bin
trap 'shell/setup.sh --give-back' EXIT
VERSIONS=(3.11 3.12 3.13 3.14)
TESTS=(tests/formats tests/plan tests/analysis)

# On PATH, or one of pyenv's.
find_python() { # VERSION
    command -v "python$1" 2>/dev/null && return
    compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1.*/bin/python$1" | sort -V | tail -n 1 | grep .
}

environment() { # VERSION PYTHON
    local where=.pythons/$1 mark
    mark=$(cat requirements.lock pyproject.toml | sha256sum)
    [ "$(cat "$where/xdplab-setup" 2>/dev/null)" = "$mark" ] && return
    "$bin/uv" venv -q --clear --python "$2" "$where"
    "$bin/uv" pip install -q --python "$where/bin/python" -r requirements.lock
    "$bin/uv" pip install -q --python "$where/bin/python" --no-deps -e .
    echo "$mark" >"$where/xdplab-setup"
}

failed=0
for version in "${VERSIONS[@]}"; do
    if ! python=$(find_python "$version"); then
        echo "== Python $version: skipped: it is not on this machine"
        continue
    fi
    echo "== Python $version ($python)"
    environment "$version" "$python"
    ".pythons/$version/bin/python" -m pytest -q -p no:cacheprovider -m "not root and not lab and not nightly" "${TESTS[@]}" ||
        failed=1
done
exit "$failed"
