#include "runtime/device/cuda_errors.h"

#include "runtime/base/status.h"

#include <stdio.h>

typedef struct meaning {
    cudaError_t error;
    sherd_status status;
    const char *advice;
} meaning;

#define LATE                                                                                                           \
    "CUDA tells of it late: the work at fault was enqueued earlier. With CUDA_LAUNCH_BLOCKING=1 it is found where it " \
    "happens, and compute-sanitizer names the kernel"
#define FAULTY "The GPU or its link is faulty: look at nvidia-smi -q and the kernel's log (Xid), and take it out of use"

static const meaning meanings[] = {
    {cudaErrorMemoryAllocation, SHERD_MEMORY, "Other programs on the GPU may hold memory: nvidia-smi lists them"},
    {cudaErrorInsufficientDriver, SHERD_CONFIG, "Update the NVIDIA driver, or build sherd with an older toolkit"},
    {cudaErrorCallRequiresNewerDriver, SHERD_CONFIG, "Update the NVIDIA driver, or build sherd with an older toolkit"},
    {cudaErrorStubLibrary, SHERD_CONFIG,
     "The toolkit's stub of libcuda.so.1 was found before the driver's: take its folder out of LD_LIBRARY_PATH"},
    {cudaErrorNoDevice, SHERD_CONFIG,
     "Look at nvidia-smi and CUDA_VISIBLE_DEVICES; containers need to be given GPUs (docker run --gpus all)"},
    {cudaErrorInvalidDevice, SHERD_CONFIG, "Look at nvidia-smi and CUDA_VISIBLE_DEVICES"},
    {cudaErrorDevicesUnavailable, SHERD_CONFIG,
     "Another process has the GPU for itself, or it is in a mode that forbids computing: nvidia-smi -q -d COMPUTE"},
    {cudaErrorInitializationError, SHERD_CONFIG,
     "The driver could not begin; a process that was forked from one that used CUDA cannot use it either"},
    {cudaErrorSystemNotReady, SHERD_CONFIG, "The fabric manager has to run: systemctl status nvidia-fabricmanager"},
    {cudaErrorSystemDriverMismatch, SHERD_CONFIG,
     "The driver's kernel module and libraries are of different versions: restart the machine after an update"},
    {cudaErrorCompatNotSupportedOnDevice, SHERD_CONFIG,
     "The compatibility libraries (cuda-compat) do not work on this GPU: take them out of LD_LIBRARY_PATH"},
    {cudaErrorNoKernelImageForDevice, SHERD_CONFIG,
     "sherd was built for other GPUs: add this one's compute capability to -Dgpu_architectures"},
    {cudaErrorUnsupportedPtxVersion, SHERD_CONFIG,
     "The driver is older than the toolkit sherd was built with: update it, or name this GPU's compute capability in "
     "-Dgpu_architectures"},
    {cudaErrorInvalidDeviceFunction, SHERD_CONFIG,
     "sherd was built for other GPUs: add this one's compute capability to -Dgpu_architectures"},
    {cudaErrorNotPermitted, SHERD_CONFIG, "The system forbids it to this user"},
    {cudaErrorHostMemoryAlreadyRegistered, SHERD_DEVICE, "A part of this memory is pinned already"},
    {cudaErrorLaunchOutOfResources, SHERD_DEVICE, "A kernel needs more registers or shared memory than this GPU has"},
    {cudaErrorLaunchTimeout, SHERD_DEVICE,
     "The GPU also drives a screen, which ends long kernels: use one that does not"},
    {cudaErrorIllegalAddress, SHERD_DEVICE, LATE},
    {cudaErrorMisalignedAddress, SHERD_DEVICE, LATE},
    {cudaErrorInvalidAddressSpace, SHERD_DEVICE, LATE},
    {cudaErrorInvalidPc, SHERD_DEVICE, LATE},
    {cudaErrorIllegalInstruction, SHERD_DEVICE, LATE},
    {cudaErrorHardwareStackError, SHERD_DEVICE, LATE},
    {cudaErrorLaunchFailure, SHERD_DEVICE, LATE},
    {cudaErrorAssert, SHERD_DEVICE, LATE},
    {cudaErrorECCUncorrectable, SHERD_DEVICE, FAULTY},
    {cudaErrorNvlinkUncorrectable, SHERD_DEVICE, FAULTY},
    {cudaErrorContained, SHERD_DEVICE, FAULTY},
    {cudaErrorExternalDevice, SHERD_DEVICE, FAULTY},
    {cudaErrorMpsConnectionFailed, SHERD_CONFIG, "The MPS server cannot be reached; is its control daemon running?"},
    {cudaErrorMpsClientTerminated, SHERD_DEVICE, "Another client of the MPS server failed, which ended this one too"},
    {cudaErrorUnknown, SHERD_CONFIG, "The driver is in a bad state: look at nvidia-smi and the kernel's log"},
};

sherd_status shd_cuda_explain(cudaError_t error, const char *where, char *out, size_t bytes) {
    sherd_status status = SHERD_DEVICE;
    const char *advice = "";
    out[0] = 0;
    if (error == cudaSuccess) return SHERD_OK;
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (meanings[i].error == error) {
            status = meanings[i].status;
            advice = meanings[i].advice;
        }
    snprintf(out, bytes, "%s: %s (%d), %s%s%s", where, cudaGetErrorName(error), (int)error, cudaGetErrorString(error),
             *advice ? ". " : "", advice);
    return status;
}

sherd_status shd_cuda_refuse(cudaError_t error, const char *where) {
    char text[SHD_CUDA_TEXT_BYTES];
    if (error == cudaSuccess) return SHERD_OK;
    (void)cudaGetLastError();
    sherd_status status = shd_cuda_explain(error, where, text, sizeof text);
    return shd_fail(status, "%s", text);
}
