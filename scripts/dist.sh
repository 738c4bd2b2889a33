#!/bin/sh
# A tarball of the source as it is committed: equal bytes for equal commits. Usage: dist.sh FOLDER
# It is FOLDER/ergon-VERSION.tar.gz, by git archive, with the time of the commit on every file.
set -eu
mkdir -p "$1"
folder=$(readlink -f "$1")
cd "$(dirname "$0")/.."
git rev-parse --git-dir >/dev/null 2>&1 || {
    echo "dist.sh: $(pwd) is not a git checkout, which is needed to list the files of the source"
    exit 1
}
changed=$(git status --porcelain --untracked-files=no)
[ -z "$changed" ] || {
    echo "dist.sh: commit or stash these files first, since the tarball contains only committed ones:"
    echo "$changed"
    exit 1
}
version=$(sed -n 's/^#define ERG_VERSION "\(.*\)"/\1/p' include/ergon/ergon.h)
out=$folder/ergon-$version.tar.gz
git archive --format=tar --prefix="ergon-$version/" HEAD | gzip -9 -n >"$out.part"
mv "$out.part" "$out"
sha256sum "$out"
