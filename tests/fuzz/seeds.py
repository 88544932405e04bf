#!/usr/bin/env python3
"""Writes the inputs that fuzzing starts from, good and nearly good, a few KiB in all.

usage: seeds.py OUT

OUT/<target>/<name> is what the harness fuzz_<target>.c takes; each says in its head how. Checksums are left as blanks of 16
question marks, which the harness fills in.
"""
import json
import os
import struct
import sys

BLANK = "?" * 16

JOB = """name: tiny
model:
  family: {family}
  vocab_size: 257
  context: 32
  d_model: 48
  n_layer: 3
  n_head: 3
{more}data:
  train: tokens.bin
train:
  steps: 60
  global_batch: 8
  micro_batch: 2
optimizer:
  lr: 3.0e-3
"""


def job_seeds():
    plain = JOB.format(family="gpt2", more="")
    flow = ("# every section on a line\nname: 'flow'\n"
            "model: {family: gpt2, vocab_size: 257, context: 32, d_model: 48, n_layer: 3, n_head: 3, frozen: [\"wpe.*\", 'h.0.*']}\n"
            "data: {train: ../tokens.bin, validation: val.bin, format: llmc, shuffle: false, ignored_token: 256}\n"
            "train: {steps: 20, global_batch: 8, micro_batch: 2, evaluate_every: 10, evaluate_sequences: 4, clip: 0, seed: 7}\n"
            "optimizer: {name: lion, lr: 3.0e-3, min_lr: 3.0e-4, warmup_steps: 6, betas: [0.9, 0.99], decay: none}\n"
            "shard: {stage: 2, gather: copy}\ncheckpoint: {dir: /tmp/c, every: 5, resume: never}\nlog: {every: 3}\n"
            "run: {ranks: 2, threads: 1, dir: ../runs/flow, comm: shm, timeout_s: 30.0}\n")
    texts = {
        "plain": plain,
        "flow": flow,
        "llama": JOB.format(family="llama", more="  n_kv_head: 1\n  d_ff: 136\n  rope_theta: 1e4\n  init: init.safetensors\n"),
        "settings": plain + "\0optimizer.betas=[0.9, 0.99]\0"
                    "run.ranks=4\0optimizer.name=sgd\0optimizer.momentum=0.9\0model.frozen=[a, \"b\"]",
        "bad-setting": plain + "\0train=5\0train.stepz=5\0=\0",
        "groups": plain + "  groups:\n    - {match: \"wte.*\", lr_factor: 0.1, weight_decay: 0}\n    - match: 'h.*'\n"
                  "  decay: [\"*.weight\", b]\n",
        "bad-groups": plain + "  groups: [{match: a, match: b}, {lr_factor: 1}, 7]\n",
        "list": plain.replace("tokens.bin", "[a.bin, 'b*.bin', \"c.bin\"]\n  document_separator: 0"),
        "mixture": plain.replace("tokens.bin", "\n    - {path: a.bin, weight: 0.5}\n    - path: [b.bin, 'c?.bin']\n    - {weight: 2e3, path: d}"),
        "mlp": "name: m\nmodel: {family: mlp, inputs: 3, outputs: 2, hidden: 4, n_layer: 1, activation: gelu}\n"
               "data: {train: {inputs: x.npy, targets: [y.npy]}, validation: v.safetensors, ignored_label: -1, input_scale: 0.5}\n"
               "train: {steps: 1, global_batch: 1, micro_batch: 1}\noptimizer: {lr: 1}\n",
        "mlp-mixture": "name: m\nmodel: {family: mlp, inputs: 3, outputs: 2, hidden: 4, n_layer: 1, loss: mse}\n"
                       "data: {train: [{inputs: [a, b], targets: 'c*', weight: 2}, {path: d}]}\n"
                       "train: {steps: 1, global_batch: 1, micro_batch: 1}\noptimizer: {lr: 1}\n",
        "escapes": plain.replace("tiny", '"t\\u00e9\\t\\x41"'),
        "block-texts": plain.replace("tokens.bin", "|-\n    tokens.bin").replace("name: tiny", "name: >-\n  ti\n  ny"),
        "old-boolean": plain + "data: {train: t, shuffle: yes}\n",
        "gpt2-with-llama-keys": plain.replace("n_head: 3", "n_head: 3\n  d_ff: 8"),
        "llama-without-d_ff": JOB.format(family="llama", more=""),
        "no-validation": plain.replace("micro_batch: 2", "micro_batch: 2\n  evaluate_every: 3"),
        "long-warm-up": plain + "  warmup_steps: 61\n",
        "self-of-two": plain + "run: {ranks: 2, comm: self}\n",
        "document": "%YAML 1.2\n---\n" + plain + "...\n",
        "anchors": plain.replace("60", "&n 60").replace("8\n", "*n\n"),
        "near-miss": plain.replace("micro_batch", "microbatch"),
        "json": json.dumps({"name": "j", "model": {"family": "gpt2", "vocab_size": 9, "context": 4, "d_model": 8, "n_layer": 1, "n_head": 2},
                            "data": {"train": "/t"},
                            "train": {"steps": 1, "global_batch": 1, "micro_batch": 1}, "optimizer": {"lr": 0.1}}, indent=1),
    }
    return {name: text.encode() for name, text in texts.items()}


