#!/usr/bin/env python3
"""Checkpoints with any damage: verify names it, no run goes on from it, and resume: auto takes an older one.

usage: test_checkpoint_damage.py SHERD [--times N] [--seed N] [--only NAME] [--table]

flips: --times single bits at random positions over all files, head, blocks, their padding, index, tail and manifest.
sizes: files cut at every boundary of a block, and a byte before and after it (a sample of them, unless --times is 500 or
more), emptied, and with bytes appended.  files: deleted, in place of one another between ranks and between steps, folders
under another step's name, manifests edited by hand that are still JSON.  `sherd checkpoint verify` must end with exit code
3 and name the file, and of a block its tensor, state and elements; `checkpoint.resume: PATH`, on a random number of ranks and
stage, must refuse with exit code 3 and name the file.  fallback: with `resume: auto` all ranks go on from the older one
together, with the bits of an undisturbed run; where none is whole the job refuses.

The default takes seconds; --times 2000 is for a run by hand.
"""
import argparse
import json
import os
import random
import re
import shutil
import sys
import tempfile

from checkpoints import LIMIT_S, RankFile, complete, files_of, path_of, verify, weights
from jobs import DISK, Failure, Job, need, read, run_checks, write_files

OLDER, NEWER, STEPS = 4, 8, 12
MANIFEST = "manifest.json"
SETTINGS = ["train.global_batch=12", "model.n_layer=1"]
ALL = 500  # times from which on nothing is sampled


class Bench:
    """Two checkpoints of one job that ended later, and what all checks count."""

    def __init__(self, arguments, folder):
        self.sherd, self.times = os.path.abspath(arguments.sherd), arguments.times
        self.random = random.Random(arguments.seed)
        self.job = write_files(folder)
        self.counts = {}
        with self.start(2, 1, [f"train.steps={STEPS}", f"checkpoint.every={OLDER}", "checkpoint.keep=0"]) as job:
            code = job.wait(LIMIT_S)
            need(code == 0, f"exit code {code}: {job.said()}")
        self.folder = os.path.join(job.run_dir, "checkpoints")
        need(complete(self.folder) == [OLDER, NEWER, STEPS], f"saved: {complete(self.folder)}")
        self.final = weights(self.sherd, path_of(self.folder, STEPS))
        self.path = path_of(self.folder, NEWER)
        self.rank_files = {name: RankFile(os.path.join(self.path, name)) for name in files_of(self.path) if name != MANIFEST}
        need(len(self.rank_files) == 2, f"two ranks saved {files_of(self.path)}")

    def start(self, ranks, stage, settings, run_dir=None):
        return Job(self.sherd, self.job, ranks, [f"shard.stage={stage}", *SETTINGS, *settings], run_dir)

    def layout(self):
        return self.random.choice((1, 2, 3)), self.random.choice((0, 1, 2, 3))

    def sample(self, everything, count):
        return everything if self.times >= ALL else self.random.sample(everything, min(count, len(everything)))

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1


class Changed:
    """A file with other content for as long as it lasts; None: without the file."""

    def __init__(self, path, content):
        self.path, self.content, self.before = path, content, read(path)
        need(content != self.before, f"{path} would not change")

    def __enter__(self):
        self.put(self.content)

    def __exit__(self, *_):
        self.put(self.before)

    def put(self, content):
        os.unlink(self.path) if content is None else write(self.path, content)


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


def need_verify_names(bench, path, names):
    """verify ends with 3, and one line has all the names."""
    code, said = verify(bench.sherd, path)
    need(code == 3, f"verify: exit code {code}: {said}")
    need(any(all(name in line for name in names) for line in said.splitlines()), f"verify names nowhere {names}: {said}")
    return said


