#!/bin/sh
# The pages of docs/formats/ are true: their examples run, they name every key that a file's reader
# accepts, and every key of the documents that their examples print.
# Usage: test_formats.sh SOURCE ERGON
#
#   ```yaml NAME       the block is written to the file NAME
#   ```sh              the block is run, after the blocks above it
#   <!-- schema N FILE -->    every key in FILE is on the page: those in CYAML_FIELD_...("key" and the
#                             first N names of X(...)
#   <!-- with PAGE -->        ... or on that page
#   <!-- names PATTERN FILE -->   every match of the pattern in FILE is on the page
#   <!-- keys FILE... -->     every key of these JSON documents, or documents a line, is on the page
set -eu
LC_ALL=C.UTF-8
export LC_ALL
source=$(readlink -f "$1")
ergon=$(readlink -f "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$ergon" "$work/bin/ergon"
PATH=$work/bin:$PATH
export PATH
fail() {
    echo "$1"
    touch "$work/failed"
}

# named PAGE WHAT [prefix]: standard input are keys; those that the page does not have as a word (or as
# the beginning of one) fail.
named() {
    sort -u >keys
    cat "$1" "$also" | awk -v prefix="${3:-}" '
        FILENAME == "keys" { keys[$0] = 1; next }
        {
            count = split($0, words, /[^a-zA-Z_0-9+]+/)
            for (i = 1; i <= count; i++) {
                delete keys[words[i]]
                if (prefix)
                    for (key in keys)
                        if (index(words[i], key) == 1)
                            delete keys[key]
            }
        }
        END { for (key in keys) print key }' keys - >missing
    while read -r key; do
        fail "${1#"$source/"}: the key $key of $2 is not described"
    done <missing
}

for page in "$source"/docs/formats/*.md; do
    name=$(basename "$page" .md)
    mkdir "$work/$name"
    cd "$work/$name"
    cp -r "$source/examples" "$source/README.md" .
    awk '
        /^```$/ && inside { inside = 0; next }
        /^```(yaml|csv|json) [^ ]+$/ { inside = 1; out = $2; next }
        /^```sh$/ { inside = 1; out = "commands"; print "# " FILENAME ", line " NR >>out; next }
        /^```/ { inside = 1; out = ""; next }
        inside && out != "" { print >>out }' "$page"
    also=$(sed -n "s|^<!-- with \(.*\) -->\$|$source/docs/formats/\1|p" "$page")
    also=${also:-/dev/null}
    if [ -e commands ]; then
        status=0
        sh -eu commands >printed 2>&1 || status=$?
        [ "$status" = 0 ] || fail "docs/formats/$name.md: an example ended with status $status: $(tail -3 printed)"
    else
        fail "docs/formats/$name.md has no example that runs"
    fi
    sed -n 's/^<!-- schema \([0-9]\) \(.*\) -->$/\1 \2/p' "$page" >schemas
    while read -r count file; do
        grep -v '^#define' "$source/$file" | grep -oE "CYAML_FIELD_[A-Z_]+\(\"[a-z_0-9]+\"" | sed 's/.*"\(.*\)"/\1/' |
            named "$page" "$file"
        grep -oE "^(#define [A-Z_]+\(X\))? +X\([a-z_0-9]+(, [a-z_0-9]+)?" "$source/$file" | sed 's/.* X(//; s/^ *X(//' |
            cut -d, -f "1-$count" | tr -d ' ' | tr ',' '\n' | named "$page" "$file"
    done <schemas
    sed -n 's/^<!-- names \([^ ]*\) \(.*\) -->$/\1 \2/p' "$page" >patterns
    while read -r pattern file; do
        grep -ohE -e "$pattern" "$source/$file" | tr -d '"' | named "$page" "$file" prefix
    done <patterns
    for file in $(sed -n 's/^<!-- keys \(.*\) -->$/\1/p' "$page"); do
        [ -s "$file" ] || fail "docs/formats/$name.md: no example writes $file"
        grep -oE '"[^"\\]+" *:' "$file" | sed 's/^"\(.*\)" *:/\1/' | named "$page" "$file"
    done
done
[ ! -e "$work/failed" ]
