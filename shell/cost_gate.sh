#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The steps of the gate for pull requests, which action.yml and gitlab/xdplab-cost.yml share:
#
#   shell/cost_gate.sh key       prints the cache's key: a newer checkout, distribution or kernel list has its own
#   shell/cost_gate.sh set-up    installs what is missing
#   shell/cost_gate.sh check     counts, and ends as `xdplab cost --against` does: 0 no more, 1 more, 2 not comparable
#   shell/cost_gate.sh comment   writes the table of `check` into the pull request, over the one of an earlier check;
#                                one that is refused is a warning
#
# The environment has FILE, BASELINE, KERNELS and OPTIONS (words with blanks between), and OUT, the folder of what is made;
# for `comment` TOKEN, COMMENTS and COMMENT, the addresses of all comments and (before its id) of one, and RENEW, the
# method that changes one.
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$("$home/shell/setup.sh" --where)/bin
MARK='<!-- xdplab cost -->'

say() { printf 'cost gate: %s\n' "$*" >&2; }
warn() { echo "::warning title=xdplab cost::$*"; }

key() {
    local system sum
    system=$(. /etc/os-release && echo "$ID-${VERSION_ID:-}")
    sum=$(cat "$home/requirements.lock" - <<<"$KERNELS" | sha256sum | head -c 16)
    echo "xdplab-$system-$sum"
}

# A pull request is checked out without the commits before it; a branch that is fetched has no name here.
fetch_baseline() {
    local commit=${BASELINE#git:}
    # In a container the files' owner may be another: this user asked for them all the same.
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=$PWD
    [ "$commit" != "$BASELINE" ] || return 0
    [ -n "$commit" ] || { say "the baseline names no commit: outside of a pull request, set it" && exit 64; }
    ! git rev-parse -q --verify "$commit^{commit}" >/dev/null || return 0
    git fetch -q --depth=1 origin "$commit" || { say "origin has no commit or branch $commit: set the baseline" && exit 64; }
    BASELINE=git:$(git rev-parse FETCH_HEAD)
}

check() {
    local kernel kernels=() run code=0
    for kernel in $KERNELS; do kernels+=(--kernel "$kernel"); done
    mkdir -p "$OUT"
    fetch_baseline
    # shellcheck disable=SC2086 # lists of words
    "$bin/xdplab" cost $FILE "${kernels[@]}" $OPTIONS --against "$BASELINE" --format markdown --out "$OUT/runs" \
        >"$OUT/table.md" || code=$?
    tee -a "${GITHUB_STEP_SUMMARY:-/dev/null}" <"$OUT/table.md"
    for run in "$OUT/runs"/*/; do
        [ ! -e "$run/journal.jsonl" ] || "$bin/xdplab" report "$run" --out "$OUT/report.html" ||
            warn "no page was written; what was counted stands"
    done
    return $code
}

# Prints the id of the comment of an earlier check, if there is one. GitHub and GitLab answer alike: pages of comments,
# each with an id and a body, and an empty page after the last.
old_comment() {
    local page list count=1 old
    for ((page = 1; count; page++)); do
        list=$(curl -sSf -H "Authorization: Bearer $TOKEN" "$COMMENTS?per_page=100&page=$page") || return
        list=$(MARK=$MARK "$bin/python" -c 'import json, os, sys
page = json.load(sys.stdin)
print(len(page), *[one["id"] for one in page if one["body"].startswith(os.environ["MARK"])][-1:])' <<<"$list") || return
        read -r count old <<<"$list"
        [ -z "$old" ] || { echo "$old" && return; }
    done
}

comment() {
    local old method=POST address=$COMMENTS
    [ -s "$OUT/table.md" ] || { say "nothing was counted, so there is no table to write" && return; }
    old=$(old_comment) || return
    [ -z "$old" ] || { method=$RENEW && address=$COMMENT/$old; }
    (echo "$MARK" && cat "$OUT/table.md") |
        "$bin/python" -c 'import json, sys; print(json.dumps({"body": sys.stdin.read()}))' |
        curl -sSf -o /dev/null -X "$method" -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \
            --data-binary @- "$address"
}

case ${1:-} in
key) key ;;
set-up) "$home/shell/setup.sh" --guests >/dev/null ;; # its hints: the next step is one
check) check ;;
comment) # where a token may not write, as in a pull request of a fork, the summary has the table
    comment || warn "no comment was written; the table is in the job's output" ;;
*)
    say "${1:-nothing} is not known; there are key, set-up, check and comment"
    exit 64
    ;;
esac
