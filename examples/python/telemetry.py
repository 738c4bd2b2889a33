"""Energy of a piece of a Python program: python3 telemetry.py"""
import time

import ergon

with ergon.Meter() as meter:
    with meter.window() as window:
        time.sleep(2)  # yours; torch.cuda.synchronize() before the end
result = window.result
print(f"{result.time_s:.3f} s, {result.energy_j:.1f} +- {result.uncertainty_j:.1f} J")
for i, gpu in enumerate(result.gpus):
    print(f"GPU {i}: {gpu.energy_j:.1f} +- {gpu.uncertainty_j:.1f} J, mean {gpu.power_mean_w:.0f} "
          f"W, peak {gpu.power_peak_w:.0f} W, {gpu.temperature_end_c:.0f} C, "
          f"{gpu.throttled_power_s + gpu.throttled_thermal_s:.2f} s throttled")
