#!/bin/sh
# Every command has a manual page, the page mentions each of the command's options, and outside of its
# examples no option that no command has.
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
    words=$(sed 's/\\//g' "$page")
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
exit $failed
