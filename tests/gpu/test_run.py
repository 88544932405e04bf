#!/usr/bin/env python3
"""tests/gpu/run itself, on the software device: every step that needs no GPU runs, what needs one is told as left out.

usage: test_run.py NAME PROGRAM [NAME PROGRAM]...    the programs, linked with the software device"""
import json
import os
import subprocess
import sys
import tempfile

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run")
# Stands for a tool of the toolkit: runs the program behind its options.
TOOL = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
"""
# By each call more of the device is taken.
NVIDIA_SMI = """#!/bin/sh
case "$1" in
*memory.used*)
    echo x >>"$0.calls"
    echo $((100 * $(wc -l <"$0.calls"))) ;;
*) echo "software device, 0.0, 16384 MiB, 0 MHz, 0 MHz" ;;
esac
"""


def run(folder, *arguments, path=""):
    out = os.path.join(folder, "out")
    process = subprocess.run([sys.executable, RUN, "--programs", os.path.join(folder, "bin"), "--rehearse", *arguments],
                             env={**os.environ, "OUT": out, "PATH": path + os.environ["PATH"]}, capture_output=True, text=True)
    print(process.stdout + process.stderr)
    if process.returncode == 2:
        sys.exit("it had nothing to run")
    with open(os.path.join(out, "results.json")) as file:
        rows = {row["step"]: row for row in json.load(file)["rows"]}
    if any(row["result"] == "FAILED" for row in rows.values()):
        with open(os.path.join(out, "log.txt")) as file:
            print(file.read()[-6000:], file=sys.stderr)
    return process.returncode, rows


def expect(holds, what):
    if not holds:
        sys.exit("test_run.py: " + what)


def write_tool(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


def main():
    with tempfile.TemporaryDirectory() as folder:
        programs, tools = os.path.join(folder, "bin"), os.path.join(folder, "tools")
        os.mkdir(programs)
        os.mkdir(tools)
        for name, program in zip(sys.argv[1::2], sys.argv[2::2]):
            os.symlink(os.path.abspath(program), os.path.join(programs, name))
        write_tool(tools, "compute-sanitizer", TOOL)
        write_tool(tools, "nvidia-smi", NVIDIA_SMI)

        code, rows = run(folder, path=tools + ":")
        steps = subprocess.run([sys.executable, RUN, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
        expect(list(rows) == [line.split()[0] for line in steps], "not every step has a row")
        expect(code == 0 and all(row["result"] == "ok" for row in rows.values()), "a step did not run to its end")

        # Without the tools: said, and no failure.
        code, rows = run(folder, "--only", "versions,memcheck")
        if not any(os.path.exists(f"{place}/compute-sanitizer") for place in os.environ["PATH"].split(":")):
            expect(code == 0 and "compute-sanitizer" in rows["memcheck"]["why"], "a missing tool is not told")

        # A program that fails, one that does not end, one that is missing.
        for name, text in (("gpu-device", "#!/bin/sh\necho broken; exit 3\n"), ("gpu-products", "#!/bin/sh\nsleep 60\n")):
            os.remove(os.path.join(programs, name))
            write_tool(programs, name, text)
        os.remove(os.path.join(programs, "gpu-ops"))
        code, rows = run(folder, "--only", "device,kernels,products,memory", "--minutes", "0.15")
        expect(code == 1, f"exit code {code} in spite of failures")
        expect("ended with 3: broken" in rows["device"]["why"], "the failing program is not told")
        expect("ran for more than" in rows["products"]["why"], "the hanging program is not told")
        expect(rows["kernels"]["result"] == "left out" and "no gpu-ops" in rows["kernels"]["why"], "the missing program is not told")
        expect(rows["memory"]["result"] == "left out" and "no time" in rows["memory"]["why"], "that time is up is not told")


if __name__ == "__main__":
    main()
