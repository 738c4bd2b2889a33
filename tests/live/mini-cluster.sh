#!/usr/bin/env bash
#
# A whole Slurm on one host, for tests: munge, slurmctld and a slurmd per node, with GPUs that are
# only device files. All of it lives in one folder, with its own key, ports and state, so that a
# Slurm of the machine is not touched. Runs as root (then jobs may be of several users) or as anyone.
#
#   mini-cluster.sh run [KEY=VALUE...] -- COMMAND...    starts, runs the command, stops, removes
#   mini-cluster.sh start DIR [KEY=VALUE...]            starts in DIR, which it makes
#   mini-cluster.sh stop DIR                            ends all jobs and daemons; logs stay in DIR
#   mini-cluster.sh down|kill|up DIR NAME...            ends (TERM, KILL) or starts daemons
#   mini-cluster.sh list DIR                            name and pid of each daemon, "-": it is down
#
# A NAME is slurmctld, munged or a node. The command of `run` sees SLURM_CONF, MINI (this script) and
# MINI_DIR. Where `start` was asked to it sets SLURM_CONF=DIR/slurm.conf for nobody: do that.
#
#   NODES="a:2:a40:4 h:2:h100:4"   prefix:nodes:type:GPUs of each group; these are a1, a2, h1, h2
#   CPUS=8                         of each node
#   EXTRA="A=1\nB=2"               lines for the end of slurm.conf; of equal keys the last one counts
#   LUA=FILE                       a job_submit.lua
#   POWER=0                        SuspendTime: with it nodes can be switched off and on
#   OWNER=PID                      stops by itself when this process is gone (`start`)
#   KEEP=0                         1: `run` keeps the folder
#
# Partitions: ergon (the default, PriorityTier 10) and other (1), both of all nodes. Exit code 77:
# Slurm or munge is not installed.
set -u
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin

script=$(readlink -f "${BASH_SOURCE[0]}")

die() {
    echo "mini-cluster: $*" >&2
    exit 1
}

milliseconds() {
    local at=${EPOCHREALTIME/./}
    echo $((at / 1000))
}

# The caller's variables are those of another cluster.
for name in "${!SLURM@}" "${!SBATCH@}" "${!SCONTROL@}"; do unset "$name"; done

# ---- processes, known by their pid file and by this cluster's folder in their environment ----

# Prints the pid of a daemon that is there.
pid_of() {
    local pid state
    read -r pid 2>/dev/null <"$dir/run/$1.pid" || return 1
    state=$(sed -n 's/^State:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)
    case $state in '' | Z* | X*) return 1 ;; esac
    grep -qszxF "MINI_CLUSTER=$dir" "/proc/$pid/environ" && echo "$pid"
}

