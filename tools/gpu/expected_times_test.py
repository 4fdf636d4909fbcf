"""Tests expected_times.py and record_launches.cc on machine code and a program written by hand.

usage: "$(bash tools/setup/python_env.sh)" -m pytest -q tools/gpu
"""

import dataclasses
import pathlib
import subprocess

import expected_times as times
import pytest


def line(at, text, stall=1, waits=(), sets=7, reads=7):
    """Returns an instruction as cuobjdump prints it; the bits are those of sm_70 to sm_90."""
    control = (sum(1 << b for b in waits) << 11 | reads << 8 | sets << 5 | stall) << 41
    return f"        /*{at:04x}*/    {text} ;    /* 0x0000000000007918 */\n        /* 0x{control:016x} */\n"


# A loop from 0010 to 0060 with a division, whose function is at 0080: 5 instructions of its own, and none of the call.
CODE = "\t\tFunction : _Z6KernelIfEvv\n" + "".join([
    line(0x00, "S2R R0, SR_TID.X"),
    line(0x10, "LDG.E.128 R4, desc[UR4][R2.64]", sets=0),
    line(0x20, "@!P0 BRA 0x40"),
    line(0x30, "CALL.REL.NOINC 0x80"),
    line(0x40, "FFMA R8, R4, R5, R8", stall=4, waits=[0]),
    line(0x50, "MUFU.EX2 R9, R8", stall=2, reads=1),
    line(0x60, "@P1 BRA 0x10", stall=5, waits=[1]),
    line(0x70, "EXIT"),
    line(0x80, "RET.REL.NODEC R10 0x0"),
])  # fmt: skip
USAGE = " Function _Z6KernelIfEvv:\n  REG:90 STACK:8 SHARED:9216 LOCAL:0 CONSTANT[0]:736 TEXTURE:0\n"
CARD = times.CARDS["h100"]


@pytest.fixture
def kernel():
    (found,) = times.parse_code(USAGE).values()
    (found.code,) = (k.code for k in times.parse_code(CODE).values())
    return found


def test_usage_is_read(kernel):
    assert (kernel.registers, kernel.spills, kernel.shared) == (90, 8, 9216)


def test_a_pass_goes_around_calls_and_waits_for_loads(kernel):
    (loop,) = kernel.loops
    assert [i.name for i in loop.body] == ["LDG.E.128", "BRA", "FFMA", "MUFU.EX2", "BRA"]
    assert loop.pipes(CARD) == {"issue": 5, "memory": 16, "fma": 1, "special": 8}
    # 300 cycles from the load to the FFMA, whose stall is 4; 20 until the MUFU has read R8; and 5.
    assert loop.latency(300) == 300 + 4 + 20 + 5
    assert (loop.inner, loop.barriers(), loop.multiply_adds()) == (True, 0, 1)


def test_occupancy(kernel):
    # 90 registers: 96 x 32 of 16384 for 5 warps in each quarter of an SM; blocks of 8 warps: 2.
    fits = times.occupancy(CARD, kernel, {"block": 256, "shared": 0, "grid": 132 * 2 + 1})
    assert (fits.blocks, fits.warps, fits.rounds) == (2, 8, 2)
    # 110 kB for each block: 2; 120 kB: 1.
    assert times.occupancy(CARD, kernel, {"block": 32, "shared": 100 << 10, "grid": 1}).blocks == 2
    assert times.occupancy(CARD, kernel, {"block": 32, "shared": 110 << 10, "grid": 1}).blocks == 1


def test_passes_are_limited_by_latency_or_by_the_busiest_unit(kernel):
    (loop,) = kernel.loops
    one_ghz = dataclasses.replace(CARD, ghz=1)
    few = {"block": 32, "shared": 0, "grid": 1}
    assert times.seconds_of_passes(one_ghz, kernel, few, loop, 10) == pytest.approx(10 * 329e-9)
    # 100 loads that nothing waits for: 16 cycles of memory each, which the 20 warps of an SM share by 4 quarters.
    loads = times.Loop(loop.body[:1] * 100, True)
    many = {"block": 160, "shared": 0, "grid": 4 * 132}
    assert times.seconds_of_passes(one_ghz, kernel, many, loads, 132 * 20) == pytest.approx(1600 * 20 / 4 * 1e-9)
    slow = {"block": 160, "shared": 0, "grid": 1}
    assert times.seconds_of_steps(one_ghz, kernel, slow, loop, 7) == pytest.approx(7 * 129e-9)


