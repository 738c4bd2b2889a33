"""A job's plan, with progress on standard error: python3 optimize.py JOB.yaml FOLDER"""
import sys

import ergon


def progress(task, done, total):
    print(f"{task}: {done} of {total}", file=sys.stderr)


frontier = ergon.Job(sys.argv[1]).optimize(folder=sys.argv[2], progress=progress)
info = frontier.plan.info
print(f"{info.method}: {info.time_s:.4f} s, {info.energy_j:.1f} J an iteration")
for point in frontier:
    print(f"{point.index + 1:3} {point.time_s:8.4f} s {point.energy_j:9.1f} J "
          f"{point.power_w:7.1f} W")
