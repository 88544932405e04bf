#!/usr/bin/env python3
"""Checkpoints of GPT-2 124M (configs/gpt2-124m.yaml) with AdamW: how fast, how small, and what training pays for them.

usage: bench_checkpoint.py SHERD CONFIG [--steps N] [--context N] [--ranks N] [--precision fp32|bf16] [--folder DIR] [--compression N]

Trains --steps steps on the words of this machine's documentation, so that the state is a trained one, and saves; resumes from
that, and saves every third step asynchronously.  In the same run the disk under the folder is measured with O_DIRECT and
blocks of 4 MiB, as many threads as ranks, before and after, and the codec with `sherd checkpoint verify`, which only reads and decodes.  Prints one table,
and what was found against what is aimed at.  Steps with a save under way are compared with those without, in one job.
Needs about 5 GB of memory and 5 GB in the folder.
"""
import argparse
import glob
import json
import mmap
import os
import re
import struct
import sys
import tempfile
import threading
import time
import zlib

from checkpoints import RankFile, files_of, path_of
from jobs import Job, read

BLOCK_BYTES = 4 << 20
EVERY = 3
LIMIT_S = 3600
WRITERS = ("sherd-writer",)
SIZE = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 260 / 256}
TEXTS = ("/usr/share/doc/**/*", "/usr/lib/python3*/**/*.py", "/usr/include/**/*.h")
TICKS = os.sysconf("SC_CLK_TCK")


def write_tokens(path, count):
    """Words and what is between them, each with a number below 50257: frequencies as texts have them."""
    ids = []
    for pattern in TEXTS:
        for name in sorted(glob.glob(pattern, recursive=True)):
            if len(ids) >= count:
                break
            if os.path.isfile(name) and not name.endswith(".gz"):
                ids += [zlib.crc32(word) % 50257 for word in re.findall(rb"\w+|[^\w\s]|\s+", read(name)[:100000])]
    if len(ids) < count:
        ids *= -(-count // max(len(ids), 1))
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253) + struct.pack(f"<{count}H", *ids[:count]))


