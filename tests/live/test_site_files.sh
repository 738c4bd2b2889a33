#!/usr/bin/env bash
# The files of examples/live on a Slurm of their own: what job_submit.lua does to jobs of ergon and to
# those who change them, and which board limits prolog and epilog set and take back. Exits with 77
# where Slurm is not installed. Usage: test_site_files.sh SOURCE_DIR
set -u
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
source_dir=$1 site=${site-}

if [ "${2-}" != inside ]; then
    for name in munged slurmctld slurmd scontrol; do
        command -v "$name" >/dev/null || {
            echo "skipped: $name is not installed"
            exit 77
        }
    done
    work=$(mktemp -d) || exit 1
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/bin" "$work/.limits"
    chmod -R go+rX "$work"
    cat >"$work/bin/nvidia-smi" <<END
#!/bin/sh
echo "\$*" >>$work/asked
case "\$*" in *--query-gpu*) printf '0, 400.00\n1, 400.00\n' ;; esac
END
    for each in prolog epilog; do
        printf '#!/bin/sh\nPATH=%s:/usr/bin:/bin ERGON_SPOOL=%s exec %s\n' "$work/bin" "$work" \
            "$source_dir/examples/live/$each.sh" >"$work/$each"
    done
    chmod 755 "$work/bin/nvidia-smi" "$work/prolog" "$work/epilog"
    site=$work "$source_dir/tests/live/mini-cluster.sh" run LUA="$source_dir/examples/live/job_submit.lua" \
        "EXTRA=Prolog=$work/prolog\nEpilog=$work/epilog" -- "$0" "$source_dir" inside
    exit
fi

failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

user=()
[ "$(id -u)" -ne 0 ] || user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
cd / || exit 1

# What a job's field is; its log lines are not wanted here.
field() { scontrol -o show job "$1" | sed -n "s/.* $2=\([^ ]*\).*/\1/p"; }

# Up to ten seconds.
await() {
    local i
    for ((i = 0; i < 100; i++)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    fail "$* did not come true: $(squeue -h)"
}
is_in() { [ "$(field "$1" JobState)" = "$2" ]; }

submit() { "${user[@]}" sbatch --parsable --no-requeue -o /dev/null --gres=gpu:2 "$@" --wrap='sleep 100'; }

# ---- job_submit.lua ----
job=$(submit --comment=ergon:1:0123456789abcdef -w a1)
[ "$(field "$job" Priority)" = 0 ] || fail "a job of ergon is not held"
[ "$(field "$job" Requeue)" = 1 ] || fail "a job of ergon is not put back"
for change in ReqNodeList=a2 Gres=gpu:1 NumNodes=2-2 Priority=7; do
    said=$("${user[@]}" scontrol update "JobId=$job" "$change" 2>&1) && fail "$change was let through"
    case $said in *denied*) ;; *) fail "$change: '$said'" ;; esac
done
"${user[@]}" scontrol release "$job" 2>/dev/null && fail "its user may release it"
"${user[@]}" scontrol update "JobId=$job" Name=other || fail "its user may not give it a name"
[ "$(field "$job" ReqNodeList)" = a1 ] || fail "its nodes are $(field "$job" ReqNodeList)"
foreign=$(submit --hold -w h1)
"${user[@]}" scontrol update "JobId=$foreign" Gres=gpu:1 || fail "jobs of others than ergon are changed"
[ "$(field "$foreign" Requeue)" = 0 ] || fail "jobs of others than ergon are changed"
grep -q 'unrecognized field' "$MINI_DIR/log/slurmctld.log" && fail "job_submit.lua sets a field that Slurm does not know"

# ---- prolog and epilog: a limit of 250 W for the job of ergon, nothing for the other ----
# As root, as the controller would; where the whole test is one user's, that one may not.
if [ "$(id -u)" -eq 0 ]; then
    echo 250 >"$site/.limits/$job"
    echo 99 >"$site/.limits/$foreign"
    scontrol update "JobId=$job" ReqNodeList=a2 || fail "the administrator may not place it"
    scontrol release "$job"
    "${user[@]}" scontrol release "$foreign"
    await is_in "$job" RUNNING
    await is_in "$foreign" RUNNING
    await grep -qxF -e "-i 0,1 -pl 250" "$site/asked"
    [ "$(wc -l <"$site/asked")" = 1 ] || fail "also asked: $(cat "$site/asked")"
    scancel "$job" "$foreign"
    await grep -qxF -e "-i 0,1 -rgc" "$site/asked"
    for gpu in 0 1; do grep -qxF -e "-i $gpu -pl 400.00" "$site/asked" || fail "GPU $gpu keeps its limit"; done
    [ "$(wc -l <"$site/asked")" = 5 ] || fail "asked: $(cat "$site/asked")"
fi

# ---- a user who wants out ----
job=$(submit --comment=ergon:1:0123456789abcdef -w a1)
"${user[@]}" scontrol update "JobId=$job" Comment= || fail "its user may not take it from ergon"
"${user[@]}" scontrol release "$job" || fail "what is no longer ergon's cannot be released"
await is_in "$job" RUNNING

[ "$failures" -eq 0 ]
