#!/usr/bin/env bash
# A day of twelve jobs on a Slurm of this host with 16 GPUs that are only device files: nine of a program that
# only sleeps, sixty times as fast, and three of `ergon train` on the CPU, which are
# moved and resized while they train. Then the same day under another policy, simulated. Takes two minutes;
# ends and removes everything except build/live-demo. Usage: live-demo.sh ERGON FAKE_TRAINER
set -euo pipefail
export LC_ALL=C
ergon=$(readlink -f "$1") trainer=$(readlink -f "$2")
cd "$(dirname "$0")/.."
demo=$PWD/build/live-demo
sh scripts/install-packages.sh live
for name in slurmctld slurmd munged sqlite3; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$name" >/dev/null || {
        echo "live-demo: $name is missing (Debian: slurmctld slurmd slurm-client munge sqlite3)" >&2
        exit 1
    }
done

compress=60 updates=3000
work=$(mktemp -d "${TMPDIR:-/tmp}/ergon-live.XXXXXX")
chmod 755 "$work"
controller=""
finish() {
    trap '' HUP INT TERM
    [ -z "$controller" ] || kill "$controller" 2>/dev/null || true
    [ -z "$controller" ] || wait "$controller" 2>/dev/null || true
    tests/live/mini-cluster.sh stop "$work/mini" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
fail() {
    echo "live-demo: $*" >&2
    [ ! -e "$demo/schedule.log" ] || tail -n 5 "$demo/schedule.log" >&2
    exit 1
}
say() { printf '\n== %s\n' "$*"; }

rm -rf "$demo"
mkdir -p "$demo/profiles"
mkdir -m 3733 "$work/spool"

# ---- three trainings of a tiny Llama, and its speed on this host ----

say "How fast a tiny Llama trains on one rank of this host's CPU"
mkdir "$demo/tiny-llama"
sed 's/"hidden_size": 96/"hidden_size": 48/; s/"intermediate_size": 256/"intermediate_size": 128/
    s/"num_hidden_layers": 4/"num_hidden_layers": 2/; s/"num_attention_heads": 6/"num_attention_heads": 3/
    s/"num_key_value_heads": 2/"num_key_value_heads": 1/' examples/train/tiny-llama/config.json \
    >"$demo/tiny-llama/config.json"
"$ergon" tokenize bytes README.md docs/decisions/*.md docs/architecture.md -o "$demo/tokens" >/dev/null
make_job() { # NAME UPDATES RANKS SEED
    cat >"$demo/$1.yaml" <<END
model: tiny-llama
cluster: {nodes: 1, gpus_per_node: $3, gpu: A100-SXM4-40GB}
microbatch_size: 1
microbatches: $((8 / $3))
data: $3
sequence: 32
train:
  data: [{file: tokens.bin}]
  shuffle: true
  seed: $4
  init: random
  updates: $2
  schedule: cosine
  learning_rate: 0.003
  warmup: 20
  log_every: 50
END
}
# Published profiles set the speed of the fake trainers; the names of the types are invented.
awk -F, -v OFS=, 'NR == 1 { print; next }
    sub("H800-SXM-80GB", "fake-h800", $4) || sub("A100-SXM4-80GB", "fake-a100", $4)' \
    examples/cluster/profiles/prof_optimal.csv >"$demo/profiles/prof_optimal.csv"
# The median step of one rank. More ranks share this host's cores, so the speed of n GPUs is assumed, as it
# is for larger models; the scheduler corrects it by measurements.
make_job speed 300 1 0
"$ergon" train "$demo/speed.yaml" --device host -o "$work/speed" >"$work/speed.log" 2>&1 ||
    fail "the training of a tiny Llama failed: $(tail -n 3 "$work/speed.log")"
step_s=$(sed -n 's/.*"undisturbed":{"steps":[0-9]*,"ms":\([0-9.]*\)}.*/\1/p' "$work/speed/metrics.jsonl" |
    sort -n | awk '{ ms[NR] = $1 } END { print ms[int((NR + 1) / 2)] / 1000 }')
