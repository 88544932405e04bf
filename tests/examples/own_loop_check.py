"""Runs examples/01_own_loop alone and under `sherd run`: it learns, and ranks change its losses by rounding only.

usage: own_loop_check.py SHERD PROGRAM
"""
import subprocess
import sys


def losses(command):
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, f"{command}: exit {run.returncode}: {run.stderr}"
    rows = [line.split() for line in run.stdout.splitlines()]
    assert [row[:2] for row in rows] == [["step", str(50 * i)] for i in range(1, 9)], run.stdout
    return [float(row[3]) for row in rows]


def main(sherd, program):
    alone = losses([program])
    assert alone[0] > 0.1 and alone[-1] < 0.005, alone
    for ranks in (2, 3, 8):
        together = losses([sherd, "run", "-n", str(ranks), program])
        for one, many in zip(alone, together):
            assert abs(one - many) <= 0.01 * one + 3e-5, (ranks, alone, together)


if __name__ == "__main__":
    main(*sys.argv[1:])
