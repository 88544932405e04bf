#!/usr/bin/env python3
"""What a job leaves to look at, read as other programs would read it: events.jsonl, provenance.json,
TensorBoard's files and traces of steps.

usage: test_seeing.py SHERD [--only CHECK]
"""
import argparse
import collections
import glob
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

from jobs import Job, need, read, run_checks, write_files
from read_tensorboard import read_events

LIMIT_S = 60


def strict(line):
    """One JSON value, without NaN and Infinity, and without a key that comes twice."""
    def refuse(text):
        raise ValueError(text)

    def pairs(items):
        need(len({key for key, _ in items}) == len(items), f"a key comes twice: {line}")
        return dict(items)
    return json.loads(line, parse_constant=refuse, object_pairs_hook=pairs)


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    need(text.endswith("\n"), f"{path} ends within a line")
    return [strict(line) for line in text.splitlines()]


def train(sherd, job_path, ranks, settings, run_dir=None, code=0):
    with Job(sherd, job_path, ranks, settings, run_dir=run_dir) as job:
        need(job.wait(LIMIT_S) == code, f"exit code {job.launcher.returncode}: {job.said()}")
        return job.run_dir


def program_of(sherd, job_path, ranks, settings):
    """The instructions of rank 0's step, counted: (queue, name, micro-step, -1 where none is printed)."""
    command = [sherd, "plan", job_path, "-n", str(ranks), "--program"]
    for setting in settings:
        command += ["--set", setting]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = collections.Counter()
    for line in lines:
        queue, name, micro_step = re.match(r" *\d+ (\w+) +([A-Z_]+(?: [^,;]+)?)(?:, micro-step (\d+))?", line).groups()
        found[queue, name, int(micro_step or -1)] += 1
    return found


def span(event):
    """When a slice begins and ends, in whole nanoseconds."""
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)


def need_nested(slices, track):
    """Slices of a track lie behind or within each other."""
    open_ends = []
    for begin, end in sorted(slices, key=lambda s: (s[0], -s[1])):
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        need(not open_ends or end <= open_ends[-1], f"slices overlap on {track}")
        open_ends.append(end)


def check_trace(sherd, job_path):
    """A trace has each rank's queues as tracks, and on them every instruction of the step's program once, in its order."""
    settings = ["train.steps=4", "log.trace_steps=[2, 4, 9]", "shard.gather=copy", "train.evaluate_every=2", "checkpoint.every=1"]
    for ranks in (1, 2, 4):
        run_dir = train(sherd, job_path, ranks, settings)
        need(sorted(os.listdir(os.path.join(run_dir, "trace"))) == ["step-00000002.json", "step-00000004.json"], "files")
        trace = strict(read(os.path.join(run_dir, "trace", "step-00000004.json")).decode())
        about = trace["otherData"]
        need((about["step"], about["ranks"], about["cut_ranks"]) == (4, ranks, 0), f"about: {about}")
        need(abs(about["unix_ns"] / 1e9 - time.time()) < 3600, "when it was")
        names, slices = {}, collections.defaultdict(list)
        for event in trace["traceEvents"]:
            place = event["pid"], event["tid"]
            if event["ph"] == "M" and event["name"].endswith("_name"):
                names[(*place, event["name"])] = event["args"]["name"]
            elif event["ph"] == "X":
                need(event["ts"] >= 0 and event["dur"] >= 0, f"times: {event}")
                slices[place].append(event)
        tracks = {place: (names[(*place, "process_name")], names[(*place, "thread_name")]) for place in slices}
        need(len({tid for _, tid in slices}) == len(slices), "a thread of two ranks")
        need(len(set(tracks.values())) == len(tracks), f"tracks: {tracks}")
        program = program_of(sherd, job_path, ranks, settings)
        for rank in range(ranks):
            found, last = collections.Counter(), {}
            for place, (process, queue) in tracks.items():
                if process != f"rank {rank}":
                    continue
                need_nested(map(span, slices[place]), f"{process}, {queue}")
                for event in slices[place]:
                    if event["cat"] == "instruction":
                        micro_step = event["args"].get("micro_step", -1)
                        key = queue, event["name"], micro_step
                        found[key if key in program else (queue, event["name"], -1)] += 1
                        last[queue] = max(last.get(queue, 0), span(event)[1])
                data = [event for event in slices[place] if event["cat"] == "step" and event["name"] == "DATA"]
                need(len(data) == (1 if queue == "data" else 0), f"{len(data)} x DATA on {queue}")
            need(found == program, f"rank {rank}: {found - program} too much, {program - found} missing")
            need(last["compute"] == max(last.values()), "something ends behind the last instruction of the program")


