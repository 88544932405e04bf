"""What system tests of checkpoints share: a folder of checkpoints as it lies on disk, and what the program says of it.

Names are read here without the program's help, so that a fault in how it lists them does not hide another one.
"""
import hashlib
import json
import os
import re
import struct
import subprocess
import tempfile

from jobs import need, read

COMPLETE = re.compile(r"step-(\d{8,})")
LIMIT_S = 60


def complete(folder):
    """Steps of the complete checkpoints of a folder, in order; none where it does not exist."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for name in names if (found := COMPLETE.fullmatch(name)))


def others(folder):
    """Names in a folder of checkpoints that are no complete ones: what is being made, and what was left behind."""
    return sorted(name for name in os.listdir(folder) if not COMPLETE.fullmatch(name))


def path_of(folder, step):
    return os.path.join(folder, f"step-{step:08d}")


def files_of(path):
    return sorted(os.listdir(path))


def run(sherd, *arguments):
    """Runs a command of the program; returns its exit code and all that it said."""
    done = subprocess.run([sherd, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
    return done.returncode, done.stdout.decode(errors="replace")


def verify(sherd, path):
    return run(sherd, "checkpoint", "verify", path)


def weights(sherd, path):
    """Digest of a checkpoint's parameters, exported: names, shapes and values; not the file's own notes."""
    with tempfile.TemporaryDirectory(prefix="sherd-weights-") as folder:
        target = os.path.join(folder, "weights.safetensors")
        code, said = run(sherd, "checkpoint", "export", path, "--to", target)
        need(code == 0, f"{path} cannot be exported: exit code {code}: {said}")
        return digest(target)


def digest(safetensors):
    content = read(safetensors)
    length, = struct.unpack_from("<Q", content)
    header = re.sub(rb'"__metadata__":\{[^}]*\},?', b"", content[8:8 + length])
    return hashlib.sha256(header + content[8 + length:]).hexdigest()


def need_whole(sherd, path, expected=None):
    """All of a checkpoint can be read, and where it is known, its parameters are those expected."""
    code, said = verify(sherd, path)
    need(code == 0, f"{path} is damaged: exit code {code}: {said}")
    if expected:
        need(weights(sherd, path) == expected, f"{path} has other weights than the undisturbed run")


HEAD_BYTES, TAIL_BYTES, ALIGN_BYTES = 4096, 32, 4096


class RankFile:
    """What a rank's file says of itself, read as docs/CHECKPOINT.md has it."""

    def __init__(self, path):
        self.path, content = path, read(path)
        self.bytes = len(content)
        need(self.bytes % ALIGN_BYTES == 0 and content[:8] == b"SHERDCKP" and content[-8:] == b"SHERDEND", f"{path} is no rank's file")
        length, = struct.unpack_from("<Q", content, self.bytes - TAIL_BYTES)
        self.index_at = self.bytes - -(-(length + TAIL_BYTES) // ALIGN_BYTES) * ALIGN_BYTES
        self.blocks = json.loads(content[self.index_at:self.index_at + length])["blocks"]

    def block_at(self, position):
        """The block that a byte belongs to, its zeros included; None of head, index and tail."""
        if not HEAD_BYTES <= position < self.index_at:
            return None
        return [block for block in self.blocks if block["offset"] <= position][-1]

    def boundaries(self):
        return sorted({0, *(block["offset"] for block in self.blocks), self.index_at, self.bytes - TAIL_BYTES, self.bytes})


def failing(fail_io, what, call, rank, folder):
    """Environment of a job whose rank `rank` meets `what` at one of its calls on files below a folder; see fail_io.c."""
    return {"LD_PRELOAD": fail_io, "SHERD_TEST_IO": f"{what}:{call}:{rank}:{folder}"}
