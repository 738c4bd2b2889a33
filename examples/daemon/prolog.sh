#!/bin/sh
# For Slurm's Prolog (slurm.conf): the processes of the job may set clocks and limits of its GPUs, as
# the rule "slurm: granted" of ergond.yaml lets them. A node whose daemon does not answer takes jobs all
# the same: they run without.
[ -n "$SLURM_JOB_GPUS" ] || exit 0
ergon daemon grant --job "$SLURM_JOB_ID" --uid "$SLURM_JOB_UID" --gpus "$SLURM_JOB_GPUS" ||
    echo "ergon: job $SLURM_JOB_ID may not set clocks on $(hostname)" >&2
exit 0
