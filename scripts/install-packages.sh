#!/bin/sh
# Installs the Debian packages that ergon needs to build and test, when they are missing.
set -eu

packages="gcc libc6-dev cmake ninja-build pkg-config libjansson-dev libcyaml-dev libyaml-dev
          libsqlite3-dev libcmocka-dev zlib1g-dev libncurses-dev libmicrohttpd-dev
          coinor-libclp-dev coinor-libcbc-dev libpcre2-dev libutf8proc-dev libxxhash-dev"

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

echo "installing missing packages:$missing"
if [ "$(id -u)" -eq 0 ]; then
    run=""
elif command -v sudo >/dev/null 2>&1; then
    run="sudo"
else
    echo "these Debian packages are missing and this user cannot install them:$missing" >&2
    exit 1
fi
$run apt-get update -qq
# shellcheck disable=SC2086 # the list is meant to be split
$run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
