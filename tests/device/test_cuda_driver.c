/* What a machine says that has the program and no GPU; and libraries that are looked for. */
#include "runtime/device/cuda_kernels.h"
#include "runtime/device/cuda_loader.h"
#include "tests/device/cuda_device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_driver(void) { return access("/proc/driver/nvidia/version", F_OK) == 0; }

Test(cuda_driver, without_a_driver_there_is_no_device_and_the_cause_is_told) {
    int32_t count = -1;
    shd_device *device = NULL;
    shd_device_facts facts;
    if (has_driver()) cr_skip_test("there is a driver");
    cr_assert_eq(ops->count(&count), SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(), "no NVIDIA driver"), "%s", sherd_last_error());
    cr_assert_eq(ops->open(&(shd_device_config){.index = 0}, &device), SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(), "no NVIDIA driver"), "%s", sherd_last_error());
    cr_assert_null(device);
    cr_assert_eq(ops->describe(0, &facts), SHERD_CONFIG);
    cr_assert_eq(count, -1, "nothing is told of devices that are not there");
}

Test(cuda_driver, the_backend_is_the_one_that_job_files_name) {
    cr_assert_eq(shd_device_backend(), ops);
    cr_assert_str_eq(shd_device_backend()->name, "cuda");
}

/* The list makes itself: what opening a device loads is what launches name. */
Test(cuda_driver, kernels_are_listed_once_each_before_main_begins) {
    int32_t count = 0;
    for (const shd_kernel_entry *one = shd_kernel_entries; one; one = one->next, count++)
        for (const shd_kernel_entry *other = one->next; other; other = other->next)
            cr_assert_neq(one->kernel, other->kernel);
    cr_assert_gt(count, 0);
}

Test(cuda_driver, a_library_that_is_named_and_missing_is_told_by_its_variable) {
    const shd_nccl *nccl = NULL;
    const shd_cublaslt *cublaslt = NULL;
    char text[256];
    setenv("SHERD_NCCL", "/nowhere/libnccl.so", 1);
    cr_assert_eq(shd_nccl_load(&nccl), SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(), "SHERD_NCCL is '/nowhere/libnccl.so'"), "%s", sherd_last_error());
    setenv("SHERD_CUBLASLT", "/nowhere/libcublasLt.so", 1);
    cr_assert_eq(shd_cublaslt_load(&cublaslt), SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(), "SHERD_CUBLASLT is '/nowhere/libcublasLt.so'"), "%s", sherd_last_error());
    cr_assert_eq(ops->libraries(text, sizeof text), SHERD_CONFIG);
}

Test(cuda_driver, a_library_without_our_functions_is_told_by_the_one_it_lacks) {
    const shd_nccl *nccl = NULL;
    setenv("SHERD_NCCL", "libm.so.6", 1);
    cr_assert_eq(shd_nccl_load(&nccl), SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(), "has no ncclGetVersion: 2.18 or newer"), "%s", sherd_last_error());
    cr_assert_str_eq(shd_nccl_title(), "");
}

/* The toolkit's own are where the linker does not look. */
Test(cuda_driver, the_toolkits_libraries_have_all_functions_and_say_who_they_are) {
    const shd_nccl *nccl = NULL, *again = NULL;
    const shd_cublaslt *cublaslt = NULL;
    char text[512];
    if (access(CUDA_LIBRARIES "/libnccl.so.2", R_OK) != 0 || access(CUDA_LIBRARIES "/libcublasLt.so.13", R_OK) != 0)
        cr_skip_test("no libraries in " CUDA_LIBRARIES);
    setenv("SHERD_NCCL", CUDA_LIBRARIES "/libnccl.so.2", 1);
    setenv("SHERD_CUBLASLT", CUDA_LIBRARIES "/libcublasLt.so.13", 1);
    cr_assert_eq(shd_nccl_load(&nccl), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_cublaslt_load(&cublaslt), SHERD_OK, "%s", sherd_last_error());
    cr_assert_str_eq(nccl->ncclGetErrorString(ncclSuccess), "no error");
    cr_assert_eq(cublaslt->cublasLtGetVersion() / 10000, CUBLAS_VER_MAJOR);
    setenv("SHERD_NCCL", "/nowhere", 1);
    cr_assert_eq(shd_nccl_load(&again), SHERD_OK, "it is loaded once");
    cr_assert_eq(again, nccl);
    cr_assert_eq(ops->libraries(text, sizeof text), SHERD_OK);
    cr_assert(strstr(text, "cuBLASLt 13.") && strstr(text, "NCCL 2.") && strstr(text, "libnccl.so.2"), "%s", text);
}