# The order of shd_job_format, and of the names in fuzz_tokens.c.
AUTO, LLMC, U16, U32, TEXT = range(5)
BIN, TXT, _, _, DOT_U16, DOT_U32 = range(6)


def token_file(form, name, context, vocab, *files, ignored=255, cut=False, separator=255, opened=2, scan=True):
    head = [form, name, context - 1 + (128 if cut else 0), (vocab - 1) & 255, (vocab - 1) >> 8, ignored, separator, opened - 1 + (128 if scan else 0)]
    return bytes(head) + b"FILE".join(files)


def token_seeds():
    ids = [1, 5, 9, 200, 3, 0, 7, 7, 2, 44, 200]
    halves, words = struct.pack("<11H", *ids), struct.pack("<11I", *ids)
    llmc = struct.pack("<3i", 20240520, 1, len(ids)).ljust(1024, b"\0") + halves
    return {
        "llmc": token_file(AUTO, BIN, 4, 257, llmc, ignored=7),
        "llmc-cut": token_file(LLMC, BIN, 4, 257, llmc, cut=True),
        "llmc-short": token_file(LLMC, BIN, 4, 257, llmc[:-2]),
        "u16": token_file(U16, BIN, 5, 201, halves),
        "u16-by-name": token_file(AUTO, DOT_U16, 10, 100, halves),
        "u32": token_file(U32, BIN, 3, 201, words),
        "u32-by-name": token_file(AUTO, DOT_U32, 1, 65536, words + struct.pack("<I", 2**31)),
        "text": token_file(TEXT, BIN, 7, 256, b"To be, or not to be: that is the question.\n", ignored=32),
        "text-by-name": token_file(AUTO, TXT, 7, 128, b"short text"),
        "unknown": token_file(AUTO, BIN, 7, 128, b"no header"),
        "empty": token_file(U16, BIN, 7, 128, b""),
        "apart": token_file(TEXT, BIN, 5, 128, b"first document", b"", b"four", b"another one", b"the last"),
        "packed": token_file(TEXT, BIN, 5, 128, b"first document", b"", b"a|", b"|b", b"", b"the last", separator=ord("|"), opened=1, scan=False),
        "packed-halves": token_file(U16, BIN, 3, 300, halves, halves[:2], halves[4:], separator=200, scan=False),
        "packed-text-and-llmc": token_file(AUTO, TXT, 5, 257, b"a text", b"another", llmc, llmc, b"the last", separator=0),
        "one-of-three-is-bad": token_file(AUTO, DOT_U16, 3, 300, halves, llmc, b"odd"),
    }


def tensors_file(tensors, data, metadata=None):
    header = dict({"__metadata__": metadata} if metadata else {})
    for name, dtype, shape, begin, end in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    return json.dumps(header, separators=(",", ":")).encode() + b"  \n" + data


