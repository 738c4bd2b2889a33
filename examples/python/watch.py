"""A long call that is watched: it is stopped after some steps, then goes on from what it had.

    python3 watch.py job.yaml out 5
"""
import sys

import ergon


class Enough(Exception):
    pass


def progress(task, done, total):
    if done >= steps:
        raise Enough  # ends the call; so does Ctrl-C


path, folder, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
job = ergon.Job(path)
try:
    job.optimize(folder=folder, progress=progress)
except Enough:
    print(f"stopped; what was measured until then is in {folder}")
job.optimize(folder=folder)
print("the rest was measured, too")
