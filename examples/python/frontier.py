"""What two pieces of work, each with ways of its own, can do one after the other: python3 frontier.py"""
import ergon

clocks_mhz = [1410, 1200, 1000]
forward = [(0.10, 40), (0.12, 33), (0.13, 35)]  # seconds, joules; the last is beaten
backward = [(0.20, 82), (0.23, 66)]
both = ergon.combine(forward, backward)
for time_s, energy_j, (a, b) in both:
    print(f"{time_s:.2f} s {energy_j:.0f} J: forward at {clocks_mhz[a]} MHz, backward at "
          f"{clocks_mhz[b]} MHz")
within = [energy_j for time_s, energy_j, _ in both if time_s <= 0.34]
print(f"within 0.34 s: {min(within):.0f} J")
