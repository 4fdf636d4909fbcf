"""The instruction sets to compile kernels for: those in TFO_CPU_LEVELS, or all.

A wheel for other machines needs all of them. They take more than half of the build time,
so a build for this machine alone takes about half as long.
"""

# Instruction set -> required processor flags (/proc/cpuinfo), narrowest
# first. core/cc/simd/cpu_dispatch.cc checks the same flags.
_LEVELS = {
    "baseline": ["avx"],
    "avx2": ["avx2", "fma", "f16c"],
    "avx512": ["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"],
}

def _widest_of_this_processor(ctx):
    flags = []
    for line in ctx.read("/proc/cpuinfo", watch = "no").split("\n"):
        if line.startswith("flags"):
            flags = line.split(":")[1].split(" ")
            break
    widest = "baseline"
    for level, needed in _LEVELS.items():
        if all([flag in flags for flag in needed]):
            widest = level
    return widest

def _cpu_configure_impl(ctx):
    wanted = [name for name in ctx.os.environ.get("TFO_CPU_LEVELS", "").split(" ") if name]
    for name in wanted:
        if name not in _LEVELS and name != "native":
            fail("\nTFO_CPU_LEVELS is '%s'; expected native, or some of %s." % (" ".join(wanted), ", ".join(_LEVELS)))
    wanted = [_widest_of_this_processor(ctx) if name == "native" else name for name in wanted]
    ctx.file("BUILD", "")
    ctx.file("config.bzl", "\n".join([
        '"""Written by cpu_configure."""',
        "BUILT_CPU_LEVELS = " + repr([level for level in _LEVELS if level in wanted or not wanted]),
        "",
    ]))

cpu_configure = repository_rule(
    implementation = _cpu_configure_impl,
    doc = "Creates @local_config_cpu//:config.bzl.",
    environ = ["TFO_CPU_LEVELS"],
    configure = True,
)