def test_a_row(kernel):
    row = {"name": "float32 deform_conv [1, 100, 152, 128]", "device": "cuda", "ms": 0, "bytes": 3e9}
    launch = {"kernel": "_Z6KernelIfEvv", "grid": 132, "block": 256, "shared": 1024}
    (text,) = times.table(CARD, {"_Z6KernelIfEvv": kernel}, [(row, [launch])])[-1:]
    passes = 100 * 152 * 9 * 128 * 128 / 32  # one multiply-add each; 132 SMs of 8 warps
    ms = passes / (132 * 8) * 329 / 1.7e6 + 0.0025
    assert text == (f"| {row['name']} | 90, 8, 10 kB | 8 | 1 | {ms:.2g} | operations | 0.22 | {0.22 / ms:.1f} |")


def test_steps_wait_for_each_other(kernel):
    kernel.code[5].name = "BAR.SYNC"  # was MUFU
    row = {"name": "float32 crf_decode [64, 128, 20]", "device": "cuda", "ms": 0, "bytes": 0}
    launches = [{"kernel": "_Z6KernelIfEvv", "grid": 64, "block": 32, "shared": 0}] * 2
    parts, _ = times.estimate(CARD, {"_Z6KernelIfEvv": kernel}, row, launches)
    cycles = 100 + 4 + 2 + 30 + 5  # a near load, FFMA, the barrier, the branch
    assert parts["steps"] == pytest.approx(128 * cycles / 1.7e6)  # in two launches
    assert parts["launches"] == pytest.approx(0.005)
    row["name"] = "float32 ctc_loss [32, 400, 128], 60 labels"
    assert times.estimate(CARD, {"_Z6KernelIfEvv": kernel}, row, launches)[0]["steps"] == pytest.approx(
        400 * cycles / 1.7e6
    )
    kernel.code[4].name = "BAR.SYNC"  # a second one, of the next step; was FFMA
    del kernel.__dict__["loops"]
    assert times.estimate(CARD, {"_Z6KernelIfEvv": kernel}, row, launches)[0]["steps"] == pytest.approx(
        200 * (cycles + 30) / 1.7e6
    )


PROGRAM = """
#include <cstdio>
struct Dim3 { unsigned x, y, z; };
extern "C" {
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
int cudaLaunchKernel(const void*, Dim3, Dim3, void**, size_t, void*);
int cudaMemsetAsync(void*, int, size_t, void*);
int cudaEventCreate(void**);
int cudaEventRecord(void*, void*);
}
int main() {
  static const char stub = 0;
  void* event;
  __cudaRegisterFunction(nullptr, &stub, nullptr, "_Z6Kernelv", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  for (int i = 0; i < 2; ++i) cudaEventCreate(&event);
  for (int run = 0; run < 3; ++run) {
    cudaMemsetAsync(nullptr, 0, 1 << 20, nullptr);  // of the cache
    cudaEventRecord(event, nullptr);
    cudaMemsetAsync(nullptr, 0, 16, nullptr);
    cudaLaunchKernel(&stub, {7, 1, 1}, {64, 1, 1}, nullptr, 48, nullptr);
    cudaEventRecord(event, nullptr);
  }
  std::puts("{\\"name\\": \\"float32 case\\", \\"device\\": \\"cuda\\", \\"ms\\": 0, \\"bytes\\": 1}");
  std::puts("{\\"name\\": \\"of a CPU\\", \\"device\\": \\"cpu\\", \\"ms\\": 0, \\"bytes\\": 1}");
}
"""


def test_launches_of_the_first_run_are_recorded(tmp_path):
    (tmp_path / "other.cc").write_text("int other;")
    (tmp_path / "program_test.cc").write_text(PROGRAM)
    for name in ("other", "program_test"):
        subprocess.run(["g++", "-c", f"{name}.cc", "-o", f"{name}.o"], cwd=tmp_path, check=True)
    ((row, launches),) = times.record(tmp_path, pathlib.Path(tmp_path))
    assert row["name"] == "float32 case"
    assert launches == [{"zeros": 16}, {"kernel": "_Z6Kernelv", "grid": 7, "block": 64, "shared": 48}]
