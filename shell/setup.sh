#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the missing packages and makes the project's Python environment; takes a moment if everything is there.
#
#   shell/setup.sh              for measuring
#   shell/setup.sh --guests     in guests too: virtual labs, `xdplab cost`
#   shell/setup.sh --packages   only the packages of --guests, without the Python environment
#   shell/setup.sh --dev        for `make test` too
#   shell/setup.sh --where      only prints the folder of the environment
#   shell/setup.sh --completion only installs the Tab key's completion of `xdplab`, for this user and their shell
#   shell/setup.sh --give-back  only gives files that a call by sudo made here to the calling user
#
# src/xdplab/doctor/packages.tsv lists the packages. Only their installation needs root; it is done by sudo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

: "${XDPLAB_PACKAGES:=src/xdplab/doctor/packages.tsv}" # these three are for the tests
: "${XDPLAB_OS_RELEASE:=/etc/os-release}"
: "${XDPLAB_POLICY:=/usr/sbin/policy-rc.d}"
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# An active conda environment made from environment.yml is used; anything else gets .venv here.
environment() {
    local name
    name=$(sed -n 's/^name: *//p' environment.yml)
    if [ "${CONDA_DEFAULT_ENV:-}" = "$name" ] && [ -x "${CONDA_PREFIX:-}/bin/python" ]; then
        echo "$CONDA_PREFIX"
    else
        echo "$PWD/.venv"
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# ---- packages ----

# Prints the first Python that is new enough, or nothing if the packages still have to bring one.
python() {
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    ! command -v python3 >/dev/null || die "Python 3.11 or newer is needed (Debian 12, Ubuntu 24.04 and Fedora 37 have it)"
}

# is_there LOOK NAME: whether a line of the table is met
is_there() {
    case $1 in
    command) command -v "$2" >/dev/null ;;
    header) [ -e "/usr/include/$2" ] ;;
    file) [ -e "$2" ] ;;
    python) [ -d "$ENVIRONMENT/conda-meta" ] || "${PYTHON:-python3}" -c "import ensurepip, $2" 2>/dev/null ;;
    *) die "$XDPLAB_PACKAGES: no way to look for a $1 is known" ;;
    esac
}

distribution() {
    local word
    # shellcheck source=/dev/null
    for word in $(. "$XDPLAB_OS_RELEASE" 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}"); do
        case $word in debian | ubuntu | fedora)
            echo "$word"
            return
            ;;
        esac
    done
    echo unknown
}

# missing DISTRIBUTION USES: prints the missing packages, by their Debian names if the distribution is unknown
missing() {
    local look name use debian ubuntu fedora _why
    while IFS=$'\t' read -r look name use debian ubuntu fedora _why; do
        case $look in '#'* | '') continue ;; esac
        if [[ " $2 " == *" $use "* ]] && ! is_there "$look" "$name"; then
            case $1 in ubuntu) echo "$ubuntu" ;; fedora) echo "$fedora" ;; *) echo "$debian" ;; esac
        fi
    done <"$XDPLAB_PACKAGES" | tr ' ' '\n' | sort -u | tr '\n' ' '
}

# Labs start sshd themselves, so the package must not start a daemon on the machine's own address.
without_starting_daemons() (
    if [ ! -e "$XDPLAB_POLICY" ]; then
        trap 'as_root rm -f "$XDPLAB_POLICY"' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$XDPLAB_POLICY" >/dev/null
        as_root chmod 755 "$XDPLAB_POLICY"
    fi
    "$@"
)

no_sshd_at_boot() {
    if [[ " $1 " == *" openssh-server "* ]] && command -v systemctl >/dev/null; then
        as_root systemctl disable ssh.service ssh.socket sshd.service >/dev/null 2>&1 || true
    fi
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=120 "$@" >/dev/null
}

# Chooses A of each A|B if this release has it.
that_are_here() {
    local word
    for word in "$@"; do
        case $word in *'|'*) [ -n "$(apt-cache show "${word%|*}" 2>/dev/null)" ] && word=${word%|*} || word=${word#*|} ;; esac
        echo "$word"
    done
}

install_debian() {
    # shellcheck disable=SC2046 # a list of words
    without_starting_daemons apt_get install --no-install-recommends $(that_are_here "$@") && return
    say "once more, with fresh package lists"
    apt_get update
    # shellcheck disable=SC2046
    without_starting_daemons apt_get install --no-install-recommends $(that_are_here "$@")
}

