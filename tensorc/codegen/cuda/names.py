"""Names of kernels."""

from __future__ import annotations

import re

from tensorc.codegen.cname import c_name

# What NVRTC declares beside the C library, which a kernel of that name would overload.
_DEVICE_FUNCTIONS = frozenset(
    f"{name}{end}"
    for name in re.findall(
        r"\w+",
        """
acospi asinpi atanpi brev brkpt clock clock64 clz cospi cyl_bessel_i0 cyl_bessel_i1 erfcinv erfcx
erfinv fdivide ffs ffsll free isfinite isinf isnan llmax llmin malloc mul24 mul64hi mulhi norm
norm3d norm4d normcdf normcdfinv popc printf rcbrt rhypot rnorm rnorm3d rnorm4d rsqrt saturate
signbit sincos sincospi sinpi trap ullmax ullmin umax umin umul24 umul64hi umulhi
""",
    )
    for end in ("", "f")
)


def kernel_name(name: str) -> str:
    """A name that neither the C library nor NVRTC has taken."""
    return c_name(name, _DEVICE_FUNCTIONS, linked=True)
