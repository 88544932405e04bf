#!/usr/bin/env python3
"""The style and the script of the page as C.  usage: embed.py PAGE.css PAGE.js OUT.c"""
import base64
import hashlib
import sys


def constant(name, data):
    """Bytes as numbers: a text may be longer than the literals that every compiler takes."""
    rows = [", ".join(str(byte) for byte in data[i:i + 24]) for i in range(0, len(data), 24)]
    return f"const char {name}[] = {{\n    " + ",\n    ".join(rows) + ", 0};\n"


def main():
    style, script = (open(path, "rb").read() for path in sys.argv[1:3])
    for data, end in ((style, b"</style"), (script, b"</script")):
        if end in data.lower() or max(data) > 126:
            sys.exit(f"the page's style and script must be ASCII and not contain {end.decode()}")
    digest = base64.b64encode(hashlib.sha256(script).digest())
    with open(sys.argv[3], "w") as out:
        out.write('/* Made by embed.py. */\n#include "runtime/report/page.h"\n\n')
        out.write(constant("shd_page_style", style) + constant("shd_page_script", script) + constant("shd_page_script_hash", digest))


main()
