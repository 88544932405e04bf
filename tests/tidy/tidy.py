#!/usr/bin/env python3
"""Rules about the code, as a test.

usage: tidy.py ROOT [--library build/libsherd.so] [--include DIR]... [--cc gcc] [--cxx g++]

Each check is a function from a Tree to a list of "file:line: what is wrong". The program prints the longest files and functions,
then every violation, and exits 1 when there is one.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict

FILE_LINES, FUNCTION_LINES, COLUMNS = 600, 70, 120
CODE_FOLDERS = ("runtime", "shard", "optim", "io", "examples", "tests")
LIBRARY_FOLDERS = ("runtime", "shard", "optim", "io")

# docs/ARCHITECTURE.md: a folder may include itself, the public headers, and what stands here: folders or single headers.
BELOW_ENGINE = ["runtime/base", "shard", "runtime/schedule", "runtime/device", "runtime/comm", "runtime/ops", "optim"]
ARROWS = {
    "runtime/include/sherd": [],
    "runtime/base": [],
    "shard": ["runtime/base"],
    "runtime/schedule": ["runtime/base", "shard"],
    "runtime/device": ["runtime/base"],
    "runtime/comm": ["runtime/base", "runtime/device"],
    "runtime/ops": ["runtime/base", "runtime/device"],
    "optim": ["runtime/base", "runtime/device"],
    "io": ["runtime/base", "shard/plan.h", "shard/reshard.h"],
    "runtime/engine": BELOW_ENGINE,
    "runtime/session": BELOW_ENGINE + ["runtime/engine", "io"],
    "runtime/model": ["runtime/base", "runtime/device", "runtime/ops"],
    "runtime/train": ["runtime/base", "runtime/session", "runtime/model", "runtime/watch", "runtime/comm/recorder.h", "runtime/comm/selftest.h", "runtime/device/device.h", "io"],
    "runtime/watch": ["runtime/base", "runtime/comm", "io/events.h"],
    "runtime/launch": ["runtime/base", "runtime/comm/store.h", "io/job.h", "io/events.h"],
    "runtime/report": ["runtime/base", "io"],
    "runtime/cli": ["runtime/train", "runtime/launch", "runtime/report", "runtime/watch", "runtime/comm/recorder.h", "io", "shard", "runtime/schedule"],
    "examples": [],
}
PURE_FOLDERS = ("shard", "runtime/schedule")

# (what, pattern, files and folders that may): the library neither prints nor ends the process, and counts all its memory.
CALLS = [
    ("prints", r"\b(?:printf|vprintf|puts|putchar|perror)\s*\(|\b(?:stdout|stderr)\b", ["runtime/cli"]),
    ("ends the process", r"\b(?:exit|abort|_Exit|quick_exit)\s*\(", ["runtime/cli"]),
    ("ends a forked child", r"\b_exit\s*\(", ["runtime/launch/guard.c", "runtime/launch/spawn.c", "runtime/cli"]),
    ("calls the allocator (use runtime/base/memory.h)",
     r"\b(?:malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup|asprintf)\s*\(",
     ["runtime/base/memory.c", "runtime/cli"]),
    ("reads the environment", r"\b(?:secure_)?getenv\s*\(|\benviron\b", ["runtime/comm/env.c", "runtime/device/cuda_loader.c", "runtime/launch/variables.c", "runtime/launch/processors.c", "runtime/launch/gpus.c",
                                                                       "runtime/cli"]),
]
BACKEND_WORDS = re.compile(r"cuda|nccl|cublas", re.I)
BACKEND_FILES = re.compile(r"(^|/)cuda/|(^|/)(cuda|nccl|cublas|staged)[^/]*\.[ch]u?h?$|^runtime/(device/(device|kernel)|ops/ops|comm/link)\.h$|^optim/spans\.h$|^io/schema\.h$|^runtime/train/job_setup\.c$|^runtime/comm/env\.c$|^runtime/launch/(variables|processors|gpus)\.[ch]$|^runtime/include/sherd/(cuda|nccl|options|session)\.h$")

# Longer than the limits, with the reason.
LONG_FILES = {}
LONG_FUNCTIONS = {}
# Names that two folders have, where each is the folder's word for its part.
SHARED_NAMES = {"internal.h", "ranks.c", "ranks.h"}
# Headers that are included several times on purpose: once for each instruction set.
TEMPLATES = ("runtime/ops/kernels/",)


def strip_comments(text, strings=True):
    """The text with comments (and the insides of strings) blanked, lines kept."""
    def blank(match):
        piece = match.group(0)
        if piece[0] == "/":
            return re.sub(r"[^\n]", " ", piece)
        return piece[0] + " " * (len(piece) - 2) + piece[-1] if strings else piece
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


class Tree:
    """The files of the project under `root`, read once."""

    def __init__(self, root):
        self.root = root
        self.texts = {}
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(f for f in folders if not f.startswith((".git", "build")) and f not in ("__pycache__", "runs", ".cache"))
            for name in sorted(files):
                path = os.path.relpath(os.path.join(folder, name), root)
                if name.endswith((".c", ".h", ".build", ".md", ".py", ".sh", ".yaml", ".awk", ".in")) or path in ("dev", ".ci/run"):
                    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
                        self.texts[path] = file.read()
        self.code = [p for p in self.texts if p.endswith((".c", ".h")) and p.startswith(tuple(f + "/" for f in CODE_FOLDERS))]
        self.library = [p for p in self.code if p.startswith(tuple(f + "/" for f in LIBRARY_FOLDERS))]
        self.bare = {p: strip_comments(self.texts[p]) for p in self.code}


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def within(path, places):
    return any(path == place or path.startswith(place + "/") for place in places)


def folder_of(path):
    """The unit of dependency that holds `path`, or None (tests)."""
    best = [folder for folder in ARROWS if path.startswith(folder + "/")]
    return max(best, key=len) if best else None


def check_arrows(tree):
    bad = []
    for path in tree.code:
        folder = folder_of(path)
        if not folder:
            continue
        bare = strip_comments(tree.texts[path], strings=False)
        for match in re.finditer(r'^[ \t]*#\s*include\s*([<"])([^>"]+)[>"]', bare, re.M):
            kind, target = match.groups()
            where = f"{path}:{line_of(bare, match.start())}"
            if kind == "<":
                if folder in PURE_FOLDERS and re.match(r"sys/|unistd|fcntl|pthread|time\.h|signal", target):
                    bad.append(f"{where}: {folder} is pure and must not include <{target}>")
                if folder == "runtime/include/sherd" and not re.match(r"sherd/|std\w+\.h$|string\.h$", target):
                    bad.append(f"{where}: a public header needs only the C standard library, not <{target}>")
                continue
            if "/" not in target:
                bad.append(f'{where}: write the path from the root instead of "{target}"')
            elif not within(target, [folder] + ARROWS[folder]):
                bad.append(f"{where}: {folder} must not include {target}")
    return bad


def functions_of(text):
    """(name, first line, length) of the functions in a file laid out by clang-format: they end with a brace in column 0."""
    lines, start = text.split("\n"), None
    for i, line in enumerate(lines):
        if start is None:
            if re.match(r"[A-Za-z_]", line) and not line.startswith(("typedef", "struct", "enum", "union", "extern", "namespace")):
                start = i
            if start is not None and (line.endswith(";") or line.endswith("}") or re.search(r"=\s*\{$|\\$", line)):
                start = None if not re.search(r"=\s*\{$", line) else start
        if start is not None and line.startswith("}"):
            head = " ".join(lines[start:i])
            name = re.search(r"(\w+)\s*\(([^()]*)", head)
            if name and "{" in head and not re.match(r"[^({]*=", head):
                label = name.group(1) + (f"({name.group(2).strip()})" if name.group(1) in ("Test", "ParameterizedTest") else "")
                yield label, start + 1, i - start + 1
            start = None
        elif start is not None and line.endswith(";") and "{" not in " ".join(lines[start:i + 1]):
            start = None


def check_lengths(tree):
    bad = []
    for path in tree.code:
        count = tree.texts[path].count("\n")
        if count > FILE_LINES and path not in LONG_FILES:
            bad.append(f"{path}: {count} lines, the limit is {FILE_LINES}: two nouns in one file?")
        for name, line, length in functions_of(tree.bare[path]):
            if length > FUNCTION_LINES and not path.startswith("tests/") and (path, name) not in LONG_FUNCTIONS:
                bad.append(f"{path}:{line}: {name} has {length} lines, the limit is {FUNCTION_LINES}")
    return bad


def check_calls(tree):
    bad = []
    for what, pattern, allowed in CALLS:
        for path in tree.library:
            if not within(path, allowed):
                for match in re.finditer(pattern, tree.bare[path]):
                    bad.append(f"{path}:{line_of(tree.bare[path], match.start())}: {what}: {match.group(0).rstrip('( ')}")
    return bad


def check_backend_words(tree):
    bad = []
    for path in tree.library:
        if not BACKEND_FILES.search(path):
            for i, line in enumerate(tree.texts[path].split("\n"), 1):
                if BACKEND_WORDS.search(line):
                    bad.append(f"{path}:{i}: '{BACKEND_WORDS.search(line).group(0)}' belongs in a backend's file")
    return bad


def check_words(tree):
    """Nothing left open, and no paths of one machine."""
    bad = []
    patterns = [(re.compile(r"\b(?:TO-?DO|FIX-?ME|X{3}|HACKS?)\b"), "left open"),
                (re.compile(r"(?<![\w.])/(?:work|farm|home|root|Users)/\w"), "a path of one machine")]
    for path, text in tree.texts.items():
        if path.startswith("tests/tidy/"):
            continue
        for i, line in enumerate(text.split("\n"), 1):
            for pattern, what in patterns:
                if pattern.search(line):
                    bad.append(f"{path}:{i}: {what}: {pattern.search(line).group(0)}")
    return bad


def check_names(tree):
    """File names are unique, so that a name says which file is meant; only a public header may share its internal part's."""
    places = defaultdict(list)
    for path in tree.code:
        if not path.startswith("runtime/include/"):
            places[os.path.basename(path)].append(path)
    return [f"{paths[1]}: {name} is already the name of {paths[0]}" for name, paths in places.items()
            if len(paths) > 1 and name not in SHARED_NAMES]


