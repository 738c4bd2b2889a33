#!/bin/sh
# Manual pages of section 3: every function of the public headers has one, which has its name; groff,
# where it is, finds nothing wrong with them.
# Usage: test_man3.sh SOURCE_DIR
set -eu

source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$source/scripts/header-man.sh" "$source" "$work/man3" 1.2.3
cd "$work"
functions=$(sed -n 's/^function [^(]*[ *]\(erg_[a-z_0-9]*\)(.*/\1/p' "$source/tests/abi/abi.txt")
count=0
for function in $functions; do
    case $function in
    erg_version) continue ;; # of ergon.h, which has no page
    esac
    page=$(sed -n 's/^\.so //p' "man3/$function.3" || :)
    if [ -z "$page" ] || ! sed 's/\\//g' "$page" | grep -q "[ *]$function("; then
        echo "$function has no page, or is not on it"
        exit 1
    fi
    count=$((count + 1))
done
[ "$count" -gt 80 ] || { echo "only $count functions have pages"; exit 1; }
for page in man3/ergon_*.3; do
    grep -q '^\.SH DECLARATIONS' "$page" || { echo "$page is not whole"; exit 1; }
    if command -v groff >/dev/null && groff -man -ww -Tutf8 "$page" 2>&1 >/dev/null | grep .; then
        echo "which groff says of $page"
        exit 1
    fi
done
