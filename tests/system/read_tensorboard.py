"""A reader of TensorBoard's event files, from its public format alone: TFRecord framing, masked CRC-32C, protobuf's wire format.

Records: length (8 bytes, little-endian), masked CRC of those bytes, data, masked CRC of the data.  Event: 1 wall_time (double), 2 step (varint),
3 file_version, 5 summary, 7 session_log.  Summary: 1 value, repeated.  Value: 1 tag, 2 simple_value (float).  SessionLog: 1 status.
"""
import struct

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Damaged(Exception):
    pass


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, kind, value) of a message's fields."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = varint(data, at)
        elif kind == BYTES:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            value, at = data[at:at + size], at + size
        else:
            raise Damaged(f"wire type {kind}")
        if at > len(data):
            raise Damaged("a field beyond its message")
        yield number, kind, value


def records(content):
    at = 0
    while at < len(content):
        head = content[at:at + 12]
        if len(head) < 12:
            raise Damaged("a torn head")
        size, sum_of_size = struct.unpack("<QI", head)
        data, tail = content[at + 12:at + 12 + size], content[at + 12 + size:at + 16 + size]
        if masked(head[:8]) != sum_of_size:
            raise Damaged("the sum of a length")
        if len(tail) < 4 or masked(data) != struct.unpack("<I", tail)[0]:
            raise Damaged("the sum of data")
        yield data
        at += 16 + size


def value_of(data):
    tag = number = None
    for field, kind, value in fields(data):
        if (field, kind) == (1, BYTES):
            tag = value.decode()
        elif (field, kind) == (2, FIXED32):
            number = struct.unpack("<f", value)[0]
        else:
            raise Damaged(f"field {field} in a value")
    if tag is None or number is None:
        raise Damaged(f"a value without a tag or a number: {tag}, {number}")
    return tag, number


def read_events(path):
    """A list of {"wall_time", "step", and one of "version", "status", "scalars": {tag: number}}."""
    events = []
    with open(path, "rb") as file:
        content = file.read()
    for data in records(content):
        event = {"step": 0}
        for field, kind, value in fields(data):
            if (field, kind) == (1, FIXED64):
                event["wall_time"] = struct.unpack("<d", value)[0]
            elif (field, kind) == (2, VARINT):
                event["step"] = value
            elif (field, kind) == (3, BYTES):
                event["version"] = value.decode()
            elif (field, kind) == (5, BYTES):
                values = [value_of(inner) for number, _, inner in fields(value) if number == 1]
                event["scalars"] = dict(values)
                if len(event["scalars"]) != len(values):
                    raise Damaged("a tag comes twice")
            elif (field, kind) == (7, BYTES):
                event["status"] = {number: inner for number, _, inner in fields(value)}.get(1, 0)
            else:
                raise Damaged(f"field {field} in an event")
        events.append(event)
    return events