def need_refused(bench, path, names):
    """No run goes on from there, whatever its layout."""
    ranks, stage = bench.layout()
    with bench.start(ranks, stage, [f"train.steps={STEPS}", f"checkpoint.resume={path}"]) as job:
        code, said = job.wait(LIMIT_S), job.said()
        need(code == 3, f"resumed on {ranks} ranks at stage {stage}: exit code {code}: {said}")
        need(any(name in said for name in names), f"resuming on {ranks} ranks at stage {stage}, names none of {names}: {said}")
        need(not job.rows(), f"resuming on {ranks} ranks at stage {stage}, has trained: {said}")
        left = os.path.join(job.run_dir, "checkpoints")
        need(not complete(left), f"refused, but {left} has {complete(left)}")
    shutil.rmtree(job.run_dir)


def need_damaged(bench, what, path, names, where=None):
    """`names`: what verify says in one line; `where`: files of which a load must name one, by default the first name."""
    try:
        need_verify_names(bench, path, names)
        need_refused(bench, path, where or names[:1])
        bench.count(what)
    except Failure as failure:
        raise Failure(f"{what}: {failure}") from None


def check_flips(bench):
    names = files_of(bench.path)
    sizes = [os.path.getsize(os.path.join(bench.path, name)) for name in names]
    for i in range(bench.times):
        name = bench.random.choice(names) if i % 2 else bench.random.choices(names, sizes)[0]
        path = os.path.join(bench.path, name)
        content = bytearray(read(path))
        position, bit = bench.random.randrange(len(content)), bench.random.randrange(8)
        if i % 4 == 1 and name != MANIFEST:  # head, index and tail are small, so that they would seldom be met
            position = bench.random.choice((bench.random.randrange(4096), bench.random.randrange(bench.rank_files[name].index_at, len(content))))
        content[position] ^= 1 << bit
        block = name != MANIFEST and bench.rank_files[name].block_at(position)
        expected = [name, block["tensor"], block["state"], str(block["first"])] if block else [name]
        what = f"a bit of {'a block' if block else 'the manifest' if name == MANIFEST else 'head, index or tail'}"
        try:
            with Changed(path, content):
                need_damaged(bench, what, bench.path, expected)
        except Failure as failure:
            raise Failure(f"{name}, bit {bit} of byte {position}: {failure}") from None


