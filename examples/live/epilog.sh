#!/bin/sh
# For Slurm's Epilog (slurm.conf), as root: the boards of a job of ergon get their own power limit back,
# and their clocks are free.
[ -n "$SLURM_JOB_GPUS" ] || exit 0
case $SLURM_JOB_COMMENT in ergon:*) ;; *) exit 0 ;; esac
nvidia-smi -i "$SLURM_JOB_GPUS" --query-gpu=index,power.default_limit --format=csv,noheader,nounits |
    while IFS=', ' read -r gpu watts; do
        nvidia-smi -i "$gpu" -pl "$watts" >/dev/null
    done
nvidia-smi -i "$SLURM_JOB_GPUS" -rgc >/dev/null
exit 0
