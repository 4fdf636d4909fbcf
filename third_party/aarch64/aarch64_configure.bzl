"""Debian's cross compiler for aarch64, and an emulator: installed in /, or by tools/setup/aarch64.sh."""

_RUN = """#!/bin/sh
exec "{root}/usr/bin/qemu-aarch64{static}" -L "{root}/usr/aarch64-linux-gnu" "$@"
"""

def _aarch64_configure_impl(ctx):
    root = ctx.os.environ.get("TFO_AARCH64_ROOT", "")
    ctx.template("BUILD", Label("//third_party/aarch64:toolchain.BUILD"), {"%{root}": root})
    ctx.file("run.sh", _RUN.format(root = root, static = "-static" if root else ""))

aarch64_configure = repository_rule(
    implementation = _aarch64_configure_impl,
    doc = "Creates @local_config_aarch64: //:toolchain, and //:run.sh, which runs a program for aarch64.",
    environ = ["TFO_AARCH64_ROOT"],
)