def disk_speeds(folder, total_bytes, threads):
    """GB/s of writing, syncing included, and of reading past the page cache."""
    paths = [os.path.join(folder, f"disk-{i}") for i in range(threads)]
    count = -(-total_bytes // threads // BLOCK_BYTES)

    def work(path, flags, call):
        buffer = mmap.mmap(-1, BLOCK_BYTES)
        buffer.write(os.urandom(BLOCK_BYTES))
        descriptor = os.open(path, flags | os.O_DIRECT, 0o600)
        for i in range(count):
            call(descriptor, buffer, i * BLOCK_BYTES)
        if flags & os.O_WRONLY:
            os.fsync(descriptor)
        os.close(descriptor)

    def speed(flags, call):
        workers = [threading.Thread(target=work, args=(path, flags, call)) for path in paths]
        began = time.monotonic()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return threads * count * BLOCK_BYTES / (time.monotonic() - began) / 1e9

    result = (speed(os.O_WRONLY | os.O_CREAT, os.pwrite), speed(os.O_RDONLY, lambda d, b, at: os.preadv(d, [b], at)))
    for path in paths:
        os.unlink(path)
    return result


def cpu_seconds(pid, names):
    """Of a process' threads with one of the names."""
    total = 0
    for task in glob.glob(f"/proc/{pid}/task/*"):
        if read(f"{task}/comm").decode().strip() in names:
            fields = read(f"{task}/stat").rpartition(b")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / TICKS if fields else 0
    return total


class Watched:
    """A job that is watched until it ends: peak resident memory and writers' CPU seconds of its ranks, and when what was said."""

    def __init__(self, arguments, job_path, settings, folder):
        keys = {"train.global_batch": 8, "train.micro_batch": 4, "train.evaluate_every": 0, "model.context": arguments.context, "data.validation": "null",
                "data.train": f"{folder}/tokens.bin", "optimizer.warmup_steps": 2, "train.precision": arguments.precision,
                "checkpoint.compression": arguments.compression, **settings}
        self.resident, self.writers, self.first_row_s, self.loaded_s = {}, {}, None, None
        began = time.monotonic()
        with Job(arguments.sherd, job_path, arguments.ranks, [f"{key}={value}" for key, value in keys.items()],
                 tempfile.mkdtemp(dir=folder)) as job:
            while job.launcher.poll() is None and time.monotonic() < began + LIMIT_S:
                for rank, pid in job.rank_pids().items():
                    peak = re.search(r"VmHWM:\s*(\d+)", read(f"/proc/{pid}/status").decode())
                    if peak:
                        self.resident[rank] = max(self.resident.get(rank, 0), int(peak[1]) << 10)
                    self.writers[rank] = max(self.writers.get(rank, 0), cpu_seconds(pid, WRITERS))
                time.sleep(0.01)
            if job.wait(5):
                sys.exit(f"a job failed: {job.said()}")
            self.said, self.run_dir = job.said(), job.run_dir
            self.rows = [json.loads(line) for line in job.rows().splitlines()]
        self.folder = os.path.join(self.run_dir, "checkpoints")

    def seconds(self, pattern):
        return [float(found) for found in re.findall(pattern, self.said)]


def kinds(path):
    """{(what, which tensors): (raw bytes, stored bytes)} of a checkpoint."""
    found = {}
    for name in files_of(path):
        if not name.startswith("rank-"):
            continue
        for block in RankFile(os.path.join(path, name)).blocks:
            tensor = block["tensor"]
            which = "embeddings" if tensor.startswith(("wte", "wpe")) else "matrices" if re.search(r"(attn|mlp)\..*weight", tensor) else "vectors"
            raw, stored = found.get((block["state"], which), (0, 0))
            found[block["state"], which] = raw + block["count"] * SIZE[block["dtype"]], stored + -(-block["bytes"] // 4096) * 4096
    return found


def mean(values):
    return sum(values) / len(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd", type=os.path.abspath)
    parser.add_argument("config", type=os.path.abspath)
    parser.add_argument("--steps", type=int, default=30, help="of training before the first save")
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--compression", type=int, default=1)
    parser.add_argument("--folder", help="where to measure; by default the temporary folder")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="sherd-bench-", dir=arguments.folder) as folder:
        write_tokens(os.path.join(folder, "tokens.bin"), 8 * arguments.context * (arguments.steps + EVERY * arguments.saves + 4))
        first = Watched(arguments, arguments.config, {"train.steps": arguments.steps, "checkpoint.every": 0, "checkpoint.async": "false"}, folder)
        path = path_of(first.folder, arguments.steps)
        found = kinds(path)
        raw, stored = (sum(part[i] for part in found.values()) for i in (0, 1))
        print("| kind | raw MB | stored MB | ratio |\n| --- | --- | --- | --- |")
        for (state, which), (one, other) in sorted(found.items()):
            print(f"| {state} of {which} | {one / 1e6:.1f} | {other / 1e6:.1f} | {one / other:.3f} |")
        print(f"| all | {raw / 1e6:.1f} | {stored / 1e6:.1f} | {raw / stored:.3f} |\n", flush=True)
        before = disk_speeds(folder, int(stored), arguments.ranks)
        more = arguments.steps + EVERY * arguments.saves + 1
        resumed = {"train.steps": more, "checkpoint.resume": path, "checkpoint.keep": 1, "optimizer.schedule": "constant"}
        second = Watched(arguments, arguments.config, {**resumed, "checkpoint.every": EVERY}, folder)
        third = Watched(arguments, arguments.config, {**resumed, "checkpoint.every": 0, "checkpoint.async": "false", "train.steps": arguments.steps + 2}, folder)
        after = disk_speeds(folder, int(stored), arguments.ranks)
        report(arguments, cores, (raw, stored), (before, after), (first, second, third))


def report(arguments, cores, sizes, disks, jobs):
    (raw, stored), (first, second, third) = sizes, jobs
    write_speed, read_speed = (max(d[i] for d in disks) for i in (0, 1))
    save_s = min(first.seconds(r"saved .*, in ([\d.]+) s") + third.seconds(r"saved .*, in ([\d.]+) s"))
    load_s = min(second.seconds(r"loaded .*, in ([\d.]+) s") + third.seconds(r"loaded .*, in ([\d.]+) s"), default=None)
    # The first step of a job touches its memory for the first time; the last save is waited for and follows no row.
    rows = second.rows[1:]
    busy = [row["step_ms"] for row in rows if row["step"] % EVERY == 0]
    quiet = [row["step_ms"] for row in rows if row["step"] % EVERY == EVERY - 1]
    waited = mean([row["save_wait_ms"] for row in rows if row["step"] % EVERY == 0])
    lost = mean(busy) - mean(quiet)
    begun = len(second.seconds(r"saved .*, in ([\d.]+) s"))
    writers = 1000 * sum(second.writers.values()) / max(begun, 1)
    print("| what | found | against |\n| --- | --- | --- |")
    print(f"| disk, O_DIRECT, written | {disks[0][0]:.2f} and {disks[1][0]:.2f} GB/s | |")
    print(f"| disk, O_DIRECT, read | {disks[0][1]:.2f} and {disks[1][1]:.2f} GB/s | |")
    print(f"| save, all waiting | {raw / save_s / 1e9:.2f} GB/s raw, {stored / save_s / 1e9:.2f} stored | {100 * stored / save_s / 1e9 / write_speed:.0f} % of the disk |")
    if load_s:
        print(f"| load | {raw / load_s / 1e9:.2f} GB/s raw, {stored / load_s / 1e9:.2f} stored | {100 * stored / load_s / 1e9 / read_speed:.0f} % of the disk |")
    print(f"| step without a save | {mean(quiet):.0f} ms | {len(quiet)} steps, {min(quiet):.0f} to {max(quiet):.0f} |")
    print(f"| step with a save under way | {mean(busy):.0f} ms | {len(busy)} steps, {min(busy):.0f} to {max(busy):.0f} |")
    print(f"| lost to an asynchronous save | {lost:.0f} ms, of it save_wait_ms {waited:.0f} | "
          f"aim: 1.2 x {writers:.0f} CPU ms of writers / {cores} cores + {waited:.0f} = {1.2 * writers / cores + waited:.0f} ms |")
    for name, job in (("trained and saved", first), ("resumed, saved asynchronously", second), ("resumed, saved waiting", third)):
        planned = max(row["peak_bytes"] for row in job.rows)
        print(f"| memory, {name} | {max(job.resident.values()) / 2**20:.0f} MiB resident at most, a rank | {planned / 2**20:.0f} MiB planned |")


if __name__ == "__main__":
    main()