def as_float32(value):
    if isinstance(value, str):
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value]
    return struct.unpack("<f", struct.pack("<f", float(value)))[0]


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def need_same_scalars(row, scalars):
    by_name = {tag.split("/", 1)[1]: value for tag, value in scalars.items()}
    need(len(by_name) == len(scalars), f"a name comes in two groups: {sorted(scalars)}")
    wanted = {name: value for name, value in row.items() if name != "step" and not isinstance(value, (list, dict))}
    wanted |= row.get("memory_bytes", {})
    need(set(wanted) == set(by_name), f"step {row['step']}: not the same names: {set(wanted) ^ set(by_name)}")
    for name, value in wanted.items():
        exact = as_float32(value)
        # The row has 9 digits, which tell a float32 but for its last bit.
        close = same(exact, by_name[name]) or abs(exact - by_name[name]) <= 2e-7 * abs(exact)
        need(close, f"step {row['step']}: {name} is {value} and {by_name[name]}")


def check_tensorboard(sherd, job_path):
    """Two files, of a run and of its continuation, have the scalars of every row, and say where each starts."""
    settings = ["log.tensorboard=true", "train.evaluate_every=2", "log.peak_tflops=0.5"]
    run_dir = train(sherd, job_path, 2, settings + ["train.steps=4"])
    train(sherd, job_path, 2, settings + ["train.steps=6"], run_dir)
    rows = lines_of(os.path.join(run_dir, "metrics.jsonl"))
    paths = sorted(glob.glob(os.path.join(run_dir, "tensorboard", "events.out.tfevents.*")))
    need(len(paths) == 2, f"files: {paths}")
    found = []
    for path, first, count in zip(paths, (0, 4), (4, 2)):
        version, start, *scalars = read_events(path)
        need(version.get("version") == "brain.Event:2", f"{path} begins with {version}")
        need(start.get("status") == 1 and start["step"] == first, f"{path} starts with {start}")
        need([event["step"] for event in scalars] == list(range(first, first + count)), f"steps of {path}")
        need(all(abs(event["wall_time"] - time.time()) < 3600 for event in scalars), "times")
        found += scalars
    need(len(rows) == 6, f"{len(rows)} rows")
    for row, event in zip(rows, found):
        need_same_scalars(row, event["scalars"])
    need({"mfu", "param_norm", "rank_step_ms_median"} <= set(rows[0]), f"row 0: {sorted(rows[0])}")
    need("validation/validation_loss" in found[1]["scalars"] and "validation/validation_loss" not in found[0]["scalars"], "validation")
    need("memory/parameters" in found[0]["scalars"], "memory by use")


def check_no_tensorboard(sherd, job_path):
    """Nobody asked for it, so nothing is there."""
    run_dir = train(sherd, job_path, 1, ["train.steps=2"])
    need(not os.path.exists(os.path.join(run_dir, "tensorboard")), "a folder tensorboard")


def kinds(run_dir):
    events = lines_of(os.path.join(run_dir, "events.jsonl"))
    need(all(abs(event["time"] - time.time()) < 3600 for event in events), f"times: {events}")
    return [(event["event"], event.get("step")) for event in events]


