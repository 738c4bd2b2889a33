#!/bin/sh
# An installed ergon: the library through pkg-config from C and C++, its exported symbols, and the
# program from another folder with nothing but its own installed data. The prefix is staged with
# DESTDIR and has a space in it.
# Usage: test_install.sh BUILD_FOLDER CMAKE
set -eu

build=$1
cmake=$2
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage="$work/a stage"
DESTDIR="$stage" "$cmake" --install "$build" --prefix /opt/ergon >"$work/log"
prefix="$stage/opt/ergon"

cd "$work"
cat >use.c <<'C'
#include <ergon/ergon.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    struct erg_frontier frontier;
    erg_frontier_init(&frontier);
    erg_frontier_add(&frontier, 2, 1, 0);
    erg_frontier_add(&frontier, 1, 2, 1);
    erg_frontier_add(&frontier, 2, 2, 2);
    erg_frontier_filter(&frontier);
    printf("%s %d\n", erg_version(), (int)frontier.count);
    erg_frontier_release(&frontier);
    return strcmp(erg_version(), ERG_VERSION) != 0;
}
C
cp use.c use.cc
# pkg-config quotes the space in the paths for the shell.
flags=$(PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --cflags --libs ergon)
version=$(PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --modversion ergon)
compile() {
    eval "$1 -Wall -Wextra -Wpedantic -Werror $2 -o use $flags"
    said=$(LD_LIBRARY_PATH="$prefix/lib" ./use)
    if [ "$said" != "$version 2" ]; then
        echo "$2 with $1 said \"$said\", expected \"$version 2\""
        exit 1
    fi
}
compile "${CC:-cc} -std=c17" use.c
if command -v c++ >/dev/null; then
    compile "c++ -std=c++17" use.cc
fi

# The examples of the public interface to telemetry, on the fake NVML of the tests.
printf 'gpus 2\ngpu * power 0=500\n' >gpus
export ERGON_NVML="$build/tests/fake_nvml.so" ERGON_FAKE_NVML=gpus
examples="$prefix/share/doc/ergon/examples"
# Two GPUs of 500 W for two seconds, longer on a busy machine, which also reads late: numbers are
# held against twice the uncertainty that is stated, and that against what would tell nothing.
measure() {
    LD_LIBRARY_PATH="$prefix/lib" "$@" >said
    sed 's/^ *//; s/^GPU [0-9]*: //; s/mean //; s/,//g' said | awk '
        function near(x, y, slack) { return x - y <= slack && y - x <= slack }
        NR == 1 { time = $1
                  good = $2 == "s" && $6 == "J" && time >= 2 && time < 60 && $5 > 0 && $5 < 0.2 * $3
                  good = good && near($3, 1000 * time, 2 * $5 + 0.1) }
        NR > 1 { good = good && $4 == "J" && $6 == "W" && near($1, 500 * time, 2 * $3 + 0.1)
                 good = good && near($5, $1 / time, 0.6) }
        END { exit !(good && NR == 3) }' && return
    echo "$* said:"
    cat said
    echo "expected some 2 s at twice 500 W, 1000 J each"
    exit 1
}
eval "${CC:-cc} -std=c17 -Wall -Wextra -Wpedantic -Werror \
    '$examples/c/telemetry.c' -o window $flags"
measure ./window
if command -v c++ >/dev/null; then
    eval "c++ -std=c++17 -Wall -Wextra -Werror -x c++ '$examples/c/telemetry.c' -x none -o window $flags"
    measure ./window
fi
if command -v python3 >/dev/null; then # which finds the library beside its folder
    measure env -u LD_LIBRARY_PATH PYTHONPATH="$prefix/lib/python3/dist-packages" \
        python3 -B "$examples/python/telemetry.py"
fi

