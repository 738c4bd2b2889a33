#!/bin/sh
# Checks that are not tests. Usage: gates.sh [STAGE...] (default: the quick ones, which take a minute)
#
#   format   every C file as clang-format writes it
#   shell    shellcheck on every script
#   man      mandoc's lint on every manual page
#   cppcheck every source of the library and the command
#   clang    a build with clang, warnings are errors
#   tidy     clang-tidy on the sources that differ from $GATES_BASE (default: main), or on all
#   asan     the test suite under the address and undefined-behaviour sanitizers
#   tsan     the tests of rooms with threads under the thread sanitizer
#   fuzz     each fuzz target for $GATES_FUZZ_S seconds (default: 20)
#
# A stage whose program is missing is reported as skipped, with the reason. The exit status is 0 if no
# stage failed.
set -u
cd "$(dirname "$0")/.." || exit 1
[ $# -gt 0 ] || set -- format shell man
cores=$(nproc)
failed="" skipped=""

needs() {
    for program; do
        command -v "$program" >/dev/null 2>&1 || {
            reason="$program is not installed"
            return 1
        }
    done
}

sources() {
    git ls-files -- "$@" 2>/dev/null || find "$@" -type f
}

stage_format() {
    needs clang-format || return 77
    sources src include tests bench examples research | grep '\.[ch]$' |
        xargs clang-format --dry-run --Werror
}

stage_shell() {
    needs shellcheck || return 77
    sources scripts tests examples .ci | grep -e '\.sh$' -e '^\.ci/run$' | xargs shellcheck -S warning
}

stage_man() {
    needs mandoc || return 77
    mandoc -T lint -W warning man/*.1
}

# Variables filled by a function that a condition selects look uninitialised to cppcheck, and so does an
# error that stands in for a missing one; gcc checks these.
stage_cppcheck() {
    needs cppcheck || return 77
    sources src | grep '\.c$' | grep -v /cuda/ |
        xargs cppcheck -q -j "$cores" --std=c11 --inline-suppr --error-exitcode=1 -Isrc -Iinclude \
            --suppress=missingIncludeSystem --suppress=preprocessorErrorDirective \
            --suppress=uninitvar:src/layout/time/*time.c --suppress=uninitvar:src/train/run/session*.c \
            --suppress=uninitvar:src/characterize/emulate_passes.c --include=scripts/cppcheck_jansson.h
}

stage_clang() {
    needs clang cmake ninja || return 77
    cmake -S . -B build/clang -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang \
        -DERGON_CUDA=OFF >build/clang.log 2>&1 || {
        cat build/clang.log
        return 1
    }
    cmake --build build/clang
}

stage_tidy() {
    needs clang-tidy cmake || return 77
    cmake -S . -B build/tidy -G Ninja -DCMAKE_BUILD_TYPE=Debug -DERGON_CUDA=OFF \
        -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >build/tidy.log 2>&1 || return 1
    base=${GATES_BASE-main}
    { git diff --name-only "$base" -- src 2>/dev/null || sources src; } | grep '\.c$' >build/tidy.list
    [ -s build/tidy.list ] || sources src | grep '\.c$' | grep -v /cuda/ >build/tidy.list
    xargs -P "$cores" -n 8 clang-tidy -p build/tidy --quiet --warnings-as-errors='*' <build/tidy.list
}

stage_asan() {
    make PRESET=asan check
}

stage_tsan() {
    make PRESET=tsan all &&
        ctest --preset tsan --parallel $((2 * cores)) \
            -R 'thread|sampler|recording|daemon|serve|schedule_page|zeusd|hook|backend|train_layouts'
}

stage_fuzz() {
    needs clang cmake ninja || return 77
    cmake --preset fuzz >build/fuzz.log 2>&1 && cmake --build --preset fuzz || return 1
    bad=0
    for target in build/fuzz/tests/fuzz/fuzz_*; do
        if [ ! -x "$target" ] || [ -d "$target" ]; then continue; fi
        name=${target##*/}
        mkdir -p "build/corpus/$name"
        set -- "build/corpus/$name"
        [ ! -d "tests/fuzz/corpus/$name" ] || set -- "$@" "tests/fuzz/corpus/$name"
        "$target" -max_total_time="${GATES_FUZZ_S-20}" -timeout=10 -rss_limit_mb=2048 \
            -artifact_prefix="build/corpus/$name-" "$@" >"build/corpus/$name.log" 2>&1 || {
            echo "$name failed: build/corpus/$name.log"
            bad=1
        }
    done
    return $bad
}

mkdir -p build
for stage; do
    case $stage in
    format | shell | man | cppcheck | clang | tidy | asan | tsan | fuzz) ;;
    *)
        echo "gates.sh: unknown stage '$stage', expected one of the list at the top of this file" >&2
        exit 2
        ;;
    esac
    reason=""
    "stage_$stage"
    case $? in
    0) echo "gate $stage: passed" ;;
    77)
        echo "gate $stage: skipped, $reason"
        skipped="$skipped $stage"
        ;;
    *)
        echo "gate $stage: FAILED"
        failed="$failed $stage"
        ;;
    esac
done
[ -z "$failed" ] || {
    echo "gates that failed:$failed" >&2
    exit 1
}
