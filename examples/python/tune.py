"""Finds the power limit at which a training takes the least energy, by its own steps:
python3 tune.py 300 500 100

The numbers are the least and the highest limit and the step between two, in watts. Limits take root
or a daemon.
"""
import sys
import time

import ergon

least, most, step = (int(word) for word in sys.argv[1:])
try:
    # A GPU settles more slowly: leave measure_s, 2 s.
    with ergon.Tune("power", selector="energy", least=least, most=most, step=step,
                    measure_s=0.2) as tune:
        while tune.stats.state == "measuring":
            with tune.step():
                time.sleep(0.005)  # your step; wait for the GPU
except ergon.Error as problem:
    sys.exit(str(problem))
print(f"least energy at {tune.stats.value} W")  # the limit is what it was before
