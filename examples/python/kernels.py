"""What ran on the GPUs of a training: python3 kernels.py TRACE.json ..."""
import sys

import ergon

for gpu in ergon.kernels(sys.argv[1:]):
    print(f"rank {gpu.rank} GPU {gpu.device}: computes {100 * gpu.compute_s / gpu.window_s:.1f} %, "
          f"only communicates or copies {100 * gpu.exposed_s / gpu.window_s:.1f} %")
    for name, category in gpu.categories.items():
        if category.count:
            print(f"  {name:18} {category.count:3} kernels, {category.summed_s:.6f} s, "
                  f"exposed {category.exposed_s:.6f} s")
