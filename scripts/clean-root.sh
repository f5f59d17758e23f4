#!/usr/bin/env bash
# Runs a command in a clean clone of HEAD inside a fresh Debian 12 tree: what a stranger's first minute looks like.
#
#   scripts/clean-root.sh [-o TRANSCRIPT] COMMAND...      e.g.  scripts/clean-root.sh -o docs/evidence/x.txt make demo
#
# Entered by unshare and pivot_root, since bubblewrap and Docker do not work in a plain chroot. The tree has its own mounts
# and processes and no Docker engine; it shares the network. Needs root and mmdebstrap (or a tar). Variables:
#   CLEAN_ROOT_TAR    a base tar to start from, instead of mmdebstrap
#   CLEAN_ROOT_BIND   host files and folders to show inside read-only, at the same paths: pip's configuration and what it
#                     names on disk, where a machine has such (`pip config list`)
#   CLEAN_ROOT_FIRST  a command to run first; default: apt-get install make git, as the README says
# The machine's CA bundle and name resolution are copied in; PIP_* and *_proxy variables are passed on.
set -euo pipefail

transcript=""
if [ "${1:-}" = -o ]; then
    transcript=$2
    shift 2
fi
[ $# -gt 0 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2; exit 64; }
[ "$(id -u)" = 0 ] || { echo "clean-root: only root can enter another root" >&2; exit 69; }

repository=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
work=$(mktemp -d /var/tmp/assay-clean.XXXXXX)
root=$work/root
trap 'rm -rf --one-file-system "$work"' EXIT # mounts live and die with the namespace
first=${CLEAN_ROOT_FIRST:-apt-get update -qq && apt-get install -y -qq --no-install-recommends make git >/dev/null}

make_tree() {
    mkdir -m 755 "$root"
    if [ -n "${CLEAN_ROOT_TAR:-}" ]; then
        tar -xf "$CLEAN_ROOT_TAR" -C "$root" --exclude='./dev/*'
    else
        mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$root"
    fi
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    local bundle=/etc/ssl/certs/ca-certificates.crt
    if [ -e "$bundle" ]; then install -D -m 644 "$bundle" "$root$bundle"; fi
    git clone --quiet --no-hardlinks "$repository" "$root/assay"
}

# runs in the new namespaces, as their first process
enter() {
    local path
    mount --bind "$root" "$root"
    for path in ${CLEAN_ROOT_BIND:-}; do
        if [ -d "$path" ]; then mkdir -p "$root$path"; else install -D /dev/null "$root$path"; fi
        mount --bind "$path" "$root$path"
        mount -o remount,bind,ro "$root$path"
    done
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs tmpfs "$root/run"
    cd "$root"
    mkdir old
    pivot_root . old
    cd /
    umount -l /old
    rmdir /old
    local keep=()
    for path in $(compgen -e | grep -E '^PIP_|_proxy$|_PROXY$' || true); do keep+=("$path=${!path}"); done
    exec env -i HOME=/root LANG=C.UTF-8 TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        "${keep[@]}" bash -c "{ $first; } && cd /assay && $*"
}

header() {
    echo "# scripts/clean-root.sh $*"
    echo "# commit $(git -C "$repository" rev-parse HEAD), $(date -u +%Y-%m-%dT%H:%MZ)"
    local kernel base=mmdebstrap
    kernel=$(uname -r)
    [ -z "${CLEAN_ROOT_TAR:-}" ] || base="a base tar"
    echo "# Debian $(cat "$root/etc/debian_version") from $base, Linux ${kernel%%-*}, $(nproc) cores," \
        "$(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)"
    echo "# first: $first"
}

# no transcript names a registry's host or a folder of the machine that it was made on
strip() {
    local script='s#(https?|file)://[^ ,)]*#<url>#g' path
    for path in ${CLEAN_ROOT_BIND:-} "$work"; do script="$script;s#${path}[^ ,)]*#<bind>#g"; done
    sed -u -E "$script"
}

make_tree
export -f enter
export root first CLEAN_ROOT_BIND
started=$SECONDS
run() {
    header "$*"
    unshare --mount --pid --fork --kill-child --propagation private bash -euo pipefail -c 'enter "$@"' bash "$*" 2>&1 </dev/null
}
set +e
if [ -n "$transcript" ]; then
    mkdir -p "$(dirname "$transcript")"
    run "$@" | strip | tee "$transcript"
    code=${PIPESTATUS[0]}
    echo "# exit $code after $((SECONDS - started)) s" | tee -a "$transcript"
else
    run "$@"
    code=$?
    echo "# exit $code after $((SECONDS - started)) s"
fi
exit "$code"