size=$(sed -n 's/.* \([0-9.]*\) million parameters.*/\1/p' "$work/speed.log" | head -n 1 | awk '{ printf "%.3gM", $1 }')
rm "$demo/speed.yaml"
echo "$step_s s a step, $size parameters"
for ranks in 1 2 4; do
    for type in fake-h800 fake-a100; do
        echo "tiny-llama,$size,8,$type,1,$ranks,$(awk "BEGIN { print $step_s * $compress / $ranks ^ 0.85 }"),"
    done
done >>"$demo/profiles/prof_optimal.csv"

# ---- a cluster, its scheduler, and the day ----

say "A Slurm of this host: 16 GPUs of two types that are only device files"
tests/live/mini-cluster.sh start "$work/mini" OWNER=$$ NODES="h:1:h800:8 a:1:a100:8" CPUS=16 ||
    fail "Slurm did not start"
export SLURM_CONF=$work/mini/slurm.conf ERGON_LIVE=$demo/live.yaml
cat >"$demo/live.yaml" <<END
slurm: {partition: ergon, spool: $work/spool, poll_s: 0.2, settle_s: 0.2}
profiles: profiles
reconfiguration: {fixed_s: $((2 * compress))}
types:
  - {name: fake-h800, nodes: h1, gpus_per_node: 8, memory_gb: 85.9, idle_power_w: 70}
  - {name: fake-a100, nodes: a1, gpus_per_node: 8, memory_gb: 85.9, idle_power_w: 55}
END
echo "ergon schedule live.yaml --page 127.0.0.1:0 --compress $compress"
"$ergon" schedule "$demo/live.yaml" --page 127.0.0.1:0 --compress "$compress" \
    >"$work/url" 2>"$demo/schedule.log" &
controller=$!
for ((try = 0; try < 100; try++)); do
    [ ! -s "$work/url" ] || break
    sleep 0.1
done
[ -s "$work/url" ] || fail "the scheduler did not start"
cat "$work/url"

