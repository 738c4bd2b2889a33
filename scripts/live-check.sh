#!/bin/sh
# Compares days of jobs on a Slurm of this host with the same days in the simulator, for every policy; then a
# table of means over seeds, and whether live and simulated agree. At most three days at a time.
# LIVE_POLICIES, LIVE_JOBS, LIVE_COMPRESS and LIVE_SEEDS choose fewer or shorter ones.
# Usage: live-check.sh TEST_PROGRAM
set -eu
test=$1
policies=${LIVE_POLICIES:-fcfs tiresias sia arena gavel ergon ergon-thrifty}
seeds=${LIVE_SEEDS:-1 2 3}
LIVE_JOBS=${LIVE_JOBS:-24}
LIVE_COMPRESS=${LIVE_COMPRESS:-60}
LIVE_TABLE=$(mktemp)
export LIVE_JOBS LIVE_COMPRESS LIVE_TABLE
trap 'rm -f "$LIVE_TABLE"' EXIT

echo "$LIVE_JOBS jobs a day, $LIVE_COMPRESS times as fast; policies: $policies; seeds: $seeds"
failed=0
for seed in $seeds; do
    status=0
    LIVE_SEED=$seed LIVE_POLICIES=$policies "$test" || status=$?
    [ "$status" -ne 77 ] || exit 77
    [ "$status" -eq 0 ] || failed=1
done

# Faults that take too long for "make check", one at a time.
for name in slurmctld_ended slurmctld_killed users_commands trainers_misbehave nodes_fail spool_full; do
    echo "faults: $name"
    LIVE_TABLE='' "$(dirname "$1")/test_live_faults" "$name" >"$LIVE_TABLE.log" 2>&1 ||
        { tail -n 30 "$LIVE_TABLE.log"; failed=1; }
    rm -f "$LIVE_TABLE.log"
done

# Bounds: 5 % of the mean completion under fcfs, 12 % under policies that decide again at every event,
# in which an order of two events that differs by a second leads to another day; as much of the energy,
# 1.5 times as much of the makespan.
awk -F, '
{
    if (!($1 in days)) order[++count] = $1
    days[$1]++
    for (i = 4; i <= 11; i++) sum[$1, i] += $i
}
END {
    printf "\n%-14s %5s  %22s %7s  %19s %7s  %17s  %s\n", "policy", "days", "mean completion, live", "sim.",
        "makespan, live", "sim.", "moves, live, sim.", "energy, live, sim."
    for (k = 1; k <= count; k++) {
        p = order[k]
        n = days[p]
        jct = sum[p, 4] / sum[p, 5] - 1
        span = sum[p, 6] / sum[p, 7] - 1
        most = p == "fcfs" ? 0.05 : 0.12
        joules = sum[p, 10] / sum[p, 11] - 1
        bad = jct > most || -jct > most || span > 1.5 * most || -span > 1.5 * most || joules > most || -joules > most
        failed += bad
        printf "%-14s %5d  %10.0f s (%+5.1f %%) %5.0f s  %9.0f s (%+4.1f %%) %5.0f s  %8.1f %8.1f  %6.1f MJ (%+5.1f %%) %6.1f MJ%s\n", p, n,
            sum[p, 4] / n, 100 * jct, sum[p, 5] / n, sum[p, 6] / n, 100 * span, sum[p, 7] / n,
            sum[p, 8] / n, sum[p, 9] / n, sum[p, 10] / n, 100 * joules, sum[p, 11] / n, bad ? "  too far apart" : ""
    }
    exit failed > 0
}' "$LIVE_TABLE" || failed=1
exit "$failed"
