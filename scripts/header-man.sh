#!/bin/sh
# Manual pages of section 3, made from the public headers: one for each header, and for each function a
# page that refers to it. Usage: header-man.sh SOURCE_DIR FOLDER VERSION
set -eu

source=$1
folder=$2
version=$3
# Pages of both sections have one date.
date=$(awk '$1 == ".TH" { print $4; exit }' "$source/man/ergon.1")
rm -rf "$folder"
mkdir -p "$folder"
for path in "$source"/include/ergon/*.h; do
    header=$(basename "$path" .h)
    case $header in
    ergon | passes) continue ;; # which only include others, or name two numbers
    esac
    page=$folder/ergon_$header.3
    example=0
    [ ! -e "$source/examples/c/$header.c" ] || example=1
    awk -v header="$header" -v version="$version" -v date="$date" -v example=$example \
        -f "$source/scripts/header-man.awk" "$path" >"$page"
    sed -n '/^\.SH NAME/{n;p;}' "$page" | sed 's/ \\- .*//; s/,//g' | tr ' ' '\n' |
        grep '^erg_' | while read -r function; do
        echo ".so man3/ergon_$header.3" >"$folder/$function.3"
    done || :
done
