#!/usr/bin/env python3
"""What `sherd doctor` says of GPUs.  usage: doctor_devices_check.py SHERD, a program on the software device"""
import json
import os
import subprocess
import sys
import unittest

SHERD = None


class Devices(unittest.TestCase):
    def finding(self, **variables):
        done = subprocess.run([SHERD, "doctor", "-n", "1", "--json"], capture_output=True, text=True, timeout=60, env={**os.environ, **variables})
        return next(check for check in json.loads(done.stdout)["checks"] if check["check"] == "devices")

    def test_one_is_named_with_its_memory_and_where_its_libraries_are(self):
        found = self.finding(SOFTCUDA_MEMORY=str(3 << 30))
        self.assertEqual(found["state"], "ok", found)
        self.assertRegex(found["text"], r"^cuda, driver for \d+\.\d+, built with \d+\.\d+: software device \(3\.0 GiB, compute capability \d\.\d\); cuBLASLt [\d.]+ \(/.*\), NCCL [\d.]+ \(/.*\)$")
        self.assertEqual((found["values"]["devices"], found["values"]["usable_devices"]), (1, 1))

    def test_equal_ones_are_counted(self):
        found = self.finding(SOFTCUDA_DEVICES="4")
        self.assertIn(": 4 x software device (", found["text"])
        self.assertEqual((found["values"]["devices"], found["values"]["usable_devices"]), (4, 4))

    def test_what_keeps_them_away_is_told(self):
        found = self.finding(SOFTCUDA_FAIL="cudaGetDeviceCount:1:100")
        self.assertRegex(found["text"], r"^none for cuda: .*cudaErrorNoDevice \(100\).*CUDA_VISIBLE_DEVICES")
        self.assertEqual(found["values"]["devices"], 0)

    def test_a_library_without_which_none_can_be_opened_is_a_warning(self):
        found = self.finding(SHERD_CUBLASLT="/nowhere/libcublasLt.so")
        self.assertEqual(found["state"], "warning", found)
        self.assertRegex(found["advice"], r"^no device can be opened: cuBLASLt cannot be loaded: SHERD_CUBLASLT is '/nowhere/libcublasLt.so'")

    def test_ranks_can_do_without_the_library_between_them(self):
        found = self.finding(SHERD_NCCL="/nowhere/libnccl.so")
        self.assertEqual(found["state"], "ok", found)
        self.assertIn("NCCL cannot be loaded: SHERD_NCCL is '/nowhere/libnccl.so'", found["text"])


if __name__ == "__main__":
    SHERD = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
