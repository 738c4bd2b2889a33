#!/bin/sh
# Checks that are not tests. Usage: gates.sh [STAGE...] (default: format, shell and man, which take a minute)
#
#   format   every C file as clang-format writes it
#   shell    shellcheck on every script
#   man      mandoc's lint on every manual page, also on those that are made from the headers
#   cppcheck every C file of src/ except those for CUDA
#   clang    a build with clang, research included; warnings are errors
#   cuda     a build with the CUDA device; warnings are errors
#   tidy     clang-tidy on the same files: those that differ from $GATES_BASE (default: main), or all if
#            none differs
#   asan     the test suite under the address and undefined-behaviour sanitizers
#   tsan     the tests of code that starts threads under the thread sanitizer
#   fuzz     a build with clang, and each fuzz target for $GATES_FUZZ_S seconds (default: 20)
#
# A stage whose program is missing is reported as skipped, with the reason. The exit status is 1 if a
# stage failed, 77 if all were skipped, and 0 otherwise.
set -u
cd "$(dirname "$0")/.." || exit 1
[ $# -gt 0 ] || set -- format shell man
cores=$(nproc)
failed="" passed=""

needs() {
    for program; do
        command -v "$program" >/dev/null 2>&1 || {
            reason="$program is not installed"
            return 1
        }
    done
}

# configure NAME ARGUMENT...: configures a build with cmake. Its output is in build/NAME.log, and shown if it fails.
configure() {
    log=build/$1.log
    echo "configures build/$1, log in $log"
    shift
    cmake "$@" >"$log" 2>&1 || {
        cat "$log"
        return 1
    }
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
    sh scripts/header-man.sh . build/man3 lint
    mandoc -T lint -W warning man/*.1 build/man3/ergon_*.3
}

# Variables filled by a function that a condition selects look uninitialised to cppcheck, and so does an
# error that stands in for a missing one; gcc checks these.
stage_cppcheck() {
    needs cppcheck || return 77
    sources src | grep '\.c$' | grep -v /cuda/ |
        xargs cppcheck -q -j "$cores" --std=c11 --inline-suppr --error-exitcode=1 -Isrc -Iinclude \
            --suppress=missingIncludeSystem --suppress=preprocessorErrorDirective \
            --suppress=uninitvar:src/layout/time/*time.c --suppress=uninitvar:src/train/run/session*.c \
            --suppress=uninitvar:src/characterize/emulate_passes.c \
            --suppress=uninitvar:src/layout/energy/pass_work.c --include=scripts/cppcheck_jansson.h
}

stage_clang() {
    needs clang cmake ninja || return 77
    configure clang -S . -B build/clang -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang -DERGON_CUDA=OFF &&
        cmake --build build/clang --target all research
}

stage_cuda() {
    PATH=$PATH:${CUDA_HOME-/usr/local/cuda}/bin needs nvcc cmake ninja || return 77
    configure cuda -S . -B build/cuda -G Ninja -DCMAKE_BUILD_TYPE=Release -DERGON_CUDA=ON || {
        reason=$(sed -n 's/.*but there is no \([^ ]*\).*/\1 is not installed/p' build/cuda.log)
        [ -z "$reason" ] || return 77
        return 1
    }
    cmake --build build/cuda
}

stage_tidy() {
    needs clang-tidy cmake || return 77
    configure tidy -S . -B build/tidy -G Ninja -DCMAKE_BUILD_TYPE=Debug -DERGON_CUDA=OFF \
        -DCMAKE_EXPORT_COMPILE_COMMANDS=ON || return 1
    base=${GATES_BASE-main}
    git diff --name-only --diff-filter=d "$base" -- src 2>/dev/null | grep '\.c$' | grep -v /cuda/ >build/tidy.list
    [ -s build/tidy.list ] || sources src | grep '\.c$' | grep -v /cuda/ >build/tidy.list
    # The build's options are gcc's, of which clang lacks some. base/error.c defines what tidy_errors.h
    # replaces.
    grep -v '/base/error\.c$' build/tidy.list | xargs -P "$cores" -n 8 \
        clang-tidy -p build/tidy --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option \
        --extra-arg=-include --extra-arg="$PWD/scripts/tidy_errors.h" --extra-arg=-Wno-unused-value
}

stage_asan() {
    make PRESET=asan check
}

# Tests of what starts threads, or is called by several.
threaded='base|call|io_store|.*(daemon|clock|lease|sampler|record|serve|zeusd|hook|schedule_page|peers|launch).*'
threaded="$threaded|rank_meter|window|rapl|observe_.*|gpu_sensors|cupti|checkpoint|host_streams|optimize|sweep|study"
threaded="$threaded|train_(layouts|kernels|log|faults)|plan_server|tune|cmd_(doctor|measure|monitor)"

stage_tsan() {
    needs cmake ninja || return 77
    tests=$(find tests -name 'test_*.c' | sed 's|.*/||; s|\.c$||' | grep -Ex "test_($threaded)")
    # shellcheck disable=SC2086 # the list is meant to be split
    configure tsan --preset tsan && cmake --build --preset tsan --target $tests &&
        ctest --preset tsan --parallel $((2 * cores)) -R "^test_($threaded)\$"
}

# One target; what it says is in build/corpus/NAME.log.
fuzz() {
    name=${1##*/}
    mkdir -p "build/corpus/$name"
    set -- "$1" "build/corpus/$name"
    [ ! -d "tests/fuzz/corpus/$name" ] || set -- "$@" "tests/fuzz/corpus/$name"
    program=$1
    shift
    "$program" -max_total_time="${GATES_FUZZ_S-20}" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="build/corpus/$name-" "$@" >"build/corpus/$name.log" 2>&1 || {
        echo "$name failed: build/corpus/$name.log"
        touch build/corpus/failed
    }
}

# As many at a time as there are cores.
stage_fuzz() {
    needs clang cmake ninja || return 77
    configure fuzz --preset fuzz && cmake --build --preset fuzz --target fuzzers || return 1
    mkdir -p build/corpus
    rm -f build/corpus/failed
    running=0
    for target in build/fuzz/tests/fuzz/fuzz_*; do
        if [ ! -x "$target" ] || [ -d "$target" ]; then continue; fi
        fuzz "$target" &
        running=$((running + 1))
        [ $((running % cores)) -ne 0 ] || wait
    done
    wait
    echo "$running targets"
    [ "$running" -gt 0 ] && [ ! -e build/corpus/failed ]
}

mkdir -p build
for stage; do
    case $stage in
    format | shell | man | cppcheck | clang | cuda | tidy | asan | tsan | fuzz) ;;
    *)
        echo "gates.sh: unknown stage '$stage', expected one of the list at the top of this file" >&2
        exit 2
        ;;
    esac
    reason=""
    "stage_$stage"
    case $? in
    0)
        echo "gate $stage: passed"
        passed="$passed $stage"
        ;;
    77) echo "gate $stage: skipped, $reason" ;;
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
[ -n "$passed" ] || exit 77
