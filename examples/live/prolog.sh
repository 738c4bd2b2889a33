#!/bin/sh
# For Slurm's Prolog (slurm.conf), as root: the boards of the job get the power limit in watts that
# ergon has written for it. A job without one, of ergon or not, has that of the boards. What cannot be
# set keeps no job from starting.
spool=${ERGON_SPOOL:-/shared/ergon}
case $SLURM_JOB_ID in '' | *[!0-9]*) exit 0 ;; esac
[ -n "$SLURM_JOB_GPUS" ] || exit 0
case $SLURM_JOB_COMMENT in ergon:*) ;; *) exit 0 ;; esac
watts=$(head -c 16 "$spool/.limits/$SLURM_JOB_ID" 2>/dev/null) || exit 0
case $watts in '' | *[!0-9.]*) exit 0 ;; esac
nvidia-smi -i "$SLURM_JOB_GPUS" -pl "$watts" >/dev/null ||
    echo "ergon: job $SLURM_JOB_ID runs without its power limit of $watts W on $(hostname)" >&2
exit 0
