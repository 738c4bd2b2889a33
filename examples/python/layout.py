"""The fastest ways to spread a job over so many GPUs: python3 layout.py JOB.yaml GPUS"""
import sys

import ergon

for layout in ergon.Job(sys.argv[1]).plan(gpus=sys.argv[2], top=5):
    print(f"{layout.name:24} {layout.time_s:8.4f} s {layout.energy_j:10.1f} J "
          f"{100 * layout.mfu:6.1f} % of peak {layout.peak_bytes / 2**30:8.2f} GiB, "
          f"recompute {layout.recompute}")
