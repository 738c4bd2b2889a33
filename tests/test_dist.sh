#!/bin/sh
# `make dist`: a tarball of a clone has every tracked file, and its bytes repeat; files that are changed
# and not committed are refused.
# Usage: test_dist.sh SOURCE. Status 77: the source is no git checkout.
set -eu
LC_ALL=C
export LC_ALL
source=$(readlink -f "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git -C "$source" rev-parse HEAD >/dev/null 2>&1 || { echo "skipped: $source is no git checkout"; exit 77; }
git clone -q "$source" "$work/clone"
sh "$work/clone/scripts/dist.sh" "$work/one" >"$work/printed"
sh "$work/clone/scripts/dist.sh" "$work/two" >"$work/printed"
tarball=$(ls "$work/one")
cmp "$work/one/$tarball" "$work/two/$tarball"
name=${tarball%.tar.gz}
version=$(sed -n 's/^#define ERG_VERSION "\(.*\)"/\1/p' "$work/clone/include/ergon/ergon.h")
[ "$name" = "ergon-$version" ] || { echo "expected ergon-$version.tar.gz, got $tarball"; exit 1; }
tar -xzf "$work/one/$tarball" -C "$work"
(cd "$work/$name" && find . -type f -o -type l) | sed 's|^\./||' | sort >"$work/has"
git -C "$work/clone" ls-files | sort >"$work/tracked"
cmp "$work/has" "$work/tracked"

echo "# changed" >>"$work/clone/README.md"
if sh "$work/clone/scripts/dist.sh" "$work/three" >"$work/printed" 2>&1; then
    echo "a changed README.md was not refused"
    exit 1
fi
grep -q README.md "$work/printed"
