#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to figures: installs missing packages, brings a lab up, measures a plan, draws its figures.
#
#   shell/run_matrix.sh                       plans/quick.yaml
#   shell/run_matrix.sh PLAN [OPTION]…        another plan; options are those of `xdplab run`
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

plan=$home/plans/quick.yaml
case ${1:-} in
'' | -*) ;;
*)
    plan=$(realpath -- "$1")
    shift
    ;;
esac

cd "$home"
shell/setup.sh >/dev/null # its hints: they are the next line
trap 'shell/setup.sh --give-back' EXIT
"$(shell/setup.sh --where)/bin/xdplab" run "$plan" "$@"
