#!/usr/bin/env python3
"""Reads a checkpoint, written from docs/CHECKPOINT.md alone: it shares no code with sherd.

usage: read_checkpoint.py CHECKPOINT        lists what is in it, having read and checked every byte

Needs libxxhash and libzstd, as sherd does, and nothing beside Python's own modules.
"""
import ctypes
import ctypes.util
import json
import os
import re
import struct
import sys

PAGE, TAIL, SEAL = 4096, 32, 33
PLANES = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}


class Damage(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Damage(text)


def library(name):
    return ctypes.CDLL(ctypes.util.find_library(name) or f"lib{name}.so")


def load_libraries():
    xxhash, zstd = library("xxhash"), library("zstd")
    xxhash.XXH3_64bits.argtypes, xxhash.XXH3_64bits.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_uint64
    zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    return xxhash, zstd


XXHASH, ZSTD = load_libraries()


def xxh3(data):
    return XXHASH.XXH3_64bits(data, len(data))


def digits(data):
    return f"{xxh3(data):016x}"


def unzstd(data, size):
    room = ctypes.create_string_buffer(size + 1)
    need(ZSTD.ZSTD_decompress(room, size, data, len(data)) == size, "a plane is no zstd frame of its size")
    return room.raw[:size]


# --- JSON -----------------------------------------------------------------------------------------------------------------

def object_of(pairs):
    made = dict(pairs)
    need(len(made) == len(pairs), "a key is repeated")
    return made


def parse(text):
    return json.loads(text.decode("utf-8"), object_pairs_hook=object_of)


def refuse_required(value):
    """What an object requires that this reader does not know: it knows of nothing."""
    if isinstance(value, dict):
        need(not value.get("requires"), f"requires {value.get('requires')}")
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            refuse_required(part)


def read_manifest(folder):
    with open(os.path.join(folder, "manifest.json"), "rb") as file:
        text = file.read()
    body = text[:-SEAL]
    need(text[-SEAL:] == b',\n  "xxh3": "%s"\n}\n' % digits(body).encode(), "the manifest's seal does not match")
    manifest = parse(text)
    need(manifest["version"] == 2, f"version {manifest['version']}; this reads version 2")
    refuse_required({key: value for key, value in manifest.items() if key != "note"})
    return manifest


# --- blocks ---------------------------------------------------------------------------------------------------------------

def raw_bytes(dtype, count):
    return {"fp32": 4 * count, "bf16": 2 * count, "fp16": 2 * count, "int8": -(-count // 256) * 260}[dtype]


def unpack_plane(how, data, size):
    """One plane of `size` bytes as it is stored."""
    if how == 0:
        need(len(data) == size, "a plane has another size")
        return data
    if how == 1:
        return unzstd(data, size)
    need(how == 2 and len(data) == -(-size // 8) * 7, "a plane is stored in no way there is")
    plane = bytearray()
    for at in range(0, len(data), 7):
        number = int.from_bytes(data[at:at + 7], "little")
        plane += bytes((number >> 7 * i & 127) << 1 for i in range(8))
    return bytes(plane[:size])


def join_planes(planes):
    """The values of which planes[p] has byte p, rotated right by one bit."""
    if len(planes) == 1:
        return planes[0]
    bits, count = 8 * len(planes), len(planes[0])
    joined = bytearray(len(planes) * count)
    for p, plane in enumerate(planes):
        joined[p::len(planes)] = plane
    form = f"<{count}{'I' if len(planes) == 4 else 'H'}"
    return struct.pack(form, *((v >> 1 | v << bits - 1) & (1 << bits) - 1 for v in struct.unpack(form, joined)))


def decode(block, stored):
    dtype, size = block["dtype"], raw_bytes(block["dtype"], block["count"])
    payload, block["ways"] = stored[:block["bytes"]], {block["transform"]}
    if block["transform"] == "none":
        need(len(payload) == size, "a block has another size")
        return payload
    need(block["transform"] == "rotate-planes-zstd", f"transform {block['transform']}")
    count = PLANES[dtype]
    planes, at = [], 4 * count
    for p in range(count):
        entry = struct.unpack_from("<I", payload, 4 * p)[0]
        length = entry & 0xFFFFFF
        block["ways"].add(entry >> 24)
        planes.append(unpack_plane(entry >> 24, payload[at:at + length], size // count))
        at += length
    need(at == len(payload), "planes do not fill their block")
    return join_planes(planes)


# --- files ----------------------------------------------------------------------------------------------------------------

def read_file(folder, manifest, rank):
    """Yields (block, values as bytes) of a rank's file, having checked every byte of it."""
    about = manifest["files"][rank]
    need(about["name"] == f"rank-{rank:05d}.bin", "a file has another name")
    with open(os.path.join(folder, about["name"]), "rb") as file:
        data = file.read()
    need(len(data) == about["bytes"] and len(data) % PAGE == 0, f"{about['name']} has {len(data)} bytes")
    length, zero, checksum, mark = struct.unpack("<QQQ8s", data[-TAIL:])
    begin = (len(data) - TAIL - length) // PAGE * PAGE
    need(mark == b"SHERDEND" and zero == 0 and begin >= PAGE, f"{about['name']} has no tail")
    need(xxh3(data[:PAGE] + data[begin:-16]) == checksum, f"{about['name']}: head or index is damaged")
    need(f"{checksum:016x}" == about["xxh3"], f"{about['name']} is another checkpoint's")
    need(data[:24] == struct.pack("<8sIIQ", b"SHERDCKP", 2, rank, manifest["step"]), f"{about['name']} has another head")
    need(not any(data[24:PAGE]) and not any(data[begin + length:-TAIL]), f"{about['name']}: no zeros")
    at = PAGE
    index = parse(data[begin:begin + length])
    refuse_required(index)
    for block in index["blocks"]:
        need(block["offset"] == at, "blocks are not one behind the other")
        stored = data[at:at - (-block["bytes"] // PAGE) * PAGE]
        at += len(stored)
        name = f"{about['name']}: {block['state']} of {block['tensor']} from {block['first']} on"
        need(at <= begin and digits(stored) == block["xxh3"], f"{name} is damaged")
        need(not any(stored[block["bytes"]:]), f"{name}: no zeros")
        yield block, decode(block, stored)
    need(at == begin, "there is more than blocks")


def put(value, block, values):
    """Puts a block's values where they belong."""
    dtype = value["dtype"]
    need(block["dtype"] == dtype and block["first"] + block["count"] <= value["elements"], "a block does not fit")
    at = raw_bytes(dtype, block["first"])
    value["data"][at:at + len(values)] = values
    end = block["first"] + block["count"]
    value["covered"][block["first"]:end] = b"\1" * block["count"]


def has_range(value, rank, block):
    end = block["first"] + block["count"]
    return any(r == rank and first <= block["first"] and end <= first + count for r, first, count in value["ranges"])


def read_checkpoint(folder):
    """The manifest, with "data" (bytes, in the value's dtype) in every tensor's "parameter" and "states", and with "ways": in which
    blocks and their planes are stored."""
    manifest = read_manifest(folder)
    manifest["ways"] = set()
    named = re.fullmatch(r"step-(\d{8,})", os.path.basename(os.path.abspath(folder)))
    need(not named or int(named[1]) == manifest["step"], "the folder was renamed")
    need(manifest["bytes"]["stored"] == sum(f["bytes"] for f in manifest["files"]), "the files' sizes add up otherwise")
    values = {}
    for tensor in manifest["tensors"]:
        for state, value in [("parameter", tensor["parameter"]), *tensor["states"].items()]:
            value["data"] = bytearray(raw_bytes(value["dtype"], value["elements"]))
            value["covered"] = bytearray(value["elements"])
            values[tensor["name"], state] = value
    total = 0
    for rank in range(manifest["mesh"]["ranks"]):
        for block, data in read_file(folder, manifest, rank):
            value = values[block["tensor"], block["state"]]
            need(has_range(value, rank, block), "a block is not where the manifest says")
            put(value, block, data)
            manifest["ways"] |= block["ways"]
            total += len(data)
    need(total == manifest["bytes"]["raw"], "the values' sizes add up otherwise")
    for (tensor, state), value in values.items():
        need(all(value["covered"]), f"{state} of {tensor} is not whole")
    return manifest


def main():
    manifest = read_checkpoint(sys.argv[1])
    print(f"step {manifest['step']}, {manifest['mesh']['ranks']} files, {manifest['bytes']['stored']} bytes, {manifest['time']}")
    for tensor in manifest["tensors"]:
        states = ", ".join(f"{name} {value['dtype']} {value['elements']}" for name, value in tensor["states"].items())
        print(f"{tensor['name']} {tensor['shape']} {tensor['parameter']['dtype']}{' frozen' if tensor['frozen'] else ''}: {states or 'no states'}")


if __name__ == "__main__":
    try:
        main()
    except Damage as damage:
        sys.exit(f"{sys.argv[1]}: {damage}")
