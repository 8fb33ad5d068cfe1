#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws every published figure of the thesis from its raw logs, as printed and corrected; needs no lab and no root.
#
#   shell/regenerate_figures.sh PATH-TO-THE-DATA [--as-published|--corrected] [--lang pt] [--out DIR]
#
# PATH is a clone of the thesis' repository, a folder in it, or an archive (.tar.xz).
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

case ${1:-} in
'' | -h | --help)
    sed -n '3,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    [ $# -gt 0 ]
    exit
    ;;
esac
xdplab=$("$home/shell/setup.sh" --where)/bin/xdplab
[ -x "$xdplab" ] || "$home/shell/setup.sh"
exec "$xdplab" regenerate "$@"
