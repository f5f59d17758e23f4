#!/usr/bin/env bash
# Makes this checkout ready to run: system packages, the host's environment (.venv), the guest's environment (.guest).
#
# It says what it is about to install before it installs it, and does nothing where a stamp says that it is done already.
# The host's environment has no torch; the guest's has nothing else. Variables:
#   PYTHON               interpreter that both environments are made from (3.11 or newer; default python3)
#   GUEST_PACKAGES       what the guest's environment holds; any torch and triton that belong together
#   ASSAY_GUEST_PYTHON   an interpreter that has torch and triton already: .guest is not made then
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022 # guests run as nobody and must be able to read what is installed here

PYTHON=${PYTHON:-python3}
GUEST_PACKAGES=${GUEST_PACKAGES:-torch==2.13.0 triton==3.7.1 numpy}
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '[setup] %s\n' "$*"; }

missing_system_packages() {
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || echo python3
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    command -v bwrap >/dev/null || echo bubblewrap
    command -v setpriv >/dev/null || echo util-linux
    # no `grep -q`: it leaves early, ldconfig dies of SIGPIPE, and pipefail makes that an absence
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep 'libseccomp\.so\.2' >/dev/null || echo libseccomp2
}

install_system_packages() {
    local missing
    missing=$(missing_system_packages | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "setup: this machine lacks: $missing(only root with apt-get can install them here; install them and run this again)" >&2
        exit 69
    fi
    say "system packages, by apt-get: $missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of names
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
    missing=$(missing_system_packages | tr '\n' ' ')
    [ -z "$missing" ] || { echo "setup: still missing after apt-get: $missing" >&2; exit 69; }
}

# environment FOLDER STAMP-TEXT DESCRIPTION PIP-ARGUMENT...
environment() {
    local folder=$1 text=$2 description=$3 stamp started=$SECONDS
    shift 3
    stamp=$folder/.assay-$(printf '%s' "$text" | sha256sum | cut -c1-16)
    [ ! -e "$stamp" ] || return 0
    say "$folder, by pip: $description"
    [ -x "$folder/bin/python" ] || "$PYTHON" -m venv "$folder"
    "$folder/bin/python" -m pip install --quiet --progress-bar off "$@"
    rm -f "$folder"/.assay-*
    touch "$stamp"
    say "$folder: ready after $((SECONDS - started)) s"
}

declared() { # what pyproject.toml asks for, on one line
    "$PYTHON" -c '
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print(*project["dependencies"], *project["optional-dependencies"]["dev"], "and this project, editable")'
}

install_system_packages
version=$("$PYTHON" -V)
environment .venv "$version $(cat pyproject.toml)" "$(declared)" --editable '.[dev]'
if [ -n "${ASSAY_GUEST_PYTHON:-}" ]; then
    say "guest environment: $ASSAY_GUEST_PYTHON, which is yours; .guest is not made"
else
    # shellcheck disable=SC2086  # a list of requirements
    environment .guest "$version $GUEST_PACKAGES" "$GUEST_PACKAGES" $GUEST_PACKAGES
fi
