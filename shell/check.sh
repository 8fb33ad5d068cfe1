#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All checks before a change lands, the cheapest first. `check.sh lint` leaves the tests out; `check.sh core` leaves out
# those marked `thorough`, and `check.sh thorough` runs only those. `check.sh fast` runs only the tests of parsers, plans,
# analysis, figures and refusals, which need no root, no lab and no BPF compiler. `check.sh pythons [VERSION…]` runs
# these with each supported Python besides the environment's own, or with these versions. `check.sh tidy` runs
# clang-tidy over the C tools; `check.sh sanitized [TEST…]` runs their tests with both sanitizers. `check.sh again` runs
# the tests that failed the last time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$(shell/setup.sh --where)/bin
log= # the folder of the parts' outputs, never one that the environment names
# A signal may reach this script alone. Then its tests end with it.
trap 'pkill -P $$ || :; rm -rf "$log"; shell/setup.sh --give-back' EXIT
CLANG_FORMAT=14 # others lay out a few lines differently
SANITIZED=(tests/afxdp_user tests/native/{common,xdpload} tests/deploy/test_deploy_xdp.py tests/generators/test_xdpgen_traffic.py
    tests/end_to_end/test_{run,foreign_frames}.py)
PYTHONS=(3.11 3.12 3.13 3.14)
FAILED=(--last-failed --last-failed-no-failures=none)
FAST=(tests/{analysis,cli,figures,formats,oracle,plan,thesis} tests/run/test_{store,runner,sample_run,derived_tables}.py
    tests/studies/{search,traffic/test_{planned,load_shares}.py} tests/test_*.py)
USERSPACE=("${FAST[@]}" tests/{bench,bisect,claims,compilers,history,moongen_lua,native/counted,notebooks,shell}
    tests/faults/test_replayed_faults.py tests/programs/test_programs_{bytecode,userspace}.py
    tests/run/test_{facts,fleet,fleet_tls,forked,recomputed,scale,watching}.py tests/studies/{cost,neighbour,outage,traffic}
    tests/studies/test_{anonymous,at_once,bundle,damaged_runs,every_run,kept,provenance,report}.py
    tests/studies/execution/test_execution_{proof,tables}.py tests/studies/jit/test_jit_study.py
    tests/studies/verifier/test_verifier_{paper,study,views}.py)
# Many containers set it. Then each test process would compile every module again that it imports: that triples the CPU
# time in environments made by uv, whose installed packages are not compiled either.
unset PYTHONDONTWRITEBYTECODE

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

# It takes a minute, so it is not part of every check. .clang-tidy lists the checks.
c_faults() {
    local file failed=0
    if ! command -v "clang-tidy-$CLANG_FORMAT" >/dev/null; then
        echo "skipped: clang-tidy-$CLANG_FORMAT is not here"
        return
    fi
    while read -r file; do
        "clang-tidy-$CLANG_FORMAT" --quiet "$file" -- -std=gnu11 -D_GNU_SOURCE -Inative/common 2>/dev/null || failed=1
    done < <(c_sources | grep '\.c$' | grep -E '^\./(native/(common|[a-z]*(gen|load|verify|clock|bench|sampler|reader))|afxdp_user)/[a-z_]*\.c$' |
        grep -vE '\.bpf\.c$|/fuzz\.c$|/microbench/')
    return $failed
}

# The tests of the C tools and of whole runs with tools that AddressSanitizer and UndefinedBehaviorSanitizer watch: in a
# copy of the checkout, since every host builds the tools by itself.
sanitized() {
    local copy apart=()
    copy=$(mktemp -d)
    [ "$(id -u)" != 0 ] || apart=(unshare --net sh -c 'ip link set lo up && exec "$@"' sh)
    git ls-files -z | xargs -0 cp --parents -t "$copy"
    sed -i '1i SANITIZE := 1' "$copy/native/common/rules.mk"
    (cd "$copy" && PYTHONPATH=$copy/src:$copy XDPLAB_CACHE=$copy/cache "${apart[@]}" "$bin/python" -m pytest \
        -m 'not nightly' -p no:cacheprovider "${@:-${SANITIZED[@]}}") || return
    rm -rf "$copy"
}