# The example of the public interface to training: the loss falls, and a second call goes on.
cp -r "$examples/train/tiny.yaml" "$examples/train/tiny-llama" .
"$prefix/bin/ergon" tokenize bytes "$prefix"/share/doc/ergon/formats/*.md -o tokens >log
learn() {
    env -u ERGON_DATA LD_LIBRARY_PATH="$prefix/lib" ./loop tiny.yaml "$1" "$2" >said
    awk -v first="$3" -v last="$1" '
        $1 == "step" { good = (steps ? $2 == step + 1 : $2 == first) && $4 == last ":"
                       step = $2; steps++; loss = $6 + 0; start = steps == 1 ? loss : start }
        END { exit !(good && step == last && loss < start) }' said && return
    echo "loop tiny.yaml $1 $2 said:"
    cat said
    echo "expected steps from $3 to $1, with a lower loss"
    exit 1
}
eval "${CC:-cc} -std=c17 -Wall -Wextra -Wpedantic -Werror '$examples/c/train.c' -o loop $flags"
learn 6 looped 1
learn 12 looped 7
if command -v c++ >/dev/null; then
    eval "c++ -std=c++17 -Wall -Wextra -Werror -Wno-missing-field-initializers \
        -x c++ '$examples/c/train.c' -x none -o loop $flags"
    learn 3 looped-c++ 1
fi

# The example of hooks, from C and C++, and the program of the first hooks, built with the headers of
# that day and run with this library.
printf 'stage,instruction,frequency,time,energy\n%s\n%s\n%s\n%s\n' 0,forward,1410,0.010,4 \
    0,forward,1200,0.012,3 0,backward,1410,0.020,8 0,backward,1200,0.024,6 >profile.csv
"$prefix/bin/ergon" frontier profile.csv -m 4 -p 80 --plan hooked.json --quiet >log
follow() {
    LD_LIBRARY_PATH="$prefix/lib" "$@" >said &&
        awk '/^step [0-9]*: [0-9.]* s, planned [0-9.]* s, [0-9]* changes/ { steps++ }
             END { exit steps != 3 }' said && return
    echo "$* said:"
    cat said
    echo "expected three steps"
    exit 1
}
eval "${CC:-cc} -std=c17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Werror \
    '$examples/c/hook.c' -o hooked $flags"
follow ./hooked hooked.json 4 3
follow ./hooked hooked.json 4 3 observe
if LD_LIBRARY_PATH="$prefix/lib" ./hooked hooked.json 5 3 >said 2>&1 ||
    ! grep -q "the trainer runs 5 microbatches, the plan has 4" said; then
    echo "hooked with 5 microbatches said:"
    cat said
    exit 1
fi
if command -v c++ >/dev/null; then
    eval "c++ -std=c++17 -Wall -Wextra -Werror -x c++ '$examples/c/hook.c' -x none -o hooked $flags"
    follow ./hooked hooked.json 4 3
fi
# The same makes a profile: steps of nothing but sleep for so short a while that no clock is done.
if ! LD_LIBRARY_PATH="$prefix/lib" ./hooked made.csv 4 5 profile >said 2>&1 ||
    ! grep -q "no clock was tried long enough" said; then
    echo "hooked with a profile of 5 steps said:"
    cat said
    exit 1
fi
libraries=$(PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --libs ergon)
abi=$here/abi
eval "${CC:-cc} -std=c17 -Wall -Wextra -Werror -I'$abi/v1' '$abi/hook_v1.c' -o hook_v1 $libraries"
said=$(LD_LIBRARY_PATH="$prefix/lib" ./hook_v1 hooked.json)
if [ "$said" != "hooks of version 1: good" ]; then
    echo "hook_v1 said \"$said\", expected good hooks of version 1"
    exit 1
fi

# Only what the public headers declare.
for symbol in $(nm -D --defined-only "$prefix/lib/libergon.so" | awk '{print $3}'); do
    if ! grep -qw "$symbol" "$prefix"/include/ergon/*.h; then
        echo "libergon.so exports $symbol, which no public header declares"
        exit 1
    fi
done

# The program that unlocks clocks is where library and program look for it.
[ -x "$prefix/libexec/ergon/ergon-guardian" ] || { echo "ergon-guardian is missing"; exit 1; }

# A model that only the installed data folder has.
mv "$prefix/share/ergon/models/llama-3.2-3b" "$prefix/share/ergon/models/only-here"
sed 's/^model:.*/model: only-here/' "$prefix/share/doc/ergon/examples/quickstart.yaml" >job.yaml
env -u ERGON_DATA "$prefix/bin/ergon" optimize --quiet job.yaml -o out >log
for file in plan.json report.html trace.json profile.csv measurements.csv profile.db; do
    [ -s "out/$file" ] || { echo "ergon optimize left no $file"; exit 1; }
done

for file in bash-completion/completions/ergon zsh/site-functions/_ergon \
    fish/vendor_completions.d/ergon.fish man/man1/ergon-optimize.1 man/man3/ergon_plan.3 \
    man/man3/erg_plan_open.3 doc/ergon/LICENSE doc/ergon/formats/plan.md doc/ergon/methods/layout.md; do
    [ -s "$prefix/share/$file" ] || { echo "share/$file is missing"; exit 1; }
done