def check_guards(tree):
    """A header's guard is made from its path."""
    bad = []
    for path in tree.library:
        if path.endswith(".h") and not path.startswith(TEMPLATES):
            stem = re.sub(r"^runtime/include/|^runtime/", "", path)
            guard = re.sub(r"\W", "_", stem if stem.startswith("sherd/") else "shd/" + stem).upper()
            if f"#ifndef {guard}\n#define {guard}\n" not in tree.texts[path]:
                bad.append(f"{path}: the include guard is not {guard}")
    return bad


CHECKS = [check_arrows, check_lengths, check_calls, check_backend_words, check_words, check_names, check_guards]


def public_headers(tree):
    return [p for p in tree.code if p.startswith("runtime/include/sherd/") and p.endswith(".h")]


def check_exports(tree, library):
    """What the shared library exports is what the public headers declare."""
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in symbols.splitlines() if line.split()[-2] not in "aA"}
    exported = {s for s in exported if not re.match(r"_init$|_fini$|_edata$|_end$|__bss_start$|__(asan|ubsan|tsan|odr)", s)}
    declared = set()
    for path in public_headers(tree):
        declared |= set(re.findall(r"SHERD_API\s[^;]*?\b(sherd_\w+)\s*\(", tree.bare[path]))
    return ([f"{library}: exports {s}, which no public header declares" for s in sorted(exported - declared)] +
            [f"{library}: does not export {s}, which a public header declares" for s in sorted(declared - exported)])