# passed OPTIONS LOG COMMAND…: shows and keeps its output. pytest ends with 5 without any test, which is right only where
# options leave some out.
passed() {
    local status=0
    "${@:3}" 2>&1 | tee "$2" || status=$?
    [ $status = 0 ] || [ "$1 $status" = "${#FAILED[@]} 5" ]
}

# beside NAME COMMAND…: runs it with the CPU time that traffic and the other tests leave. Its output is shown at its end.
declare -A beside=()
beside() {
    : "${log:=$(mktemp -d)}"
    env --default-signal=INT,QUIT nice -n 19 "${@:2}" >"$log/$1" 2>&1 &
    beside[$1]=$!
}

# ended OPTIONS NAME…: waits for them, and shows what they said.
ended() {
    local name status failed=0
    for name in "${@:2}"; do
        status=0
        wait "${beside[$name]}" || status=$?
        say "$name, which ran beside other tests"
        cat "$log/$name"
        [ $status = 0 ] || [ "$1 $status" = "${#FAILED[@]} 5" ] || failed=1
    done
    return $failed
}

# Real traffic runs in a network namespace of its own where no other test's labs are. It waits more than it works: beside
# it run, with the lowest priority, the tests that work in user space (those of compilers also load each object once), and
# guests, which count instructions or only answer. More work in the kernel makes a sender late now and then, and its
# verdict says so: the other tests follow, when traffic and guests have ended (tests/conftest.py says which of them may
# run side by side). They wait half of their time: one more of them than CPUs, and what is left in user space, fill it. All
# parts always run; each decides, and each remembers its own failures.
#
# On a machine shared with strangers even traffic that runs alone is late now and then. What failed there runs a second
# time by itself, as the product tries an invalid trial again. The last lines name what passed only then, and what failed
# in any part: they are all that is left of a long log at times.
tests() { # [OPTION…] for pytest
    local apart=() failed=0 late=0 part memory="-o cache_dir=.pytest_cache"
    local traffic=(-m "lab and $chosen" "$@") rest="(machine or not guest) and not lab and $chosen"
    if [ "$(id -u)" = 0 ] && unshare --net true 2>/dev/null; then
        apart=(unshare --net sh -c 'ip link set lo up && exec "$@"' sh)
    fi
    beside guest "$bin/pytest" --durations=25 -m "guest and not machine and not lab and $chosen" $memory/guest "$@"
    beside userspace "$bin/pytest" -n "$(nproc)" --durations=25 -m "$rest" $memory/userspace "$@" "${USERSPACE[@]}"
    say "pytest, real traffic"
    passed $# "$log/first" "${apart[@]}" "$bin/pytest" --durations=25 "${traffic[@]}" || late=1
    ended $# guest || failed=1 # guests and the settings of a whole machine do not go together
    say "pytest, all other tests"
    passed $# "$log/others" "$bin/pytest" -n $(($(nproc) + 1)) --durations=25 -m "$rest" $memory/others \
        "${USERSPACE[@]/#/--ignore=}" "$@" || failed=1
    ended $# userspace ${beside[mypy]+mypy} || failed=1
    if [ $late = 1 ]; then # now with nothing beside it
        say "pytest, real traffic that failed, once more"
        passed $# "$log/second" "${apart[@]}" "$bin/pytest" "${FAILED[@]}" "${traffic[@]}" || failed=1
    fi
    say "all parts"
    for part in mypy first second guest userspace others; do [ ! -e "$log/$part" ] || tail -n 1 "$log/$part" | tr -d =; done
    grep -hE '^(FAILED|ERROR)[ :]' "$log"/{second,guest,userspace,others} 2>/dev/null || true
    grep -hE '^(FAILED|ERROR)[ :]' "$log/first" | sed 's/^/in the first attempt: /' || true
    return $failed
}