# All processes of this cluster: daemons, step daemons, jobs, and what these started. A step daemon
# writes its title over its environment: it is known by the folder that it works in. Jobs have the
# environment of their sbatch, with an id and this cluster's configuration in it.
all_pids() {
    local files path
    mapfile -t files < <(grep -lszxF "SLURM_CONF=$dir/slurm.conf" /proc/[0-9]*/environ)
    {
        ((${#files[@]} == 0)) || grep -lszE '^(SLURM_JOB_ID=|MINI_CLUSTER=)' "${files[@]}"
        find /proc -maxdepth 2 -path '/proc/[0-9]*/cwd' -lname "$dir/log*" 2>/dev/null
    } | while read -r path; do
        path=${path#/proc/}
        descendants "${path%%/*}"
    done | sort -un
}

descendants() {
    local child children
    echo "$1"
    read -r -a children < <(cat "/proc/$1/task/"*/children 2>/dev/null | tr '\n' ' ')
    for child in "${children[@]}"; do descendants "$child"; done
}

alive() {
    local pid
    for pid in "$@"; do
        grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status" 2>/dev/null && return 0
    done
    return 1
}

# end_daemons SIGNAL NAME...: all at once; what is still there after five seconds is killed.
end_daemons() {
    local signal=$1 name pid pids=() until
    shift
    for name in "$@"; do
        pid=$(pid_of "$name") && pids+=("$pid") && kill "-$signal" "$pid" 2>/dev/null
    done
    until=$(($(milliseconds) + 5000))
    while alive "${pids[@]}"; do
        sleep 0.03
        (($(milliseconds) < until)) || kill -KILL "${pids[@]}" 2>/dev/null
    done
    for name in "$@"; do rm -f "$dir/run/$name.pid"; done
}

# ---- configuration ----

# The first of so many ports that nobody listens on.
free_ports() {
    local count=$1 taken first port try
    taken=" $(awk 'FNR > 1 { split($2, at, ":"); printf "%s ", at[2] }' /proc/net/tcp /proc/net/tcp6 2>/dev/null)"
    for ((try = 0; try < 100; try++)); do
        first=$((20000 + SRANDOM % 12000))
        for ((port = first; port < first + count; port++)); do
            [[ $taken != *" $(printf %04X "$port") "* ]] || continue 2
        done
        echo "$first"
        return
    done
    return 1
}

# Slurm wants a character device per GPU, and never opens it. Who may not make devices takes those
# that are there: a node may not have one twice, two nodes may.
gpu_files() {
    local node=$1 count=$2 each files=()
    if mknod "$dir/gpu/$node-0" c 1 3 2>/dev/null; then
        for ((each = 1; each < count; each++)); do mknod "$dir/gpu/$node-$each" c 1 3; done
        echo "$dir/gpu/$node-[0-$((count - 1))]"
        return
    fi
    for each in /dev/*; do
        [[ -c $each && $each != /dev/nvidia* ]] && files+=("$each")
        ((${#files[@]} < count)) || break
    done
    ((${#files[@]} == count)) || return 1
    (
        IFS=,
        echo "${files[*]}"
    )
}

write_configuration() {
    local group prefix count type gpus node port files all=""
    nodes=()
    for group in $NODES; do
        IFS=: read -r prefix count type gpus <<<"$group"
        [[ $prefix =~ ^[a-z]+$ && $count =~ ^[1-9][0-9]*$ && $type =~ ^[A-Za-z0-9_-]+$ && $gpus =~ ^[1-9][0-9]*$ ]] ||
            die "NODES: '$group', expected prefix:nodes:type:GPUs"
        for ((node = 1; node <= count; node++)); do nodes+=("$prefix$node"); done
        all+=,${prefix}[1-$count]
    done
    printf '%s\n' "${nodes[@]}" >"$dir/nodes"
    port=$(free_ports $((${#nodes[@]} + 1))) || die "found no ${#nodes[@]} free ports"
    {
        cat <<END
ClusterName=mini
SlurmctldHost=localhost
SlurmctldPort=$port
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.socket,cred_expire=5
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/%n.log
SlurmctldDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/log/jobcomp
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=5
KillWait=3
SlurmdTimeout=10
MessageTimeout=5
RequeueExitHold=85
END
        [ -z "$LUA" ] || echo JobSubmitPlugins=lua
        ((POWER == 0)) || printf '%s\n' "SuspendProgram=$dir/suspend" "ResumeProgram=$dir/resume" \
            "SuspendTime=$POWER" SuspendTimeout=2 ResumeTimeout=20
        for group in $NODES; do
            IFS=: read -r prefix count type gpus <<<"$group"
            echo "NodeName=${prefix}[1-$count] NodeHostname=localhost NodeAddr=127.0.0.1" \
                "Port=[$((port + 1))-$((port + count))] CPUs=$CPUS RealMemory=1000 Gres=gpu:$type:$gpus"
            port=$((port + count))
        done
        echo "PartitionName=ergon Nodes=${all#,} Default=YES PriorityTier=10 State=UP MaxTime=UNLIMITED"
        echo "PartitionName=other Nodes=${all#,} PriorityTier=1 State=UP MaxTime=UNLIMITED"
        printf '%b\n' "$EXTRA"
    } >"$dir/slurm.conf"
    echo AutoDetect=off >"$dir/gres.conf"
    for group in $NODES; do
        IFS=: read -r prefix count type gpus <<<"$group"
        for ((node = 1; node <= count; node++)); do
            files=$(gpu_files "$prefix$node" "$gpus") ||
                die "$gpus GPUs: /dev has fewer character devices, and none can be made"
            echo "NodeName=$prefix$node Name=gpu Type=$type File=$files"
        done
    done >>"$dir/gres.conf"
    [ -z "$LUA" ] || cp "$LUA" "$dir/job_submit.lua" || exit 1
    # A slurmd that inherits the signals that slurmctld blocks starts no jobs.
    # shellcheck disable=SC2016
    for node in suspend:down resume:up; do
        printf '#!/bin/sh\nexec perl -MPOSIX -e %q %q %s %q $(SLURM_CONF=%q scontrol show hostnames "$1")\n' \
            'POSIX::sigprocmask(SIG_SETMASK, POSIX::SigSet->new); exec @ARGV' "$script" "${node#*:}" "$dir" \
            "$dir/slurm.conf" >"$dir/${node%:*}"
        chmod 755 "$dir/${node%:*}"
    done
}

# ---- daemons ----

await() { # SECONDS WHAT COMMAND...
    local until=$(($(milliseconds) + $1 * 1000)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        (($(milliseconds) < until)) || {
            echo "mini-cluster: $what did not come up; see $dir/log" >&2
            return 1
        }
        sleep 0.03
    done
}

launch() {
    local name=$1 as=(env "MINI_CLUSTER=$dir" "SLURM_CONF=$dir/slurm.conf")
    pid_of "$name" >/dev/null && return
    case $name in
    munged)
        rm -f "$dir/run/munge.socket"*
        "${as[@]}" munged --force --num-threads=2 --key-file="$dir/munge.key" --socket="$dir/run/munge.socket" \
            --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" --seed-file="$dir/run/munge.seed" \
            9>&- 2>>"$dir/log/munged.log"
        await 10 munged test -S "$dir/run/munge.socket"
        ;;
    slurmctld)
        "${as[@]}" slurmctld -f "$dir/slurm.conf" 9>&- 2>>"$dir/log/slurmctld.log" || return 1
        await 10 slurmctld pid_of slurmctld
        ;;
    *)
        grep -qxF -e "$name" "$dir/nodes" || die "'$name' is neither slurmctld nor munged nor a node"
        mkdir -p "$dir/spool/$name"
        # -b: a node that was switched off is not waited for until its ResumeTimeout.
        "${as[@]}" slurmd -b -f "$dir/slurm.conf" -N "$name" 9>&- 2>>"$dir/log/$name.log" || return 1
        await 10 "$name" pid_of "$name"
        ;;
    esac
}

all_idle() {
    local states
    states=$(SLURM_CONF=$dir/slurm.conf timeout 2 sinfo -h -N -p ergon -o %T) || return 1
    [ "$(sort -u <<<"$states")" = idle ]
}

start() {
    local began key name pids
    began=$(milliseconds)
    NODES="a:2:a40:4 h:2:h100:4" CPUS=8 EXTRA="" LUA="" POWER=0 OWNER=""
    for key in "$@"; do
        case $key in
        NODES=* | CPUS=* | EXTRA=* | LUA=* | POWER=* | OWNER=* | KEEP=*) declare -g "${key%%=*}=${key#*=}" ;;
        *) die "'$key' is none of its settings" ;;
        esac
    done
    for name in munged munge slurmctld slurmd sinfo; do
        command -v "$name" >/dev/null || {
            echo "mini-cluster: $name is missing (Debian: slurmctld slurmd slurm-client munge)" >&2
            exit 77
        }
    done
    ((${#dir} <= 80)) || die "$dir: its name is too long for that of a socket, at most 80 characters"
    [ ! -e "$dir/slurm.conf" ] || die "there is a cluster in $dir already"
    mkdir -p "$dir"/{run,log,state,spool,gpu} || exit 1
    chmod 755 "$dir" "$dir/run"
    (umask 277 && head -c 128 /dev/urandom >"$dir/munge.key") || exit 1
    # Ports are found by one cluster at a time, and are its own once its daemons listen.
    exec 9>"${TMPDIR:-/tmp}/mini-cluster.$UID.lock" || exit 1
    flock -w 60 9 || die "another start does not end"
    write_configuration
    if [ -n "$OWNER" ]; then # not even a killed owner leaves anything behind
        setsid "$script" watch "$dir" "$OWNER" ${KEEP+"$KEEP"} 9>&- >/dev/null 2>&1 </dev/null &
    fi
    if ! launch munged || ! launch slurmctld; then
        stop
        exit 1
    fi
    pids=()
    for name in "${nodes[@]}"; do
        launch "$name" &
        pids+=($!)
    done
    wait "${pids[@]}"
    exec 9>&-
    await 20 "a node" all_idle || {
        stop
        exit 1
    }
    echo "mini-cluster: ${#nodes[@]} nodes after $(($(milliseconds) - began)) ms, SLURM_CONF=$dir/slurm.conf" >&2
}

stop() {
    local began pids names=() try there=0
    began=$(milliseconds)
    if [ -e "$dir/slurm.conf" ]; then
        there=1
        mapfile -t names <"$dir/nodes"
        end_daemons KILL slurmctld "${names[@]}" munged
    fi
    # Also where somebody has removed the folder.
    for ((try = 0; try < 100; try++)); do
        mapfile -t pids < <(all_pids)
        alive "${pids[@]}" || break
        kill -KILL "${pids[@]}" 2>/dev/null
        sleep 0.03
    done
    rm -rf "$dir/gpu" "$dir/slurm.conf"
    ! alive "${pids[@]}" || die "these processes do not end: ${pids[*]}"
    ((there == 0)) || echo "mini-cluster: stopped after $(($(milliseconds) - began)) ms" >&2
}

finish() {
    trap '' HUP INT TERM
    stop
    if ((KEEP)); then echo "mini-cluster: $dir is kept" >&2; else rm -rf "$dir"; fi
}

run() {
    local settings=() status child
    KEEP=0
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    [ $# -gt 1 ] || die "run: expected -- and a command"
    shift
    dir=$(mktemp -d "${TMPDIR:-/tmp}/mini-cluster.XXXXXX") || exit 1
    trap finish EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    start "${settings[@]}" "OWNER=$$"
    SLURM_CONF=$dir/slurm.conf MINI=$script MINI_DIR=$dir "$@" <&0 &
    child=$!
    trap 'kill -INT "$child"; exit 130' INT
    trap 'kill -TERM "$child"; exit 143' TERM HUP
    wait "$child"
    status=$?
    exit "$status"
}

verb=${1-}
[ $# -eq 0 ] || shift
case $verb in
run) run "$@" ;;
start | stop | down | kill | up | list | watch)
    [ $# -gt 0 ] || die "$verb: expected a folder"
    dir=$(readlink -m "$1")
    shift
    [ "$verb" = start ] || [ "$verb" = stop ] || [ -e "$dir/slurm.conf" ] || die "there is no cluster in $dir"
    case $verb in
    start) start "$@" ;;
    stop) stop ;;
    down) end_daemons TERM "$@" ;;
    kill) end_daemons KILL "$@" ;;
    up) for name in "$@"; do launch "$name" || exit 1; done ;;
    list) for name in munged slurmctld $(cat "$dir/nodes"); do echo "$name $(pid_of "$name" || echo -)"; done ;;
    watch)
        tail --pid="$1" -f /dev/null
        stop
        [ "${2-1}" = 1 ] || rm -rf "$dir" # of `run`
        ;;
    esac
    ;;
*)
    sed -n '3,/^set -u/{/^set/d;s/^# \{0,1\}//;p}' "$script"
    [ -z "$verb" ] || exit 2
    ;;
esac
