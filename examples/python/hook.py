"""A trainer that follows a plan: one rank of a pipeline with one stage, its passes are sleeps.

    ergon frontier profile.csv -m 4 -p 80 --plan plan.json
    python3 hook.py plan.json 4 3

Clocks take root or a daemon; python3 hook.py plan.json 4 3 observe only measures.
"""
import sys
import time

import ergon

plan, microbatches, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
mode = "observe" if len(sys.argv) > 4 else "follow"
try:
    with ergon.Hook(plan, mode=mode) as hook:
        for _ in range(steps):
            with hook.step():
                for i in range(microbatches):
                    with hook.instruction("forward", chunk=0, microbatch=i):
                        time.sleep(0.010)  # your forward pass
                    with hook.instruction("backward", chunk=0, microbatch=i):
                        time.sleep(0.020)
            stats = hook.stats
            print(f"step {stats.steps}: {stats.step_last_s:.3f} s, planned "
                  f"{stats.step_planned_s:.3f} s, {stats.clock_changes} changes of clock")
except ergon.Error as problem:
    sys.exit(str(problem))
