#!/bin/sh
# Installs the Debian packages that ergon needs to build and test, when they are missing.
set -eu

packages="gcc cmake ninja-build pkg-config libjansson-dev libcyaml-dev libyaml-dev libsqlite3-dev
          libopenblas-dev liblapacke-dev libxgboost-dev libcmocka-dev"

missing=""
for package in $packages; do
    if ! dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then
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