install_ubuntu() { install_debian "$@"; }

install_fedora() { as_root dnf -q -y install --setopt=install_weak_deps=False "$@" >/dev/null; }

install_packages() {
    local where packages
    where=$(distribution)
    packages=$(missing "$where" "$1")
    [ -z "$packages" ] && return
    [ "$where" = unknown ] && die "this distribution is unknown; install the packages that Debian calls: $packages"
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        die "these packages are missing, and there is no sudo; ask root to install: $packages"
    fi
    say "installing $packages"
    # shellcheck disable=SC2086 # a list of words
    "install_$where" $packages
    no_sshd_at_boot "$packages"
    packages=$(missing "$where" "$1")
    [ -z "$packages" ] || die "still missing after the installation: $packages"
}

# ---- the Python environment ----

stamp() { cat requirements.lock pyproject.toml | sha256sum; }

make_environment() {
    local mark=$ENVIRONMENT/xdplab-setup
    if [ "$(cat "$mark" 2>/dev/null)" = "$(stamp)" ] && "$ENVIRONMENT/bin/python" -c '' 2>/dev/null; then
        return
    fi
    if ! "$ENVIRONMENT/bin/python" -m pip --version >/dev/null 2>&1; then
        say "making $ENVIRONMENT: an empty environment"
        "$PYTHON" -m venv --clear "$ENVIRONMENT"
    fi
    if [ ! -d "$ENVIRONMENT/conda-meta" ]; then # what conda has installed stays conda's
        say "making $ENVIRONMENT: the packages of requirements.lock (minutes)"
        "$ENVIRONMENT/bin/python" -m pip install -q --disable-pip-version-check -r requirements.lock
    fi
    say "making $ENVIRONMENT: xdplab itself"
    "$ENVIRONMENT/bin/python" -m pip install -q --disable-pip-version-check --no-deps -e .
    "$ENVIRONMENT/bin/python" -m xdplab.cli.pages "$ENVIRONMENT/share/man" --man # `man` looks beside each bin of PATH
    stamp >"$mark" # last: an interrupted installation is done again
}

# Files that a call by `sudo` made belong to the calling user.
give_back() {
    if [ "$(id -u)" = 0 ] && [ -n "${SUDO_UID:-}" ] && [ "$(stat -c %u .)" = "$SUDO_UID" ]; then
        find . -xdev -user 0 -exec chown -h "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" {} +
    fi
}

# bash (with bash-completion) and fish search these folders; zsh has no such folder per user.
install_completion() {
    local shell=${SHELL##*/} target
    case $shell in
    bash) target=${XDG_DATA_HOME:-$HOME/.local/share}/bash-completion/completions/xdplab ;;
    fish) target=${XDG_CONFIG_HOME:-$HOME/.config}/fish/completions/xdplab.fish ;;
    zsh) die "write into ~/.zshrc: eval \"\$(_XDPLAB_COMPLETE=zsh_source xdplab)\"" ;;
    *) die "no completion is known for $shell; there are bash, fish and zsh" ;;
    esac
    [ -x "$ENVIRONMENT/bin/xdplab" ] || die "xdplab is not set up here: run shell/setup.sh first"
    mkdir -p "${target%/*}"
    _XDPLAB_COMPLETE=${shell}_source "$ENVIRONMENT/bin/xdplab" >"$target.new"
    mv "$target.new" "$target"
    echo "written: $target; it serves new shells that have xdplab in their PATH"
}

ENVIRONMENT=$(environment)
case ${1:-} in
'') uses="run study" ;;
--guests | --packages) uses="run vm" ;;
--dev) uses="run study dev vm" ;;
--where)
    echo "$ENVIRONMENT"
    exit
    ;;
--completion)
    install_completion
    exit
    ;;
--give-back)
    give_back
    exit
    ;;
*) die "$1 is not known; there are --guests, --packages, --dev, --where, --completion and --give-back" ;;
esac
trap give_back EXIT
PYTHON=$(python)
install_packages "$uses"
[ "${1:-}" != --packages ] || exit 0
[ -n "$PYTHON" ] || PYTHON=$(python)
make_environment
bin=${ENVIRONMENT#"$PWD/"}/bin
cat <<EOF
Ready. For example:
  $bin/xdplab doctor       what this machine can do, and what is missing
  $bin/xdplab run smoke    a first measurement, in seconds
  make notebook            the same in JupyterLab, with explanations
EOF
