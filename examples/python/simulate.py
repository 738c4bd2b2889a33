"""Two policies on a day of a cluster: python3 simulate.py FOLDER"""
import pathlib
import sys

import ergon

folder = pathlib.Path(sys.argv[1])
results = ergon.simulate(folder / "cluster.yaml", folder / "trace.csv", folder / "profiles",
                         ["fcfs", "ergon"], until_s=24 * 3600)
for result in results:
    print(f"{result.policy:6} {result.finished_jobs} of {result.submitted_jobs} jobs finished, mean "
          f"completion {result.mean_completion_s / 3600:.2f} h, {100 * result.utilization:.1f} % of "
          f"GPUs in use, {result.energy_j / 1e9:.3f} GJ")
