#!/bin/sh
# For Slurm's Epilog (slurm.conf): takes the grant back. Leases that processes of the job still hold end,
# and its GPUs are as they were.
[ -n "$SLURM_JOB_GPUS" ] || exit 0
ergon daemon revoke --job "$SLURM_JOB_ID" || true
exit 0