fast() { # PROCESSES PYTHON…
    "${@:2}" -m pytest -n "$1" --durations=25 -m "not root and not lab and $chosen" "${FAST[@]}"
}

# Uses an installed Python, one of pyenv's, or one that uv fetches.
environment_of() { # VERSION FOLDER
    local versions=${PYENV_ROOT:-$HOME/.pyenv}/versions folder path=$PATH
    for folder in "$versions/$1".*/bin; do path=$folder:$path; done
    PATH=$path "$bin/uv" venv --quiet --system-certs --no-project --python "$1" "$2"
}

# Installs by uv, from its cache if possible, or else by the pip that set this checkout up, with its settings.
packages_of() { # FOLDER
    local index=${PIP_INDEX_URL:-}
    [ -n "$index" ] || index=$("$bin/python" -m pip config get global.index-url 2>/dev/null) || index=
    if [ -n "$index" ]; then export UV_DEFAULT_INDEX=$index; fi
    "$bin/uv" pip sync --quiet --system-certs --python "$1/bin/python" requirements.lock ||
        "$bin/python" -m pip --python "$1/bin/python" install --quiet --no-deps -r requirements.lock || return
    "$bin/uv" pip install --quiet --system-certs --python "$1/bin/python" --no-deps -e . ||
        "$bin/python" -m pip --python "$1/bin/python" install --quiet --no-deps -e .
}

# All at the same time, with an equal share of the CPUs.
pythons() { # [VERSION…]
    local version made own share failed=0
    local -A running=()
    made=$(mktemp -d) log=$made
    own=$("$bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    [ $# != 0 ] || set -- "${PYTHONS[@]}"
    share=$(($(nproc) / ($# > 1 ? $# - 1 : 1))) # one of them is the environment's own
    for version; do
        say "Python $version"
        if [ "$version" = "$own" ]; then
            echo "left to make test-all, which runs with it"
        elif ! environment_of "$version" "$made/$version" 2>"$made/log"; then
            echo "skipped: it is not here, and uv cannot fetch it: $(sed '1b;$!d' "$made/log" | tr -s '\n ' ' ')"
        elif packages_of "$made/$version"; then
            # These leave no note of what failed: `again` reads that of the tests with the environment's own Python. Each
            # takes the place of its shell, as the trap ends this script's own children.
            fast "$share" exec env --default-signal=INT,QUIT "PYTEST_ADDOPTS=${PYTEST_ADDOPTS:-} -p no:cacheprovider" \
                "$made/$version/bin/python" >"$made/$version.log" 2>&1 &
            running[$version]=$!
        else
            failed=1
        fi
    done
    for version in "${!running[@]}"; do
        say "Python $version, the tests of make test-fast"
        if wait "${running[$version]}"; then tail -n 1 "$made/$version.log"; else failed=1 && cat "$made/$version.log"; fi
    done
    return $failed
}

chosen="not nightly"
case ${1:-} in
core) chosen="not nightly and not thorough" ;;
thorough)
    chosen="thorough and not nightly"
    tests
    exit
    ;;
fast)
    fast "$(nproc)" "$bin/python"
    exit
    ;;
pythons)
    pythons "${@:2}"
    exit
    ;;
sanitized)
    sanitized "${@:2}"
    exit
    ;;
again)
    tests "${FAILED[@]}"
    exit
    ;;
tidy)
    c_faults
    exit
    ;;
esac
say ruff && "$bin/ruff" check .
say ruff format && "$bin/ruff" format --check .
say lint-imports && "$bin/lint-imports"
say clang-format && c_layout
if [ "${1:-}" = lint ]; then
    say mypy && "$bin/mypy"
else
    beside mypy "$bin/mypy" # a minute where it has not run before
    tests
fi
