#!/bin/sh
# Checks that hold for the whole of src/: names that are there once, files that say what they are for,
# the prefix of external symbols, assertions, and that every function is reached from a command or a public
# header. Usage: test_house.sh SOURCE_DIR OBJECT_LIST
#
# test_house.txt has the violations of the day on which a check was written: KIND WHAT. It is to be
# emptied, never to grow; a line that is no longer true is named, so that it can go.
set -eu
LC_ALL=C
export LC_ALL
cd "$1"
objects=$2
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check KIND WHAT: standard input is what violates it now.
check() {
    sort -u >"$work/now"
    sed -n "s/^$1 //p" "$here/test_house.txt" | sort -u >"$work/known"
    comm -13 "$work/now" "$work/known" | sed "s|^|mended, no longer known: $1 |"
    comm -23 "$work/now" "$work/known" >"$work/new"
    if [ -s "$work/new" ]; then
        sed "s|^|$2: |" "$work/new"
        touch "$work/failed"
    fi
}

sources=$(find src -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)

for file in $sources; do basename "$file"; done | sort | uniq -d |
    check names "a base name of several files in src/"

# A definition is a tag with a brace; those in functions are indented. Of enums those of headers.
{
    sed -n 's/^\(typedef \|static \|const \)*struct \([a-z_0-9]*\) {.*/\2/p' $sources include/ergon/*.h
    sed -n 's/^ *enum \(erg_[a-z_0-9]*\) {.*/\1/p' $sources include/ergon/*.h
} | sort | uniq -d | check tags "a tag that is defined several times"

for file in $sources; do
    case $file in
    *.h | *.cuh) ;;
    *) head -n 2 "$file" | grep -q '^ *\(/\*\|\*\) *[^ */]' || echo "$file" ;;
    esac
done | check openings "does not open with a comment that says what it is for"

# The program's and the guardian's main are no symbols of the library.
xargs nm -g --defined-only <"$objects" |
    awk 'NF == 3 && $3 !~ /^(erg_|_Z|__)/ { print $3 }' |
    check symbols "an external symbol without the prefix erg_"

# Tests and fuzzers run with the assertions of src/: -DNDEBUG leaves none in the objects.
xargs nm <"$objects" | grep ' U __assert' >"$work/asserts" || {
    echo "the library is built with NDEBUG: its assertions are off"
    touch "$work/failed"
}

# 2 assertions of our own invariants per 1,000 lines of C, or more.
echo "$sources" | grep '\.c$' | xargs cat |
    awk '/^[ }]*assert\(|[ ;({]assert\(/ { asserts++ } END { exit !(asserts * 1000 < NR * 2); }' && {
    echo "src/ has fewer than 2 assertions per 1,000 lines of C"
    touch "$work/failed"
}

awk -f "$here/reached.awk" $sources include/ergon/*.h | check unreached \
    "a function that neither a command nor a public header reaches"

! [ -e "$work/failed" ]
