#!/bin/sh
# Every command has a manual page, and the page mentions each of the command's options.
# Usage: test_man.sh ERGON MAN_FOLDER
set -eu

ergon=$1
man=$2
failed=0

commands=$("$ergon" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -vx help)
common='^(json|seed|quiet|verbose|help)$' # described in ergon(1)
for command in $commands; do
    page=$man/ergon-$command.1
    if [ ! -f "$page" ]; then
        echo "the command $command has no manual page $page"
        failed=1
        continue
    fi
    words=$(sed 's/\\//g' "$page")
    for option in $("$ergon" "$command" --help | sed -n 's/^  [ -][^ ]* *--\([a-z0-9-]*\).*/\1/p' |
        grep -Evx "$common"); do
        if ! printf '%s\n' "$words" | grep -q -e "--$option\b"; then
            echo "$page does not mention --$option"
            failed=1
        fi
    done
done
exit $failed
