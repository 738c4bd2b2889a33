"""The point of a plan for a deadline, and what a stage does there: python3 plan.py PLAN.json SECONDS"""
import sys

import ergon

plan = ergon.Plan(sys.argv[1])
point = plan.select(deadline=float(sys.argv[2]))
print(f"{plan.info.method}, point {point.index + 1}: {point.time_s:.4f} s, {point.energy_j:.1f} J "
      f"({plan.info.rule})")
for one in plan.passes(stage=0):
    print(f"{one.start_s:8.4f} s  {one.direction:8} {one.microbatch} at {one.clock_mhz} MHz")
