"""Energy of a piece of a Python program, through libergon and ctypes: python3 window.py"""
import ctypes as c, time

D, I = c.c_double, c.c_int
GPU = ("energy_j uncertainty_j power_energy_j ratio power_mean_w power_peak_w temperature_begin_c "
       "temperature_end_c temperature_max_c memory_temperature_max_c throttled_power_s "
       "throttled_thermal_s sm_clock_mean_mhz").split()
REST = "uncertainty_j cpu_j cpu_uncertainty_j dram_j dram_uncertainty_j".split()

class Error(c.Structure):
    _fields_ = [("status", I), ("message", c.c_char * 1024)]

class WindowGpu(c.Structure):
    _fields_ = [(name, D) for name in GPU] + [("quality", I), ("counter", I), ("lost", I)]

class Result(c.Structure):
    _fields_ = ([("begin_ns", c.c_int64), ("end_ns", c.c_int64), ("time_s", D), ("energy_j", D),
                 ("energy_gpus", c.c_size_t)] + [(name, D) for name in REST] +
                [("gpus", c.c_size_t), ("gpu", WindowGpu * 32)])

ergon, meter, error, result = c.CDLL("libergon.so.0"), c.c_void_p(), Error(), Result()
ergon.erg_window_begin.restype = c.c_void_p
if ergon.erg_meter_open(c.byref(meter), None, c.byref(error)):
    raise SystemExit(error.message.decode())
window = c.c_void_p(ergon.erg_window_begin(meter))
time.sleep(2)  # yours; torch.cuda.synchronize() before the end
ergon.erg_window_end(window, c.byref(result))
print(f"{result.time_s:.3f} s, {result.energy_j:.1f} +- {result.uncertainty_j:.1f} J")
for gpu in result.gpu[:result.gpus]:
    print(f"  {gpu.energy_j:.1f} +- {gpu.uncertainty_j:.1f} J, {gpu.power_mean_w:.0f} W")
ergon.erg_meter_close(meter)
