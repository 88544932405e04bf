#!/usr/bin/env python3
"""Every rule of tidy.py finds what is planted in a small tree, and nothing in a clean one."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tidy  # noqa: E402

CLEAN = {
    "shard/plan.h": "#ifndef SHD_SHARD_PLAN_H\n#define SHD_SHARD_PLAN_H\n#include <stdint.h>\n#endif\n",
    "runtime/base/memory.c": '#include <stdlib.h>\nvoid *shd_alloc(unsigned long n) {\n    return malloc(n); /* malloc( here only */\n}\n',
    "io/job.c": '#include "runtime/base/status.h"\n#include "shard/plan.h"\nconst char *text = "printf(";\n',
    "runtime/cli/main.c": '#include "io/job.h"\n#include <stdio.h>\nint main(void) {\n    printf("x");\n    exit(0);\n}\n',
    "runtime/device/cuda.c": "int cuda_stream;\n",
    "examples/own_loop.c": "#include <sherd/sherd.h>\n",
}


class Rules(unittest.TestCase):
    def violations(self, check, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**CLEAN, **files}.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w") as file:
                    file.write(text)
            return check(tidy.Tree(root))

    def expect(self, check, path, text, *words):
        found = self.violations(check, {path: text})
        self.assertEqual(len(found), 1, found)
        for word in (path, *words):
            self.assertIn(word, found[0])

    def test_a_clean_tree_has_no_violations(self):
        for check in tidy.CHECKS:
            self.assertEqual(self.violations(check, {}), [], check.__name__)

    def test_arrows(self):
        self.expect(tidy.check_arrows, "shard/bad.c", '#include "io/job.h"\n', "shard must not include io/job.h")
        self.expect(tidy.check_arrows, "io/bad.c", '#include "shard/fit.h"\n', ":1:")
        self.expect(tidy.check_arrows, "runtime/cli/bad.c", '\n#include "runtime/engine/engine.h"\n', ":2:")
        self.expect(tidy.check_arrows, "runtime/cli/bad.c", '#include "runtime/base/memory.h"\n', "runtime/base")
        self.expect(tidy.check_arrows, "examples/bad.c", '#include "runtime/base/memory.h"\n', "examples")
        self.expect(tidy.check_arrows, "shard/bad.c", "#include <unistd.h>\n", "pure")
        self.expect(tidy.check_arrows, "runtime/include/sherd/bad.h", "#include <pthread.h>\n", "C standard library")
        self.expect(tidy.check_arrows, "io/bad.c", '#include "job.h"\n', "path from the root")

    def test_lengths(self):
        self.expect(tidy.check_lengths, "io/bad.c", "int a;\n" * 601, "601 lines")
        body = "    x++;\n" * 68
        self.expect(tidy.check_lengths, "io/bad.c", "static int count(int x,\n                 int y) {\n" + body + "}\n", "count has 71 lines")
        self.assertEqual(self.violations(tidy.check_lengths, {"io/good.c": "int count(int x) {\n" + "    x++;\n" * 68 + "}\n"}), [])
        self.assertEqual(self.violations(tidy.check_lengths, {"io/good.c": "static const int table[] = {\n" + "    1,\n" * 100 + "};\n"}), [])

    def test_calls(self):
        for call in ('printf("x")', 'fprintf(stderr, "x")', 'puts("x")', "exit(1)", "abort()", "malloc(1)", "free(p)", "strdup(s)", 'getenv("X")', "_exit(1)"):
            self.expect(tidy.check_calls, "io/bad.c", f"int f(void) {{\n    {call};\n}}\n", ":2:")
        self.assertEqual(self.violations(tidy.check_calls, {"io/good.c": 'int n = snprintf(a, 2, "malloc(3)"); /* exit( */ shd_free(p);\n'}), [])

    def test_backend_words(self):
        self.expect(tidy.check_backend_words, "runtime/engine/bad.c", "\n// as cuBLAS does\n", ":2:")
        self.expect(tidy.check_backend_words, "shard/bad.c", "int nccl_rank;\n", "nccl")

    def test_words(self):
        self.expect(tidy.check_words, "shard/bad.c", "// TO" + "DO: more\n", ":1:", "left open")
        self.expect(tidy.check_words, "docs/bad.md", "see /wo" + "rk/notes\n", "a path of one machine")

    def test_names(self):
        found = self.violations(tidy.check_names, {"shard/job.c": "int x;\n", "shard/internal.h": "int x;\n", "io/internal.h": "int x;\n"})
        self.assertEqual(len(found), 1)
        self.assertIn("job.c", found[0])

    def test_guards(self):
        self.expect(tidy.check_guards, "io/bad.h", "#pragma once\n", "SHD_IO_BAD_H")

    def test_headers_alone(self):
        check = lambda tree: tidy.check_headers_alone(tree, [os.path.join(tree.root, "runtime/include")], "cc", None)  # noqa: E731
        self.expect(check, "runtime/include/sherd/bad.h", "size_t count;\n", "alone")

    def test_exports(self):
        with tempfile.TemporaryDirectory() as folder:
            source, library = os.path.join(folder, "a.c"), os.path.join(folder, "a.so")
            with open(source, "w") as file:
                file.write("void sherd_known(void) {}\nvoid shd_leaked(void) {}\n")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            header = "SHERD_API void sherd_known(void);\nSHERD_API int sherd_missing(\n    int x);\n"
            found = self.violations(lambda tree: tidy.check_exports(tree, library), {"runtime/include/sherd/a.h": header})
        self.assertEqual(len(found), 2, found)
        self.assertIn("shd_leaked", found[0])
        self.assertIn("sherd_missing", found[1])


if __name__ == "__main__":
    unittest.main()