def check_headers_alone(tree, includes, cc, cxx):
    """Each public header compiles by itself, as strict C17 and as C++."""
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        for path in public_headers(tree):
            header = path[len("runtime/include/"):]
            for compiler, language, flags in ((cc, "c", ["-std=c17"]), (cxx, "c++", ["-std=c++17"])):
                if not compiler:
                    continue
                source = os.path.join(folder, "alone.c")
                with open(source, "w") as file:
                    file.write(f"#include <{header}>\n")
                done = subprocess.run([compiler, "-x", language, *flags, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                                       *(f"-I{i}" for i in includes), source], capture_output=True, text=True)
                if done.returncode:
                    bad.append(f"{path}: does not compile alone as {language}:\n{done.stderr.strip()}")
    return bad


def report_longest(tree):
    files = sorted(((tree.texts[p].count("\n"), p) for p in tree.code), reverse=True)[:5]
    functions = sorted(((n, f"{p}:{line} {name}") for p in tree.code for name, line, n in functions_of(tree.bare[p])), reverse=True)[:5]
    wide = sum(len(line) > COLUMNS for p in tree.code for line in tree.texts[p].split("\n"))
    print(f"lines beyond {COLUMNS} columns: {wide}")
    print("longest files:     " + ", ".join(f"{path} {count}" for count, path in files))
    print("longest functions: " + ", ".join(f"{where} {count}" for count, where in functions))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("--library")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx")
    args = parser.parse_args()
    tree = Tree(args.root)
    report_longest(tree)
    bad = [violation for check in CHECKS for violation in check(tree)]
    bad += check_headers_alone(tree, [os.path.join(args.root, "runtime/include"), *args.include], args.cc, args.cxx)
    if args.library:
        bad += check_exports(tree, args.library)
    for violation in bad:
        print(violation)
    print(f"{len(tree.texts)} files, {len(bad)} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
