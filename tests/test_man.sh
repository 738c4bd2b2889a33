#!/bin/sh
# Every command has a manual page, whose options are those of its help (scripts/man-options.sh), which is
# short, and which mentions no option that no command has, no document that is not there, and the
# version of the program. mandoc, where it is, finds nothing wrong with it.
# Usage: test_man.sh ERGON MAN_FOLDER
set -eu

ergon=$1
man=$2
failed=0

commands=$("$ergon" help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' | grep -vx help)
common='^(json|seed|quiet|verbose|help)$' # described in ergon(1)
options_of() {
    "$ergon" "$1" --help | sed -n 's/^  [ -][^ ]* *--\([a-z0-9-]*\).*/\1/p'
}
known=$(for command in $commands; do options_of "$command"; done)
for command in $commands; do
    page=$man/ergon-$command.1
    if [ ! -f "$page" ]; then
        echo "the command $command has no manual page $page"
        failed=1
        continue
    fi
    words=$(sed 's/\\f[BIR]//g; s/\\//g' "$page")
    for option in $(options_of "$command" | grep -Evx "$common"); do
        if ! printf '%s\n' "$words" | grep -q -e "--$option\b"; then
            echo "$page does not mention --$option"
            failed=1
        fi
    done
    for option in $(printf '%s\n' "$words" | sed '/^\.SH EXAMPLES/,/^\.SH SEE/d' |
        grep -oE -e '(^|[^a-z0-9-])--[a-z][a-z0-9-]*' | sed 's/^[^-]*--//'); do
        if ! printf '%s\n' "$known" | grep -qx -e "$option"; then
            echo "$page mentions --$option, which no command has"
            failed=1
        fi
    done
done

sh "$(dirname "$0")/../scripts/man-options.sh" "$ergon" --check "$man" || failed=1

version=$("$ergon" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -1)
for page in "$man"/*.1; do
    count=$(wc -w <"$page")
    if [ "$count" -ge 1200 ]; then
        echo "$page has $count words, expected fewer than 1200: formats go to docs/formats, methods to docs/methods"
        failed=1
    fi
    if ! head -1 "$page" | grep -qF "\"ergon $version\""; then
        echo "$page: expected \"ergon $version\" in its first line"
        failed=1
    fi
    for document in $(sed 's/\\f[BIR]/ /g; s/\\//g' "$page" | grep -oE 'docs/[a-z-]+/[A-Za-z-]+\.md'); do
        if [ ! -e "$man/../$document" ]; then
            echo "$page: $document is not there"
            failed=1
        fi
    done
    if command -v mandoc >/dev/null && mandoc -T lint -W warning "$page" | grep .; then
        failed=1
    fi
done
exit $failed
