#!/bin/sh
# What programs are compiled and linked against, compared with abi/abi.txt: functions, which are the
# symbols of the library, constants, sizes and offsets of the public headers, experimental parts
# included.
# A line that goes or changes breaks programs; a new one has to be added there, by
#   sh tests/test_abi.sh LIBRARY --update
# Usage: test_abi.sh LIBRARY [--update]
set -eu
LC_ALL=C
export LC_ALL

library=$1
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $(uname -m) in
x86_64 | aarch64) ;; # the same sizes and offsets
*)
    echo "skipped: abi.txt is of machines with 64 bits whose sizes are those of x86-64"
    exit 77
    ;;
esac

cat "$here"/../include/ergon/*.h | awk -f "$here/abi/dump.awk" >"$work/dump.c"
${CC:-cc} -std=c17 -I"$here/../include" "$work/dump.c" -o "$work/dump"
"$work/dump" | sort -u >"$work/now"
if [ "${2-}" = --update ]; then
    cp "$work/now" "$here/abi/abi.txt"
    exit 0
fi

# Every function of a header is a symbol, and nothing else is one.
sed -n 's/^function [^(]*[ *]\(erg_[a-z_0-9]*\)(.*/\1/p' "$work/now" | sort >"$work/functions"
nm -D --defined-only "$library" | awk '$2 ~ /[TDBR]/ { print $3 }' | sort >"$work/symbols"
if ! diff "$work/functions" "$work/symbols" >"$work/unlike"; then
    echo "functions of headers (<) and symbols of $library (>) differ:"
    cat "$work/unlike"
    exit 1
fi
if ! diff "$here/abi/abi.txt" "$work/now" >"$work/changes"; then
    echo "what programs are compiled against has changed (< before, > now):"
    cat "$work/changes"
    exit 1
fi
