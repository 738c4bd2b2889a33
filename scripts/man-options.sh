#!/bin/sh
# The OPTIONS section of manual pages, made from each command's own --help.
# Usage: man-options.sh ERGON COMMAND          prints the section
#        man-options.sh ERGON --write [MAN]    rewrites the sections of the pages in MAN
#        man-options.sh ERGON --check [MAN]    fails if a page has another section
# The section is between the lines  .\" options begin  and  .\" options end  of a page.
set -eu
LC_ALL=C.UTF-8
export LC_ALL

section() {
    "$1" "$2" --help | awk '
        function troff(text) {
            gsub(/\\/, "\\e", text)
            gsub(/…/, "...", text)
            gsub(/-/, "\\-", text)
            gsub(/"/, "\\(dq", text)
            return text
        }
        function flush_option(    value_font) {
            if (names == "")
                return
            value_font = value ~ /^[a-z0-9_|]+$/ ? "\\fB" : "\\fI"
            print ".TP"
            options++
            if (value == "")
                print ".B \"" troff(names) "\""
            else
                print ".B \"" troff(names) gap value_font troff(value) "\\fR\""
            text = troff(text)
            if (text ~ /^[.\047]/)
                text = "\\&" text
            print toupper(substr(text, 1, 1)) substr(text, 2) (text ~ /[.)]$/ ? "" : ".")
            names = value = text = ""
        }
        BEGIN { print ".SH OPTIONS" }
        /^Options:/ { part = "own"; next }
        /^Common options:/ { flush_option(); part = "common"; next }
        /^[A-Z].*:$/ { flush_option(); part = "" }
        part == "common" && match($0, /--[a-z-]+/) { common[++commons] = substr($0, RSTART, RLENGTH) }
        part != "own" { next }
        /^  (-.,|   ) --/ {
            flush_option()
            rest = $0
            sub(/^ +/, "", rest)
            if (match(rest, /  +/)) {
                text = substr(rest, RSTART + RLENGTH)
                rest = substr(rest, 1, RSTART - 1)
            }
            match(rest, /--[a-z0-9-]+/)
            names = substr(rest, 1, RSTART + RLENGTH - 1)
            value = substr(rest, RSTART + RLENGTH)
            gap = value ~ /^ / ? " " : ""
            sub(/^ /, "", value)
            next
        }
        NF { sub(/^ +/, ""); text = text (text == "" ? "" : " ") $0 }
        END {
            flush_option()
            if (options)
                print ".PP"
            for (i = 1; i <= commons; i++)
                list = list (i == 1 ? "" : i == commons ? " and " : ", ") "\\fB" troff(common[i]) "\\fR"
            print list ":\nsee\n.BR ergon (1)."
        }'
}

ergon=$(readlink -f "$1")
case $2 in
--write | --check) ;;
*)
    section "$ergon" "$2"
    exit 0
    ;;
esac
cd "${3:-$(dirname "$0")/../man}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for page in ergon-*.1; do
    command=${page#ergon-}
    command=${command%.1}
    if ! grep -q '^\.\\" options begin' "$page" || ! grep -q '^\.\\" options end' "$page"; then
        echo "man/$page: expected the lines '.\\\" options begin' and '.\\\" options end', found none"
        failed=1
        continue
    fi
    section "$ergon" "$command" >"$work/section"
    awk -v section="$work/section" '
        /^\.\\" options end/ { skip = 0 }
        !skip { print }
        /^\.\\" options begin/ { skip = 1; while ((getline line <section) > 0) print line }' \
        "$page" >"$work/page"
    if ! cmp -s "$page" "$work/page"; then
        if [ "$2" = --write ]; then
            cp "$work/page" "$page"
        else
            echo "man/$page differs from ergon $command --help:" \
                "run scripts/man-options.sh build/release/ergon --write"
            failed=1
        fi
    fi
done
exit $failed