def check_sizes(bench):
    manifest_bytes = os.path.getsize(os.path.join(bench.path, MANIFEST))
    cuts = [(MANIFEST, size) for size in (0, 1, manifest_bytes // 2, manifest_bytes - 2, manifest_bytes - 1)]
    for name, file in bench.rank_files.items():
        sizes = {boundary + by for boundary in file.boundaries() for by in (-1, 0, 1)}
        cuts += [(name, size) for size in sorted(sizes) if 0 <= size < file.bytes]
    for name, size in bench.sample(cuts, bench.times // 3):
        path = os.path.join(bench.path, name)
        try:
            with Changed(path, read(path)[:size]):
                need_damaged(bench, "cut", bench.path, [name])
        except Failure as failure:
            raise Failure(f"{name}, cut to {size} bytes: {failure}") from None
    for name in files_of(bench.path):
        path = os.path.join(bench.path, name)
        for more in (b"\0", b"\n", bytes(4096), b"x" * 4097, read(path)):
            try:
                with Changed(path, read(path) + more):
                    need_damaged(bench, "bytes appended", bench.path, [name])
            except Failure as failure:
                raise Failure(f"{name}, with {len(more)} bytes appended: {failure}") from None


EDITS = [("the step", rb'"step":\s*8\b', b'"step":9'), ("the version", rb'"version":\s*2\b', b'"version":3'),
         ("a size", rb'("bytes":\s*)(\d)', rb"\g<1>1\2"), ("a space", rb'"step":', b' "step":'),
         ("a shape", rb'("shape":\s*\[)', rb"\g<1>1,"), ("a key", rb"^\{", b'{"more":1,'), ("a name", rb'("name":\s*")', rb"\g<1>x")]


def check_files(bench):
    for name in files_of(bench.path):
        with Changed(os.path.join(bench.path, name), None):
            if name == MANIFEST:  # without it the folder is no checkpoint
                need_damaged(bench, "deleted", bench.path, ["step-00000008"])
            else:
                need_damaged(bench, "deleted", bench.path, [name])
    first, second = (os.path.join(bench.path, name) for name in sorted(bench.rank_files))
    one, two = read(first), read(second)
    with Changed(first, two), Changed(second, one):
        for path in (first, second):
            need_damaged(bench, "swapped between ranks", bench.path, [os.path.basename(path)], sorted(bench.rank_files))
    for name in files_of(bench.path):
        other = os.path.join(path_of(bench.folder, OLDER), name)
        with Changed(os.path.join(bench.path, name), read(other)):
            # With the other step's manifest, whichever file is looked at first is not its.
            need_damaged(bench, "swapped between steps", bench.path, ["step-00000008"] if name == MANIFEST else [name])
    with tempfile.TemporaryDirectory(dir=bench.folder, prefix="renamed-") as folder:
        shutil.copytree(path_of(bench.folder, OLDER), path_of(folder, NEWER))
        need_damaged(bench, "another step's name", path_of(folder, NEWER), ["step-00000008"])
    manifest = os.path.join(bench.path, MANIFEST)
    for what, pattern, by in EDITS:
        text = read(manifest)
        edited = re.sub(pattern, by, text, count=1, flags=re.DOTALL)
        need(edited != text, f"the manifest has no {pattern}")
        json.loads(edited)
        try:
            with Changed(manifest, edited):
                need_damaged(bench, "manifest edited", bench.path, [MANIFEST])
        except Failure as failure:
            raise Failure(f"{what}: {failure}") from None


def damage(bench, path):
    """Some damage to one file of a checkpoint; returns its name."""
    name = bench.random.choice(files_of(path))
    file = os.path.join(path, name)
    content = bytearray(read(file))
    kind = bench.random.choice(("bit", "bit", "cut", "deleted"))
    if kind == "deleted" and name != MANIFEST:
        os.unlink(file)
        return name
    if kind == "cut":
        del content[bench.random.randrange(len(content)):]
    else:
        content[bench.random.randrange(len(content))] ^= 1 << bench.random.randrange(8)
    write(file, content)
    return name


def check_fallback(bench):
    for i in range(max(6, bench.times // 10)):
        run_dir = tempfile.mkdtemp(dir=os.path.dirname(bench.job))
        folder = os.path.join(run_dir, "checkpoints")
        for step in (OLDER, NEWER):
            shutil.copytree(path_of(bench.folder, step), path_of(folder, step))
        name, hopeless = damage(bench, path_of(folder, NEWER)), i % 3 == 2
        if hopeless:
            damage(bench, path_of(folder, OLDER))
        ranks, stage = bench.layout()
        with bench.start(ranks, stage, [f"train.steps={STEPS}", "checkpoint.keep=0"], run_dir) as job:
            code, said = job.wait(LIMIT_S), job.said()
            need(name in said, f"{ranks} ranks, stage {stage}: does not say that {name} is damaged: {said}")
            if hopeless:
                need(code == 3 and not job.rows(), f"{ranks} ranks, stage {stage}: nothing is whole, but exit code {code}: {said}")
                bench.count("auto: none is whole")
            else:
                need(code == 0, f"{ranks} ranks, stage {stage}: exit code {code}: {said}")
                need(f"step-{OLDER:08d}: {OLDER} of {STEPS} steps are done" in said, f"resumed from elsewhere: {said}")
                need(weights(bench.sherd, path_of(folder, STEPS)) == bench.final, f"other weights than undisturbed: {said}")
                bench.count("auto: the older one")
        shutil.rmtree(run_dir)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd")
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one check by name")
    parser.add_argument("--table", action="store_true", help="print what was done how often")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sherd-damage-", dir=DISK) as folder:
        bench = Bench(arguments, folder)
        failed = run_checks({"flips": check_flips, "sizes": check_sizes, "files": check_files, "fallback": check_fallback}, arguments.only, bench)
        if arguments.table:
            print("| damage | times, each found by verify and refused by a load |\n| --- | --- |")
            for what, count in sorted(bench.counts.items()):
                print(f"| {what} | {count} |")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