# id,model,size,batch,iterations,GPUs of each job, as a trace has them.
submit() { # MODEL SIZE BATCH ITERATIONS GPUS, and what "ergon submit" gets
    local job=$1,$2,$3,$4,$5
    shift 5
    "$ergon" submit "$@" >"$work/submitted" 2>"$work/submit.log" || {
        cat "$work/submit.log" >&2
        fail "ergon submit $* failed"
    }
    sed -n "s/^job \([0-9]*\),.*/\1,$job/p" "$work/submitted" >>"$work/jobs"
}
real() { # NUMBER GPUS
    make_job "tiny-$1" "$updates" 1 "$1"
    submit tiny-llama "$size" 8 "$updates" "$2" "$demo/tiny-$1.yaml" -n "$2" --at-most 4 -- --device host
    echo "ergon submit tiny-$1.yaml -n $2 --at-most 4 -- --device host"
    head -n 1 "$work/submitted"
    ln -s "$(sed -n 's/^folder //p' "$work/submitted")/run" "$work/tiny-$1"
}
fake() { # MODEL SIZE ITERATIONS GPUS
    submit "$1" "$2" 128 "$3" "$4" --like "$1-$2:128:$3" -n "$4" "$trainer" -- compress="$compress"
}
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
status() { # SQL over the jobs of the status, as j
    sqlite3 -separator ' ' :memory: "WITH s(t) AS (SELECT readfile('$work/spool/.controller/status.json')),
        jobs(j) AS (SELECT value FROM s, json_each(json_extract(t, '$.jobs'))) $1"
}
show() {
    say "$(($(now_ms) / 1000 - began / 1000)) s: ergon jobs"
    "$ergon" jobs
    say "ergon schedule live.yaml --status"
    "$ergon" schedule "$demo/live.yaml" --status | cut -c-"${COLUMNS:-160}"
}
save_page() { # FILE
    local address
    read -r address <"$work/url" || fail "the page has no address"
    address=${address#http://}
    address=${address%/}
    exec 3<>"/dev/tcp/${address%:*}/${address##*:}"
    printf 'GET / HTTP/1.0\r\n\r\n' >&3
    sed '1,/^\r$/d' <&3 >"$1"
    exec 3>&-
}

say "Twelve jobs in half a minute: nine fake ones, and three that train"
began=$(now_ms)
at() { # SECONDS COMMAND...
    local left=$(($1 * 1000 - $(now_ms) + began))
    [ "$left" -le 0 ] || sleep "$((left / 1000)).$(printf %03d $((left % 1000)))"
    shift
    "$@"
}
at 0 real 1 2
at 1 fake Llama-3.2-3B 3.21B 120 8
at 2 fake Qwen3-1.7B 1.72B 250 4
at 4 real 2 1
at 6 fake Llama-3.2-1B 1.24B 200 2
at 8 fake Llama-3.2-1B 1.24B 500 4
at 10 show
at 15 real 3 4
at 17 fake Llama-3.2-3B 3.21B 60 4
at 20 fake Llama-3.2-1B 1.24B 300 8
at 23 fake Qwen3-1.7B 1.72B 150 2
at 26 fake Llama-3.2-1B 1.24B 150 1
at 30 fake Llama-3.2-3B 3.21B 50 4
at 34 show
save_page "$demo/page.html"

shown=1
while :; do
    kill -0 "$controller" 2>/dev/null || fail "the scheduler has ended"
    read -r ended bad < <(status "SELECT sum(json_extract(j, '$.phase') = 'ended'),
        sum(json_extract(j, '$.phase') IN ('failed', 'cancelled', 'gone')
            OR json_extract(j, '$.needs_attention')) FROM jobs")
    [ "$bad" = 0 ] || fail "a job has failed; see $demo/schedule.log"
    [ "$ended" != "$(wc -l <"$work/jobs")" ] || break
    elapsed=$(($(now_ms) - began))
    [ "$elapsed" -lt 240000 ] || fail "the day did not end in time"
    if [ "$shown" = 1 ] && [ "$elapsed" -ge 60000 ]; then
        shown=2
        show
    fi
    sleep 0.5
done
save_page "$demo/page-end.html"
cp "$work/spool/.controller/status.json" "$demo/status.json"
kill "$controller"
wait "$controller" || fail "the scheduler ended with status $?"
controller=""

# ---- results ----

say "The three trainings: which steps ran on how many GPUs, and their loss"
printf '%-7s %12s %5s %8s %8s\n' run steps GPUs "loss from" to
for run in tiny-1 tiny-2 tiny-3; do
    mkdir "$demo/$run"
    cp "$work/$run"/{metrics.jsonl,sessions.jsonl,report.html} "$demo/$run"
    sqlite3 :memory: <<END
CREATE TABLE session (j);
CREATE TABLE metric (j);
.mode ascii
.separator "\037" "\n"
.import $demo/$run/sessions.jsonl session
.import $demo/$run/metrics.jsonl metric
.mode list
CREATE TABLE stretch AS
    SELECT rowid AS n, j ->> 'behind' AS first, j ->> 'ranks' AS gpus,
        coalesce(lead(j ->> 'behind') OVER (ORDER BY rowid), $updates) AS last FROM session;
CREATE TABLE point AS
    SELECT n, gpus, j ->> 'step' AS step, j ->> 'loss' AS loss, j ->> '$.undisturbed.ms' AS ms
    FROM metric JOIN stretch ON j ->> 'step' > first AND j ->> 'step' <= last;
SELECT printf('%-7s %12s %5d %9s %8s', '$run', (first + 1) || '-' || last, gpus,
    coalesce((SELECT printf('%.3f', loss) FROM point p WHERE p.n = s.n ORDER BY step LIMIT 1), '-'),
    coalesce((SELECT printf('%.3f', loss) FROM point p WHERE p.n = s.n ORDER BY step DESC LIMIT 1), '-'))
    FROM stretch s WHERE last > first ORDER BY n;
.output $work/$run.speeds
SELECT printf('%d %.6f', gpus, ms / 1000) FROM point WHERE ms > 0;
END
done

# The day as a trace, in seconds of which $compress passed in one; speeds of the trainings as measured.
status "SELECT json_extract(j, '$.id') || ',' || json_extract(j, '$.submitted_unix_s') || ',' ||
    json_extract(j, '$.since_unix_s') || ',' || json_extract(j, '$.starts') FROM jobs" >"$work/ends"
awk -F, -v c="$compress" 'NR == FNR { at[$1] = $2; next }
    FNR == 1 { first = at[$1]
        print "job_id,submit_time_s,num_iterations,model,param_num,deadline_s,global_batch,num_gpus,gpu_type,tenant" }
    { printf "job-%d,%.0f,%d,%s,%s,,%d,%d,,\n", $1, (at[$1] - first) * c, $5, $2, $3, $4, $6 }' \
    "$work/ends" "$work/jobs" >"$demo/trace.csv"
mkdir "$work/profiles"
cat "$work"/tiny-*.speeds | awk -v c="$compress" 'NR == FNR { sum[$1] += $2; count[$1]++; next }
    $1 == "tiny-llama" && count[$6] { $7 = c * sum[$6] / count[$6] }
    { print }' FS=' ' - FS=, OFS=, "$demo/profiles/prof_optimal.csv" >"$work/profiles/prof_optimal.csv"
mv "$work/profiles/prof_optimal.csv" "$demo/profiles/prof_optimal.csv"
read -r start_s move_s < <(sqlite3 -separator ' ' "$demo/live.yaml.journal" "
    SELECT $compress * (coalesce((SELECT avg(took_s) FROM restart WHERE first), 1.5) +
            coalesce((SELECT sum(s) FROM (SELECT avg(seconds) AS s FROM delay GROUP BY kind)), 0)),
        $compress * coalesce((SELECT avg(took_s) FROM restart WHERE NOT first), 2)")
cat >"$demo/cluster.yaml" <<END
# Inputs of ergon simulate; the costs of a start and a move are those of this day.
reconfiguration: {fixed_s: $move_s, start_s: $start_s, most_s: 3600}
types:
  - {name: fake-h800, nodes: 1, gpus_per_node: 8, memory_gb: 85.9, idle_power_w: 70}
  - {name: fake-a100, nodes: 1, gpus_per_node: 8, memory_gb: 85.9, idle_power_w: 55}
END
simulated() { # POLICY: the mean completion
    "$ergon" simulate "$demo/cluster.yaml" "$demo/trace.csv" --profiles "$demo/profiles" --until-empty \
        --policy "$1" -o "$work/$1" >"$work/simulate.log" 2>&1 ||
        fail "the simulation under $1 failed: $(cat "$work/simulate.log")"
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "jct_s") column = i; next }
        { sum += $column } END { printf "%.0f", sum / (NR - 1) }' "$work/$1/jobs.csv"
}
say "The day's jobs, in seconds of which $compress passed in one"
awk -F, -v c="$compress" '{ sum += c * ($3 - $2); starts += $4 }
    END { printf "mean completion, live, policy ergon:  %5.0f s, %d starts and moves\n", sum / NR, starts }' "$work/ends"
printf 'the same in the simulator:            %5s s (a start takes %.0f s, a move %.0f s, as measured)\n' \
    "$(simulated ergon)" "$start_s" "$move_s"
printf 'under fcfs, by the simulator:         %5s s\n' "$(simulated fcfs)"

say "Left in build/live-demo"
echo "page.html      the scheduler's page while jobs ran; page-end.html: at the end"
echo "tiny-N         log and page (report.html) of each training"
echo "trace.csv      the day, with cluster.yaml and profiles for ergon simulate"
echo "schedule.log   every decision and action"
echo "Now open build/live-demo/page.html in a browser."
