#!/bin/sh
# Pages of decisions have their form and length, the index names each of them, and the files that they
# name exist.
# Usage: test_decisions.sh SOURCE_DIR
set -eu
LC_ALL=C
export LC_ALL
cd "$1"

said=$({
    pages=docs/decisions/README.md
    number=0
    for page in docs/decisions/[0-9]*.md; do
        expected=$(printf %04d $((number + 1)))
        name=${page##*/}
        [ "${name%%-*}" = "$expected" ] || echo "$page: expected number $expected"
        number=$((1${name%%-*} - 10000)) # further ones follow this one
        grep -qF "]($name)" $pages || echo "$pages does not name $name"
    done
    awk 'function check_length() {
             if (lines > most) print page ": " lines " lines, expected at most " most
             if (page ~ /[0-9]-/ && seen != "ContextDecisionEvidenceStatus")
                 print page ": expected the sections Context, Decision, Evidence and Status"
         }
         FNR == 1 { check_length(); page = FILENAME; seen = ""; most = page ~ /[0-9]-/ ? 40 : 60
                    number = substr(page, length("docs/decisions/") + 1, 4)
                    if (page ~ /[0-9]-/ && $1 " " $2 != "# " number)
                        print page ": expected a title that begins with # " number }
         { lines = FNR; text = $0; gsub(/[\200-\277]/, "", text) }
         length(text) > 100 { print page ":" FNR ": longer than 100 characters" }
         /^\*\*[A-Z][a-z]*\*\*$/ { gsub(/\*/, "", text); seen = seen text }
         END { check_length() }' docs/decisions/*.md
    # Files between backticks, of src/ or of the top folder.
    # shellcheck disable=SC2016
    grep -oE '`[a-z0-9_]+/[a-zA-Z0-9_./-]+\.(c|h|cu|cuh|sh|py|md|yaml|txt)`' docs/decisions/[0-9]*.md |
        tr -d '`' | while IFS=: read -r page file; do
        [ -e "$file" ] || [ -e "src/$file" ] || echo "$page names $file, which is not there"
    done
} 2>&1)
[ -z "$said" ] || {
    echo "$said"
    exit 1
}
