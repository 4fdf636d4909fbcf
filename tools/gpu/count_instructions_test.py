"""Tests count_instructions.py."""

import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).with_name("count_instructions.py")
# A loop over tiles: an inner loop, a slow path, copies unless it is the last tile.
CODE = """
.text._Z6Attend:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_4:
        /*0008*/                   HMMA.16816.F32 R4, R8, R12, RZ ;
.L_x_0:
        /*0010*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0020*/              @!P0 BRA `(.L_x_0) ;
        /*0030*/                   BRA.U UP0, `(.L_x_1) ;
        /*0040*/                   MUFU.EX2 R2, R2 ;
        /*0050*/                   FADD R2, R2, R3 ;
        /*0060*/                   BRA `(.L_x_2) ;
.L_x_1:
        /*0070*/                   FADD R2, R2, R3 ;
.L_x_2:
        /*0078*/                   BRA.DIV ~URZ, `(.L_x_3) ;
        /*0080*/               @P1 BRA `(.L_x_3) ;
        /*0090*/                   LDGSTS.E.BYPASS.128 [R5], [R6.64] ;
        /*00a0*/               @P3 LDGSTS.E.BYPASS.128 [R5+0x80], [R6.64] ;
.L_x_3:
        /*00b0*/               @P2 CALL.REL.NOINC `(.L_x_5) ;
        /*00b8*/                   BRA `(.L_x_4) ;
.L_x_5:
        /*00c0*/                   EXIT ;
.text._Z5Other:
        /*0000*/                   EXIT ;
"""


def run(*arguments):
    return subprocess.check_output([sys.executable, SCRIPT, *arguments], input=CODE, text=True).splitlines()


def test_counts_the_shortest_path_of_each_number_of_copies():
    rest = "0 LDSM, 0 MUFU, 0 LDS, 0 LDL, 0 LDG, 0 SHFL"
    none, two = run()
    assert none == f"_Z6Attend: 9 instructions, 2 HMMA, 0 LDGSTS, {rest}"
    assert two == f"_Z6Attend: 11 instructions, 2 HMMA, 2 LDGSTS, {rest}"
    assert run("--copies", "2", "Attend") == [two]
    assert run("--copies", "1") == run("Other") == []
