#!/usr/bin/env python3
"""Fuzzes the readers, one after another, on one core, and says what was found.

usage: run.py BUILD [--minutes M] [--corpus DIR] [TARGET...]

BUILD is a build folder with -Dfuzz=true. What each target learns is kept in DIR/<target> (default BUILD/corpus) and used the
next time. Exits 1 when an input broke a promise; the input is left in BUILD/findings/<target>.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Limits per input: seconds, MiB of the process, MiB of one allocation (a file of a few KiB needs none as large), bytes.
LIMITS = ["-timeout=10", "-rss_limit_mb=2048", "-malloc_limit_mb=64", "-max_len=8192"]
CAUSES = re.compile(r"does not hold: .*|last cause: .*|.*runtime error: .*|SUMMARY: (?!libFuzzer: deadly signal).*")


def targets_of(build):
    folder = os.path.join(build, "tests/fuzz")
    seeds = os.path.join(folder, "seeds")
    return sorted(name for name in os.listdir(seeds) if os.access(os.path.join(folder, "fuzz-" + name), os.X_OK)) if os.path.isdir(seeds) else []


def fuzz(build, target, seconds, corpus):
    """Runs one target; (exit status, its output, the input it stopped at or None)."""
    folder = os.path.join(build, "tests/fuzz")
    learned, findings = os.path.join(corpus, target), os.path.join(build, "findings", target)
    known = os.path.join(HERE, "regressions", target)
    os.makedirs(learned, exist_ok=True)
    os.makedirs(findings, exist_ok=True)
    before = set(os.listdir(findings))
    command = [os.path.join(folder, "fuzz-" + target), f"-max_total_time={seconds}", *LIMITS, "-print_final_stats=1",
               f"-artifact_prefix={findings}/"]
    dictionary = os.path.join(folder, target + ".dict")
    if os.path.exists(dictionary):
        command.append("-dict=" + dictionary)
    command += [learned, os.path.join(folder, "seeds", target)] + ([known] if os.path.isdir(known) else [])
    # Readers get files: where the system has memory for them, no disk is worn. What a crash leaves behind goes with the folder.
    with tempfile.TemporaryDirectory(prefix="sherd-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as scratch:
        environment = dict(os.environ, TMPDIR=scratch, ASAN_OPTIONS="quarantine_size_mb=16", UBSAN_OPTIONS="print_stacktrace=1",
                           **symbolizer())
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    new = sorted(set(os.listdir(findings)) - before)
    return done.returncode, done.stdout, os.path.join(findings, new[0]) if new else None


def symbolizer():
    """Debian keeps it out of the path; without it, stacks have no lines."""
    found = shutil.which("llvm-symbolizer") or max(glob.glob("/usr/lib/llvm-*/bin/llvm-symbolizer"), default=None)
    return {"ASAN_SYMBOLIZER_PATH": found, "UBSAN_SYMBOLIZER_PATH": found} if found else {}


def number(pattern, text, default=0):
    found = re.findall(pattern, text)
    return int(found[-1]) if found else default


def report_line(target, text, seconds):
    units = number(r"stat::number_of_executed_units:\s*(\d+)", text)
    edges, known = number(r"\bcov: (\d+)", text), number(r"INFO: Loaded \d+ modules\s+\((\d+)", text)
    inputs = number(r"\bcorp: (\d+)", text)
    share = 100 * edges // known if known else 0
    return f"{target:<12} {units:>11,} {units / max(seconds, 1e-9):>9,.0f} {edges:>6,} of {known:>6,} {share:>3} % {inputs:>7,}"


def report_finding(build, target, text, path):
    print(f"\nFOUND in {target}:")
    for line in dict.fromkeys(match.group(0) for match in CAUSES.finditer(text)):
        print("  " + line)
    if not path:
        print("\n".join(text.splitlines()[-20:]))
        return
    program = os.path.join(build, "tests/fuzz", "fuzz-" + target)
    print(f"  input: {path} ({os.path.getsize(path)} bytes)")
    print(f"  again: {program} {path}")
    print(f"  less:  {program} -minimize_crash=1 -max_total_time=60 -exact_artifact_path=smaller {path}")
    print(f"  when it is mended: keep it as tests/fuzz/regressions/{target}/WHAT-IT-IS, which ./dev test replays\n")


def main():
    parser = argparse.ArgumentParser(description="Fuzzes the readers, one after another.")
    parser.add_argument("build")
    parser.add_argument("--minutes", type=float, default=2, help="for each target")
    parser.add_argument("--corpus", help="where what is learned is kept")
    parser.add_argument("targets", nargs="*")
    args = parser.parse_intermixed_args()
    build = os.path.abspath(args.build)
    known = targets_of(build)
    unknown = [target for target in args.targets if target not in known]
    if unknown or not known:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(known) or 'none in this build folder'}")
    corpus = os.path.abspath(args.corpus or os.path.join(build, "corpus"))
    print(f"{'target':<12} {'executions':>11} {'a second':>9} {'edges reached':>22} {'inputs':>7}", flush=True)
    found = 0
    for target in args.targets or known:
        start = time.monotonic()
        code, text, path = fuzz(build, target, max(1, round(60 * args.minutes)), corpus)
        print(report_line(target, text, time.monotonic() - start), flush=True)
        if code != 0:
            found += 1
            report_finding(build, target, text, path)
    print(f"{found} of {len(args.targets or known)} readers broke a promise" if found else "nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
