"""The programs that tests/gpu/run takes along: built here, with the libraries that the other machine may lack."""
import os
import shutil
import subprocess
import tarfile
import tempfile

from runner import Failed

ARCHIVE = "programs.tar.gz"
PROGRAMS = ("sherd", "tests/device/gpu-device", "tests/ops/gpu-ops", "tests/ops/gpu-attention", "tests/ops/gpu-products",
            "tests/optim/gpu-optim", "tests/comm/gpu-links", "tests/ops/gpu-bench-ops", "tests/ops/gpu-bench-products")
# The other machine's own: they belong to its kernel and loader.
SYSTEM = ("libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux", "libresolv.so")


def build_programs(top, build, architectures, log=None, seconds=None):
    if not os.path.exists(os.path.join(build, "build.ninja")):
        command = ["meson", "setup", build, top, "-Dgpu=enabled", "-Dtests=enabled", f"-Dgpu_architectures={architectures}"]
        subprocess.run(command, check=True, stdout=log, stderr=log, timeout=seconds)
    subprocess.run(["ninja", "-C", build, "gpu-tests"], check=True, stdout=log, stderr=log, timeout=seconds)


def copy_programs(build, folder):
    os.makedirs(folder, exist_ok=True)
    for program in PROGRAMS:
        shutil.copy(os.path.join(build, program), folder)


def libraries_of(programs):
    """Paths of the shared libraries that they need, the system's own left out."""
    found = {}
    for program in programs:
        for line in subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.splitlines():
            words = line.split()
            if len(words) > 2 and words[1] == "=>" and words[2].startswith("/") and not words[0].startswith(SYSTEM):
                found[words[0]] = words[2]
    return found


def make(top, build, architectures, out):
    """OUT/programs.tar.gz: bin/ with the stripped programs, lib/ with libraries."""
    build_programs(top, build, architectures)
    with tempfile.TemporaryDirectory() as work:
        programs, libraries = os.path.join(work, "bin"), os.path.join(work, "lib")
        os.makedirs(libraries)
        copy_programs(build, programs)
        for name, path in libraries_of([os.path.join(programs, name) for name in os.listdir(programs)]).items():
            shutil.copy(path, os.path.join(libraries, name))
        for folder in (programs, libraries):
            for name in os.listdir(folder):
                subprocess.run(["strip", os.path.join(folder, name)], check=True)
        os.makedirs(out, exist_ok=True)
        archive = os.path.join(out, ARCHIVE)
        with tarfile.open(archive, "w:gz") as tar:
            for name in ("bin", "lib"):
                tar.add(os.path.join(work, name), name)
    print(f"{archive}: {os.path.getsize(archive) / 2**20:.1f} MiB")


def unpack(packed, work):
    with tarfile.open(os.path.join(packed, ARCHIVE)) as tar:
        tar.extractall(os.path.join(work, "pack"))
    return os.path.join(work, "pack", "bin")


def build(top, build_folder, architectures, log, seconds):
    try:
        build_programs(top, build_folder, architectures, log, seconds)
    except (OSError, subprocess.SubprocessError) as error:
        raise Failed(f"they cannot be built here: {error}; log.txt says more, and --pack makes them elsewhere")
    folder = os.path.join(build_folder, "gpu-programs")
    copy_programs(build_folder, folder)
    return folder