def check_events(sherd, job_path):
    """A run, its stop, its continuation and its end are events in this order, once for all ranks."""
    with Job(sherd, job_path, 2, ["checkpoint.every=5"]) as job:
        job.wait_for_rows(7)
        job.launcher.terminate()
        code = job.wait(LIMIT_S)
        need(code == 143, f"exit code {code}: {job.said()}")
        run_dir = job.run_dir
    seen = kinds(run_dir)
    last = seen[-1][1]
    saves = [("save", step) for step in range(5, last, 5)] + [("save", last)]
    need(seen == [("start", 0), *saves, ("stop", last)], f"events: {seen}")
    train(sherd, job_path, 1, [f"train.steps={last + 2}", "checkpoint.every=0"], run_dir)
    need(kinds(run_dir)[len(seen):] == [("resume", last), ("save", last + 2), ("end", last + 2)], f"events: {kinds(run_dir)}")
    train(sherd, job_path, 1, [f"train.steps={last + 2}"], run_dir)
    need(len(kinds(run_dir)) == len(seen) + 3, "a run with nothing to do has told something")


def check_provenance(sherd, job_path):
    """What a run was made with is there, and stays there when it goes on with other settings."""
    run_dir = train(sherd, job_path, 2, ["train.steps=2", "shard.stage=2"])
    train(sherd, job_path, 1, ["train.steps=3"], run_dir)
    first, second = (strict(read(os.path.join(run_dir, name)).decode()) for name in ("provenance.json.1", "provenance.json"))
    records = sorted(name for name in os.listdir(run_dir) if name.startswith("provenance"))
    need(records == ["provenance.json", "provenance.json.1"], f"files: {records}")
    need((first["first_step"], second["first_step"]) == (0, 2), "first steps")
    need("resumed_from" not in first and second["resumed_from"].endswith("step-00000002"), "where it went on from")
    need((first["mesh"]["ranks"], first["mesh"]["stage"], second["mesh"]["ranks"]) == (2, 2, 1), "meshes")
    need(first["job"]["shard"]["stage"] == 2 and first["job"]["train"]["steps"] == 2, "the job as resolved")
    words = first["command"]
    need(words[1] == "train" and "shard.stage=2" in words and not any(word.startswith("--as-rank") for word in words), f"command: {words}")
    need(first["hosts"] == {os.uname().nodename: [0, 1]} and "gpus" not in first, "hosts, and no word of what is not looked for")
    need(first["kernel"]["release"] == os.uname().release, "kernel")
    need(first["cpu"]["cores"] == os.sysconf("SC_NPROCESSORS_ONLN"), "cores")
    need(first["cpu"]["usable_cores"] == len(os.sched_getaffinity(0)), "usable cores")
    need(first["memory"]["total_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "memory")
    need(any(name.startswith("libzstd.so") for name in first["libraries"]), f"libraries: {first['libraries']}")
    version = subprocess.run([sherd, "--version"], capture_output=True, text=True).stdout
    need(first["sherd"]["version"] in version, "version")
    found = {(entry["key"], os.path.basename(entry["path"])): entry for entry in first["data"]}
    need(set(found) == {("data.train", "train.txt"), ("data.validation", "validation.txt")}, f"data: {found}")
    for (_, name), entry in found.items():
        path = os.path.join(os.path.dirname(job_path), name)
        need(entry["bytes"] == os.path.getsize(path) and len(entry["xxh3"]) == 16, f"{name}: {entry}")
    need(abs(time.time() - time.mktime(time.strptime(first["time"], "%Y-%m-%dT%H:%M:%SZ")) + time.timezone) < 3600, first["time"])
    text = read(os.path.join(run_dir, "provenance.json")).decode()
    need("/build" not in json.dumps(second["sherd"]) and text.endswith("}\n"), "a path of the build")


def memory_limit_path():
    """Where the limit of memory of the control group of this process stands, which need not be the topmost."""
    unified = None
    for line in read("/proc/self/cgroup").decode().splitlines():
        _, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            return f"/sys/fs/cgroup/memory{group}/memory.limit_in_bytes"
        if not controllers:
            unified = f"/sys/fs/cgroup{group}/memory.max"
    return unified


def check_limit(sherd, job_path):
    """The limit of the control group around the process is in provenance.json."""
    path = memory_limit_path()
    if not path or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        print("no mounts of one's own here")
        return
    script = 'mount -t tmpfs tmpfs /sys/fs/cgroup && mkdir -p "${0%/*}" && echo 987652096 > "$0" && exec "$@"'
    with Job(sherd, job_path, 2, ["train.steps=1"], prefix=["unshare", "-rm", "sh", "-c", script, path]) as job:
        need(job.wait(LIMIT_S) == 0, f"exit code {job.launcher.returncode}: {job.said()}")
        memory = strict(read(os.path.join(job.run_dir, "provenance.json")).decode())["memory"]
    need(memory.get("limit_bytes") == 987652096, f"memory: {memory}")


def check_failure(sherd, job_path):
    """A killed rank is the failure, by its number; so is a bad row of data, in the words of the rank that met it."""
    with Job(sherd, job_path, 2) as job:
        job.wait_for_rows(3)
        job.signal(job.rank_pids()[1], signal.SIGKILL)
        need(job.wait(LIMIT_S) == 4, f"exit code {job.launcher.returncode}")
        events = lines_of(os.path.join(job.run_dir, "events.jsonl"))
    failures = [event for event in events if event["event"] == "failure"]
    need(len(failures) == 1 and failures[0]["rank"] == 1 and "signal 9 (SIGKILL)" in failures[0]["text"], f"events: {events}")
    need(failures[0].get("step", 0) >= 1 and events[-1] == failures[0], f"step: {failures}")
    # Parameters that no step can come back from.
    with Job(sherd, job_path, 1, ["optimizer.lr=1.0e+30", "train.steps=60", "train.clip=0"]) as job:
        code = job.wait(LIMIT_S)
        events = lines_of(os.path.join(job.run_dir, "events.jsonl"))
    need(code == 1, f"exit code {code}")
    need([event["event"] for event in events].count("failure") == 1, f"events: {events}")


def norm_of(path):
    """2-norm of all tensors of a safetensors file of float32."""
    content = read(path)
    size = struct.unpack("<Q", content[:8])[0]
    tensors = {name: about for name, about in json.loads(content[8:8 + size]).items() if name != "__metadata__"}
    need(all(about["dtype"] == "F32" for about in tensors.values()), "types")
    end = max(about["data_offsets"][1] for about in tensors.values())
    return math.sqrt(math.fsum(value * value for (value,) in struct.iter_unpack("<f", content[8 + size:8 + size + end])))


def check_parameter_norm(sherd, job_path):
    """The norm of a row is that of the checkpoint before it, and has the same bits on any ranks and stage."""
    wanted = None
    for ranks, stage in ((1, 3), (2, 0), (2, 1), (4, 2), (4, 3)):
        run_dir = train(sherd, job_path, ranks, ["train.steps=3", "checkpoint.every=1", "checkpoint.keep=0", f"shard.stage={stage}"])
        norms = [row["param_norm"] for row in lines_of(os.path.join(run_dir, "metrics.jsonl"))]
        wanted = wanted or norms
        need(norms == wanted, f"{ranks} ranks, stage {stage}: {norms}, not {wanted}")
    for step in (1, 2):
        out = os.path.join(run_dir, f"{step}.safetensors")
        subprocess.run([sherd, "checkpoint", "export", os.path.join(run_dir, "checkpoints", f"step-{step:08d}"), out], check=True, capture_output=True)
        need(abs(norm_of(out) - wanted[step]) <= 1e-12 * wanted[step], f"step {step}: {wanted[step]}, not {norm_of(out)}")


CHECKS = {"parameter-norm": check_parameter_norm, "failure": check_failure, "provenance": check_provenance, "limit": check_limit, "tensorboard": check_tensorboard, "no-tensorboard": check_no_tensorboard, "events": check_events, "trace": check_trace}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sherd")
    parser.add_argument("--only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        job_path = write_files(folder)
        failed = run_checks(CHECKS, args.only, args.sherd, job_path)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