def safetensors_seeds():
    tensors = [("wte", "F32", [2, 3], 0, 24), ("b", "BF16", [3], 24, 30), ("h", "F16", [], 30, 32), ("none", "F32", [0, 5], 32, 32),
               ("ids", "I64", [1], 32, 40)]
    values = struct.pack("<6f3HHq", 1, -2, 0.5, float("inf"), float("nan"), -0.0, 0x3f80, 0x7fc0, 0x0001, 0x03ff, 7)
    good = tensors_file(tensors, values, {"format": "pt"})
    header, data = good.split(b"\n", 1)
    sizes = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4,
             "U32": 4, "F32": 4, "U64": 8, "F64": 8, "C64": 8}
    return {
        "good": good,
        "empty": b"{}\n",
        "whole": b"\0" + struct.pack("<Q", len(header)) + header + data,
        "whole-too-long": b"\0" + struct.pack("<Q", 2**63) + header + data,
        "overlap": tensors_file([("a", "F32", [2], 0, 8), ("b", "F32", [2], 4, 12)], bytes(12)),
        "hole": tensors_file([("a", "U8", [2], 0, 2), ("b", "U8", [2], 3, 5)], bytes(5)),
        "huge": tensors_file([("a", "F32", [2**62, 2**62, 0], 0, 8), ("b", "F64", [2**61], 8, 8)], bytes(8)),
        "many-dtypes": tensors_file([(t, t, [8 // size], i * 8, i * 8 + 8) for i, (t, size) in enumerate(sizes.items())], bytes(range(128))),
    }


def npy_file(descr, shape, data, order="False", version=1):
    return bytes([0, version]) + f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode() + data


def llmc_seeds():
    values = struct.pack("<40f", *range(37), float("inf"), float("nan"), -0.0)
    return {
        "fp32": b"3 4 5 2 1 3 8\n" + values,
        "bf16": b"5 4 5 1 2 4 5\n" + values,
        "smallest": b"3 1 1 1 1 1 1\n",
        "version": b"4 4 5 2 1 3 8\n",
        "padded-below": b"3 4 5 2 1 3 4\n",
        "negative": b"3 -1 5 2 1 3 8\n",
        "large": b"3 1024 50257 12 12 768 50304\n",
        "largest": b"5 16777216 2147483647 4096 65536 1048576 2147483647\n",
        "other-magic": b"\0" + struct.pack("<8i", 20240520, 3, 4, 5, 2, 1, 3, 8).ljust(1024, b"\0"),
        "cut": b"\0" + struct.pack("<8i", 20240326, 3, 4, 5, 2, 1, 3, 8),
        "long": b"3 1 1 1 1 1 1\n" + bytes(4 * 30),
    }


def array_seeds():
    floats = struct.pack("<6f", 1, -2, 0.5, float("inf"), float("nan"), -0.0)
    header = json.dumps({"inputs": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                         "targets": {"dtype": "U8", "shape": [2], "data_offsets": [24, 26]}}).encode()
    files = {f"type-{code[1:]}": npy_file(repr(code), "(2, 1)", bytes(range(2 * int(code[2:]))))
             for code in ("|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8", ">f4", "<c8", "<U1", "<f16")}
    return {
        **files,
        "floats": npy_file("'<f4'", "(2, 3)", floats),
        "doubles": npy_file("'<f8'", "(2,)", struct.pack("<2d", 1e300, 3)),
        "version-2": npy_file("'<f4'", "(1, 2, 3)", floats, version=2),
        "version-3": npy_file("'<f4'", "(6,)", floats, version=3),
        "fortran": npy_file("'<f4'", "(2, 3)", floats, order="True"),
        "records": npy_file("[('a', '<f4')]", "(1,)", floats[:4]),
        "scalar": npy_file("'<f4'", "()", floats[:4]),
        "none": npy_file("'<f4'", "(0, 3)", b""),
        "too-short": npy_file("'<f4'", "(9, 3)", floats),
        "huge": npy_file("'<f4'", "(4294967296, 4294967296, 0)", b""),
        "integers": npy_file("'<u8'", "(2,)", struct.pack("<2Q", 2**63, 2**53 + 1)),
        "safetensors": b"\x01" + struct.pack("<Q", len(header)) + header + floats + b"\x00\x01",
        "zip": b"\x01PK\x03\x04",
    }


def rank_file(blocks, **about):
    """What seal_rank_file takes. blocks: (tensor, state, dtype, first, count, what is stored, transform); a page of offsets each is left
    to the harness."""
    listed, stored = [], b""
    for tensor, state, dtype, first, count, payload, *transform in blocks:
        listed.append({"tensor": tensor, "state": state, "dtype": dtype, "first": first, "count": count, "offset": "BLANK",
                       "transform": transform[0] if transform else "none", "bytes": len(payload), "xxh3": BLANK})
        stored += payload
    return json.dumps({**about, "blocks": listed}, separators=(",", ":")).replace('"BLANK"', BLANK).encode() + b"\n" + stored


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def split(count, *planes):
    """What is stored of `count` values in planes, of which those that are frames of zstd say so."""
    return b"".join([struct.pack(f"<{len(planes)}I", *(len(plane) | (plane[:4] == b"\x28\xb5\x2f\xfd") << 24 for plane in planes)), *planes])


def rank_file_seeds():
    good = rank_file([("wte", "parameter", "fp32", 0, 3, floats(0, 1, 2)), ("wte", "exp_avg", "fp32", 0, 3, floats(3, 4, 5)),
                      ("b", "parameter", "bf16", 5, 1, b"\x80\x3f")])
    exponents = zstd_frame([(1, 64, b"\x7f")], 64)
    packed = split(64, bytes(64), bytes(64), bytes(64), exponents)
    return {
        "good": good,
        "codes": rank_file([("wte", "exp_avg", "int8", 256, 300, bytes(range(256)) + bytes(264)), ("b", "exp_avg", "int8", 0, 1, bytes(260))]),
        "half-a-block": rank_file([("wte", "exp_avg", "int8", 128, 300, bytes(520))]),
        "codes-of-a-parameter": rank_file([("wte", "parameter", "int8", 0, 256, bytes(260))]),
        "packed": rank_file([("wte", "parameter", "fp32", 0, 64, packed, "rotate-planes-zstd")]),
        "packed-and-damaged": rank_file([("wte", "parameter", "fp32", 0, 64, packed[:-3], "rotate-planes-zstd")]),
        "two-pages": rank_file([("wte", "parameter", "fp32", 0, 1100, bytes(4400)), ("wte", "parameter", "fp32", 1100, 1, floats(7))]),
        "no-blocks": rank_file([]),
        "damaged": good.replace(BLANK.encode() + b'"', b'0123456789abcdef"', 1),
        "too-short": rank_file([("wte", "parameter", "fp32", 0, 9, floats(0, 1, 2))]),
        "required": rank_file([], requires=["sparse"]),
        # Sizes that add up beyond 64 bits.
        "huge": rank_file([(t, "parameter", "fp32", 0, 2**61 - 1, floats(1)) for t in "abc"]),
        "other-place": good.replace(b'"offset":' + BLANK.encode(), b'"offset":8192', 1),
        "whole": b"\0SHERDCKP" + struct.pack("<IIQ", 2, 1, 3) + bytes(4072) + b'{"blocks":[]}' + bytes(4051) + struct.pack("<QQQ", 13, 0, 0) + b"SHERDEND",
        "version-1": b"\0SHERDRNK" + struct.pack("<QQ", 2, 0) + b"{}",
    }


def value(dtype, elements, *ranges):
    return {"dtype": dtype, "elements": elements, "ranges": [list(r) for r in ranges]}


def tensor(name, shape, parameter, frozen=False, **states):
    return {"name": name, "shape": shape, "frozen": frozen, "parameter": parameter, "states": states}


def manifest(tensors, ranks, states=("exp_avg", "exp_avg_sq"), note=None, blank=False, state_dtype="fp32", **about):
    """The text before the seal; `blank` leaves the rank files' sizes to the harness."""
    files = [{"name": f"rank-{i:05d}.bin", "bytes": "BLANK" if blank else 8192, "xxh3": BLANK if blank else "0123456789abcdef"}
             for i in range(ranks)]
    text = json.dumps({"version": 2, "step": 3, "time": "2026-01-31T12:34:56Z", "mesh": {"ranks": ranks, "replicas": 2}, "stage": 3,
                       "precision": "fp32", "optimizer": {"name": "adamw", "updates": 3, "state_dtype": state_dtype, "states": list(states)},
                       **about, "bytes": {"raw": 4096, "stored": "BLANK" if blank else 8192 * ranks}, "tensors": tensors, "files": files,
                       "note": note or {}}, indent=2)
    return text[:-2].replace('"BLANK"', BLANK).encode()


def manifest_seeds():
    both = value("fp32", 6, (0, 0, 4), (1, 4, 2))
    tensors = [tensor("wte", [2, 3], both, exp_avg=both, exp_avg_sq=both),
               tensor("wpe", [4], value("bf16", 4, (0, 0, 4), (1, 0, 4)), frozen=True),
               tensor("scalar", [], value("fp32", 1, (1, 0, 1)), exp_avg=value("fp32", 1, (1, 0, 1))),
               tensor("none", [0, 7], value("fp32", 0))]
    whole = value("fp32", 600, (0, 0, 600))
    codes = value("int8", 600, (0, 0, 512), (1, 512, 88))
    return {
        "good": manifest(tensors, 2, note={"job": {"name": "tiny", "lr": 0.003, "list": [1, None, True]}}),
        "states-in-8-bits": manifest([tensor("w", [600], whole, exp_avg=codes, exp_avg_sq=value("int8", 600, (0, 0, 600)))], 2, state_dtype="int8"),
        "states-of-other-sizes": manifest([tensor("m", [20, 30], whole, rows=value("fp32", 20, (0, 0, 20)), columns=value("fp32", 30, (1, 0, 30))),
                                           tensor("v", [600], whole, all=whole)], 2, states=("rows", "columns", "all")),
        "fp16": manifest(tensors, 2, loss_scale={"scale": 1024.0, "good_steps": 17, "hysteresis": 2}),
        "bare": manifest([], 1, states=()),
        "huge": manifest([tensor("a", [2**61], value("fp32", 2**61, (0, 0, 2**61))), tensor("b", [2**31, 2**31], value("fp32", 2**62, (0, 0, 2**62)))], 1),
        "five-dimensions": manifest([tensor("a", [1, 2, 1, 2, 1], value("fp32", 4, (0, 0, 4)))], 1),
        "left-out": manifest([tensor("a", [6], value("fp32", 6, (0, 0, 3), (0, 4, 2)))], 1),
        "required": manifest(tensors, 2, requires=["sparse"]),
        "unknown": manifest(tensors, 2, requires=[], later={"deep": [1]}),
        "version-1": b'{\n  "version": 1,\n  "step": 3',
        "unsealed": manifest(tensors, 2) + b"\n}\n",
    }


def checkpoint(body, *ranks):
    return b"SHERDCKP".join([body, *ranks])


def checkpoint_seeds():
    wte = [float(i) / 8 for i in range(6)]
    split_value, whole = value("fp32", 6, (0, 0, 4), (1, 4, 2)), value("fp32", 6, (0, 0, 6))
    tensors = [tensor("wte", [2, 3], split_value, m=split_value), tensor("b", [2], value("bf16", 2, (0, 0, 2)), frozen=True),
               tensor("none", [0, 7], value("fp32", 0))]
    first = rank_file([("wte", "parameter", "fp32", 0, 4, floats(*wte[:4])), ("wte", "m", "fp32", 0, 4, floats(1, 1, 1, 1)),
                       ("b", "parameter", "bf16", 0, 2, b"\x80\x3f\x00\x40")])
    second = rank_file([("wte", "parameter", "fp32", 4, 2, floats(*wte[4:])), ("wte", "m", "fp32", 4, 2, floats(2, 2))])
    copy = rank_file([("wte", "parameter", "fp32", 0, 6, floats(*wte))])
    two_copies = [tensor("wte", [2, 3], value("fp32", 6, (0, 0, 6), (1, 0, 6)))]
    metadata = [tensor("__metadata__", [1], value("fp32", 1, (0, 0, 1)))]
    return {
        "two-ranks": checkpoint(manifest(tensors, 2, ["m"], blank=True), first, second),
        "states-in-8-bits": checkpoint(manifest([tensor("wte", [2, 3], whole, m=value("int8", 6, (0, 0, 6)))], 1, ["m"], blank=True, state_dtype="int8"),
                                       rank_file([("wte", "parameter", "fp32", 0, 6, floats(*wte)), ("wte", "m", "int8", 0, 6, floats(*[0.5] * 65))])),
        "copies": checkpoint(manifest(two_copies, 2, [], blank=True), copy, copy),
        "copies-that-differ": checkpoint(manifest(two_copies, 2, [], blank=True), copy, copy.replace(floats(0.125), floats(9))),
        "overlap": checkpoint(manifest([tensor("wte", [2, 3], value("fp32", 6, (0, 0, 5), (1, 2, 4)))], 2, [], blank=True),
                              rank_file([("wte", "parameter", "fp32", 0, 5, floats(*wte[:5]))]), rank_file([("wte", "parameter", "fp32", 2, 4, floats(*wte[2:]))])),
        "packed": checkpoint(manifest([tensor("w", [64], value("fp32", 64, (0, 0, 64)))], 1, [], blank=True),
                             rank_file([("w", "parameter", "fp32", 0, 64, split(64, bytes(64), bytes(64), bytes(64), zstd_frame([(1, 64, b"\x7f")], 64)),
                                         "rotate-planes-zstd")])),
        "damaged": checkpoint(manifest(tensors, 2, ["m"], blank=True), first, second.replace(BLANK.encode() + b'"', b'0123456789abcdef"', 1)),
        "elements-that-no-file-has": checkpoint(manifest([tensor("wte", [2, 3], whole)], 1, [], blank=True), rank_file([("wte", "parameter", "fp32", 0, 4, floats(*wte[:4]))])),
        "other-ranges": checkpoint(manifest([tensor("wte", [2, 3], value("fp32", 6, (1, 0, 6)))], 2, [], blank=True), copy, rank_file([])),
        "unknown-tensor": checkpoint(manifest([], 1, [], blank=True), copy),
        "missing-file": checkpoint(manifest(tensors, 2, ["m"], blank=True), first),
        "metadata": checkpoint(manifest(metadata, 1, [], blank=True), rank_file([("__metadata__", "parameter", "fp32", 0, 1, floats(1))])),
        "same-name": checkpoint(manifest(2 * [tensor("a", [1], value("fp32", 1, (0, 0, 1)))], 1, [], blank=True),
                                rank_file([("a", "parameter", "fp32", 0, 1, floats(1))])),
        "nothing": checkpoint(manifest([], 1, [], blank=True), rank_file([])),
    }


def zstd_frame(blocks, content, declared=None):
    """A frame without a checksum. blocks: (type, content or its length, byte): 0 raw, 1 one byte over and over."""
    frame = struct.pack("<IBI", 0xFD2FB528, 0xA0, content if declared is None else declared)
    for i, (kind, size, data) in enumerate(blocks):
        frame += struct.pack("<I", size << 3 | kind << 1 | (i == len(blocks) - 1))[:3] + data
    return frame


def block(dtype, count, *planes, choices=4, lengths=None):
    """Planes as they are stored, frames of zstd and (way, bytes) besides; choices as fuzz_block.c has them."""
    planes = [plane if isinstance(plane, tuple) else (plane[:4] == b"\x28\xb5\x2f\xfd", plane) for plane in planes]
    lengths = [len(plane) | way << 24 for way, plane in planes] if lengths is None else lengths
    return struct.pack("<BH", dtype | choices, count) + struct.pack(f"<{len(lengths)}I", *lengths) + b"".join(plane for _, plane in planes)


def block_seeds():
    fp32, bf16, fp16, int8 = range(4)
    noise = bytes(i * 37 % 251 for i in range(1200))
    exponents = zstd_frame([(1, 50, b"\x7e"), (0, 14, noise[:14])], 64)
    return {
        "fp32": block(fp32, 64, noise[:64], noise[64:128], noise[128:192], exponents),
        "fp32-no-signs": block(fp32, 61, (2, noise[:56]), noise[:61], noise[:61], zstd_frame([(1, 61, b"\x70")], 61)),
        "short-no-signs": block(fp32, 61, (2, noise[:55]), noise[:61], noise[:61], zstd_frame([(1, 61, b"\x70")], 61)),
        "no-such-way": block(bf16, 64, (3, noise[:20]), exponents),
        "fp32-all-packed": block(fp32, 64, *4 * [zstd_frame([(1, 64, b"\0")], 64)]),
        "bf16": block(bf16, 64, noise[:64], exponents),
        "fp16": block(fp16, 64, exponents, noise[:64]),
        "int8": block(int8, 300, zstd_frame([(1, 520, b"\x80")], 520)),
        "int8-raw": block(int8, 256, noise[:260]),
        "too-many": block(bf16, 64, noise[:64], zstd_frame([(1, 65, b"\0")], 65)),
        "too-few": block(bf16, 64, noise[:64], zstd_frame([(1, 63, b"\0")], 63)),
        "other-size": block(bf16, 64, noise[:64], zstd_frame([(1, 64, b"\0")], 64, 2**31)),
        "cut": block(bf16, 64, noise[:64], exponents[:-9]),
        "long-lengths": block(fp32, 4, noise[:16], lengths=[2**32 - 1, 4, 4, 4]),
        "no-planes": block(fp32, 0, lengths=[0, 0, 0, 0]),
        "wrong": block(bf16, 64, noise[:64], exponents, choices=12),
        "none": block(fp32, 16, noise[:64], choices=0, lengths=[]),
        "values": block(fp32, 5000, bytes(8000) + 10 * noise, choices=16, lengths=[]),
        "values-of-16-bits": block(bf16, 9000, 15 * noise, choices=16, lengths=[]),
        "values-int8": block(int8, 9000, bytes(5000) + 5 * noise, choices=16, lengths=[]),
    }


def metrics_seeds():
    def rows(*steps):
        return b"".join(b'{"step":%d,"loss":2.5,"grad_norm":"nan","tokens":256}\n' % step for step in steps)
    return {
        "rows": b"\x03" + rows(0, 1, 2),
        "later-rows": b"\x02" + rows(0, 1, 2, 3),
        "torn": b"\x05" + rows(0, 1) + b'{"step":2,"lo',
        "no-row-between": b"\x05" + rows(0) + b"what is this\n" + rows(1, 2),
        "zeros": b"\x05" + rows(0) + bytes(40) + rows(2) + b"\0\n",
        "long-line": b"\x05" + rows(0) + b'{"step":1,"text":"' + b"x" * 2100 + b'"}\n' + rows(2),
        "empty": b"\0",
    }


def store_seeds():
    def command(kind, guest=0, *rest):
        return bytes([kind << 2 | guest]) + b"".join(rest)

    def request(guest, op, key=0, number=0, value=0):
        return command(3, guest, bytes([op, key, number, value]))

    def joined(guest):
        return command(1, guest) + command(7, guest) + request(guest, 0) + command(7, guest)

    def body(op, key=b"", rest=b"", expected=0, number=0, zero=0):
        text = struct.pack("<BBHIq", op, zero, len(key), expected, number) + key + rest
        return command(2, 0, struct.pack("<H", len(text)), text)

    def wait(ms):
        return command(4, 0, struct.pack("<H", ms))
    every = b"".join(request(0, op, 0, number, value) + command(7) for op, number, value in
                     ((1, 0, 1), (2, 0, 0), (3, 130, 0), (4, 3, 3), (4, 0, 3), (5, 0, 0), (2, 5, 0), (1, 0, 3), (3, 129, 0)))
    return {
        "every": joined(0) + every,
        "waits": joined(0) + joined(1) + request(0, 2, 3, 200) + request(1, 1, 3, 0, 5) + command(7, 0) + command(7, 1),
        "wait-over": joined(0) + request(0, 2, 3, 100) + wait(99) + wait(1) + command(7),
        "wait-ended": joined(0) + request(0, 2, 3, 250) + request(0, 1, 0, 0, 1) + command(7),
        "full": joined(0) + b"".join(request(0, 1, key, 0, 140) + command(7) for key in range(8)) + request(0, 1, 0, 0, 255) + command(7),
        "members": b"".join(joined(guest) for guest in range(4)),
        "silent": wait(4999) + command(1, 1) + wait(1) + command(7, 1),
        "garbage": command(0, 0, bytes([88]), bytes(88)) + command(0, 1, bytes([9]), b"sherd-kv\1"),
        "cut": joined(0) + command(0, 0, bytes([3]), b"\x14\0\0") + wait(30000),
        "long": joined(0) + command(0, 0, bytes([4]), b"\xff\xff\xff\xff"),
        "pieces": joined(0) + request(0, 1, 0, 0, 200) + request(0, 2, 0) + 3 * command(5, 0, bytes([100])) + command(7),
        "bodies": joined(0) + body(1, b"key", b"value") + command(7) + body(4, b"key", b"valueother", 5, 1) + command(7) + body(2, b"key") + command(7),
        "bad-body": joined(0) + body(1, b"key", b"value", number=1),
        "again": joined(0) + command(6) + joined(0) + every,
    }


def dump_seeds():
    def event(number, kind="REDUCE", unit=1, **other):
        return {"sequence": number, "kind": kind, "unit": unit, "micro_step": 0, "step": number // 3, "bytes": 4096, "queue": 2, "collective": number,
                "queued_ns": 10 * number, "started_ns": 10 * number + 1, "ended_ns": 10 * number + 5} | other

    def dump(**other):
        return {"sherd_dump": 1, "version": "0.1.0", "rank": 1, "world_size": 4, "written_by": 0, "host": "h\u00f6st", "pid": 7, "tid": 7, "now_ns": 9000000000,
                "unix_offset_ns": 1, "alarm": {"rank": 0, "text": "rank 0 waited 2 s"}, "process": {"life": "stopped", "state": "T", "wchan": "", "cpu_ms": 3},
                "activity": {"name": "in a step", "step": 3, "since_ns": 5}, "where": {"kind": "work", "text": "in FORWARD h.0 of step 4", "since_ns": 6,
                "sequence": 5, "awaited": -1}, "stack": ["pause+0x32", "main+0x1"], "kernel_stack": [], "units": ["wte", "h.0"],
                "events": [event(n) for n in range(12)]} | other
    forms = {"good": dump(), "waits": dump(where={"kind": "wait", "text": "waiting", "since_ns": 1}), "nothing": dump(alarm=None, events=[], units=[]),
             "dead": dump(process={"life": "dead"}), "launcher": dump(written_by=-1), "data": dump(events=[event(n, "DATA", -1, collective=-1) for n in range(9)]),
             "far": dump(events=[event(1, unit=2**31 - 1, step=2**63 - 1, ended_ns=-(2**63))]), "long": dump(host="\u20ac" * 100, stack=["f" * 200] * 50)}
    return {name: json.dumps(form).encode() for name, form in forms.items()} | {"cut": json.dumps(dump()).encode()[:-9]}


TARGETS = {"job": job_seeds, "tokens": token_seeds, "safetensors": safetensors_seeds, "llmc": llmc_seeds, "arrays": array_seeds, "manifest": manifest_seeds, "metrics": metrics_seeds,
           "rank_file": rank_file_seeds, "checkpoint": checkpoint_seeds, "block": block_seeds, "store": store_seeds, "dump": dump_seeds}


def main():
    total = 0
    for target, make in TARGETS.items():
        folder = os.path.join(sys.argv[1], target)
        os.makedirs(folder, exist_ok=True)
        for name, content in make().items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
            total += len(content)
    print(f"{total} bytes")


if __name__ == "__main__":
    main()
