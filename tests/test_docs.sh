#!/bin/sh
# Documents keep their promises: links lead somewhere, pages keep their length, no banned turn of
# phrase comes back, and the README's commands print what it shows. Usage: test_docs.sh SOURCE ERGON
set -eu
LC_ALL=C.UTF-8
export LC_ALL
source=$1
ergon=$(readlink -f "$2")
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"
fail() {
    echo "$1"
    touch "$work/failed"
}

# ---- links: [text](path) and [text](path#heading) of files of the source ----
find . -name '*.md' -not -path './build/*' -not -path './.git/*' >"$work/pages"
while read -r page; do
    sed '/^```/,/^```/d' "$page" | grep -oE '\]\([^)]+\)' | sed 's/^](//; s/)$//; s/#.*//' |
        while read -r to; do
            case $to in '' | http:* | https:* | mailto:*) continue ;; esac
            [ -e "$(dirname "$page")/$to" ] || fail "$page: the link $to leads nowhere"
        done
done <"$work/pages"

# ---- lengths ----
words() {
    [ "$(wc -w <"$1")" -lt "$2" ] || fail "$1 has $(wc -w <"$1") words, expected fewer than $2"
}
words README.md 1000

# ---- turns: test_docs.txt has, for each area, how many lines may still have them ----
# Options of manual pages are the commands' help: an area of their own.
mkdir "$work/man" "$work/help"
for page in man/*.1; do
    sed '/^\.\\" options begin/,/^\.\\" options end/d' "$page" >"$work/man/${page#man/}"
    sed -n '/^\.\\" options begin/,/^\.\\" options end/p' "$page" >"$work/help/${page#man/}"
done
readmes=$(find data examples -name README.md)
while read -r area known pattern; do
    # shellcheck disable=SC2046,SC2086 # lists of names without blanks
    case $area in
    '' | '#'*) continue ;;
    plain) set -- README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs/architecture.md docs/results.md docs/guide docs/decisions \
        docs/formats docs/methods docs/reference $readmes "$work/man" ;;
    headers) set -- include/ergon ;;
    help) set -- "$work/help" ;;
    rooms) set -- src/cli src/serve src/characterize src/thermal src/cluster src/report/text ;;
    more) set -- src/telemetry src/trace src/hooks src/daemon src/observe src/layout src/train src/device src/report/page ;;
    *) set -- "$area" ;;
    esac
    now=$(grep -rhE -- "$pattern" "$@" 2>/dev/null | wc -l)
    if [ "$now" -gt "$known" ]; then
        fail "$area: $now lines have \"$pattern\", expected at most $known (docs/style.md)"
        grep -rnE -- "$pattern" "$@" | tail -3
    elif [ "$now" -lt "$known" ]; then
        echo "$area: only $now lines have \"$pattern\": lower the number in tests/test_docs.txt"
    fi
done <"$here/test_docs.txt"

# ---- the README: every "$ ergon" runs, and prints the lines shown, in that order ----
mkdir "$work/run"
cp -r examples README.md docs "$work/run"
cd "$work/run"
mkdir bin
ln -s "$ergon" bin/ergon
PATH=$work/run/bin:$PATH
export PATH
awk -v to="$work/" '
    /^```/ { inside = !inside; next }
    !inside { next }
    /^\$ ergon / { file = sprintf("%scommand-%02d", to, ++count); print substr($0, 3) >file; more = /\\$/; next }
    more { print >file; more = /\\$/; next }
    count && !/^\$/ { print >(file ".shown") }' README.md
for command in "$work"/command-??; do
    [ -e "$command" ] || fail "README.md has no command"
    case $(cat "$command") in
    *'ergon train '*) # as shown it takes a minute
        sed -i '$ s/$/ --steps 3/' "$command"
        rm -f "$command.shown"
        ;;
    esac
    sh "$command" >"$work/printed" 2>&1 || fail "README.md: $(cat "$command"): status $?: $(tail -3 "$work/printed")"
    [ ! -e "$command.shown" ] || awk '
        { sub(/ +$/, "") }
        NR == FNR { shown[++want] = $0; next }
        have < want && $0 == shown[have + 1] { have++ }
        END { if (have < want) { print "not printed: " shown[have + 1]; exit 1 } }' \
        "$command.shown" "$work/printed" || fail "README.md: $(cat "$command")"
done
[ "$(ls "$work"/command-?? | wc -l)" -ge 6 ] || fail "README.md: fewer than six commands were found"
[ ! -e "$work/failed" ]
