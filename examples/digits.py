#!/usr/bin/env python3
"""Draws digits, as images of 16 x 16 bytes with labels 0 to 9, for configs/digits.yaml. Needs nothing but Python.

    python3 examples/digits.py runs/digits
    sherd train configs/digits.yaml -n 2

Each digit has the bars of a pocket calculator's, moved, of some brightness, over noise. Four files: numpy.load reads them too.
"""
import os
import random
import struct
import sys

SIDE = 16
# Which bars are lit: top, upper left, upper right, middle, lower left, lower right, bottom.
BARS = ["1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011"]


def lines(x, y):
    """Where the bars of a digit lie whose upper left corner is at (x, y): column, row, width, height."""
    across, down = 5, 5
    return [(x, y, across, 1), (x, y, 1, down), (x + across - 1, y, 1, down), (x, y + down - 1, across, 1),
            (x, y + down - 1, 1, down), (x + across - 1, y + down - 1, 1, down), (x, y + 2 * down - 2, across, 1)]


def draw(digit, chance):
    image = bytearray(min(255, int(abs(chance.gauss(0, 40)))) for _ in range(SIDE * SIDE))
    bright = chance.randint(120, 255)
    for lit, (left, top, width, height) in zip(BARS[digit], lines(chance.randint(4, 7), chance.randint(2, 4))):
        for row in range(top, top + height) if lit == "1" else ():
            for column in range(left, left + width):
                image[row * SIDE + column] = bright
    return image


def write_npy(path, shape, content):
    """An array of bytes as numpy.save writes it."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: digits.py FOLDER")
    chance = random.Random(1)
    os.makedirs(sys.argv[1], exist_ok=True)
    for part, count in (("train", 6000), ("validation", 1000)):
        labels = bytes(chance.randrange(10) for _ in range(count))
        write_npy(os.path.join(sys.argv[1], part + "-images.npy"), (count, SIDE, SIDE), b"".join(draw(digit, chance) for digit in labels))
        write_npy(os.path.join(sys.argv[1], part + "-labels.npy"), (count,), labels)
    print(f"{sys.argv[1]}: 6000 digits to train on, 1000 to validate with")


if __name__ == "__main__":
    main()
