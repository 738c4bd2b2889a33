#!/bin/sh
# Installs missing Debian packages that ergon needs to build and test. Those of Slurm,
# for a cluster on this host, are separate: only root installs them, and none of their daemons starts.
# Usage: install-packages.sh [live]
set -eu

packages="gcc libc6-dev cmake ninja-build pkg-config libjansson-dev libcyaml-dev libyaml-dev
          libsqlite3-dev libcmocka-dev zlib1g-dev libncurses-dev libmicrohttpd-dev
          coinor-libclp-dev coinor-libcbc-dev libpcre2-dev libutf8proc-dev libxxhash-dev"
[ "${1-}" != live ] || packages="slurmctld slurmd slurm-client munge sqlite3"

if ! command -v dpkg-query >/dev/null 2>&1; then
    exit 0 # not Debian: CMake says what it does not find
fi
# "pkgconf" provides "pkg-config" where only that is installed.
installed=$(dpkg-query -W -f='${db:Status-Status} ${Package} ${Provides}\n' 2>/dev/null |
    sed -n 's/^installed //p' | sed 's/([^)]*)//g; s/,/ /g' | tr -s ' ' '\n')
missing=""
for package in $packages; do
    if ! printf '%s\n' "$installed" | grep -qx "$package"; then
        missing="$missing $package"
    fi
done
[ -n "$missing" ] || exit 0

if [ "${1-}" = live ] && [ "$(id -u)" -ne 0 ]; then
    echo "a Slurm on this host needs these Debian packages; run this as root:$missing" >&2
    exit 1
fi
echo "installing missing packages:$missing"
if [ "$(id -u)" -eq 0 ]; then
    run=""
elif command -v sudo >/dev/null 2>&1; then
    run="sudo"
else
    echo "these Debian packages are missing and this user cannot install them:$missing" >&2
    exit 1
fi
if [ "${1-}" = live ] && [ ! -e /usr/sbin/policy-rc.d ]; then
    # Debian runs this before it starts a daemon: 101 means no.
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
fi
$run apt-get update -qq
# shellcheck disable=SC2086 # the list is meant to be split
$run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
