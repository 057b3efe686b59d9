"""Import this before numpy: OpenBLAS then computes with the same kernels on every x86-64 processor with AVX2.

Left alone it chooses kernels by the processor, and sums end in other last bits. Keys of trainings on drawn pictures, and
values that are compared to nine digits, would then differ between machines.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

CPU = Path("/proc/cpuinfo")

if platform.machine() == "x86_64" and CPU.is_file() and " avx2 " in CPU.read_text():
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")
