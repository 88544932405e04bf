/* The options that a launcher passes in the environment: the only place where the library reads it. */
#include <sherd/options.h>

#include "runtime/base/hash.h"
#include "runtime/base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 160 };

/* A decimal number in [low, high], digits only: no sign, no space, no leading zero. */
static sherd_status read_number(const char *variable, int64_t low, int64_t high, int64_t *out) {
    const char *text = getenv(variable);
    if (!text)
        return shd_fail(
            SHERD_CONFIG,
            "%s is not set, though other variables of a launcher are: a rank needs RANK, WORLD_SIZE, LOCAL_RANK, "
            "LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
            variable);
    size_t digits = strspn(text, "0123456789");
    bool is_number = digits > 0 && digits <= 10 && text[digits] == 0 && (text[0] != '0' || digits == 1);
    int64_t value = is_number ? strtoll(text, NULL, 10) : -1;
    if (!is_number || value < low || value > high)
        return shd_fail(SHERD_CONFIG, "%s is '%.40s'; it must be a whole number from %lld to %lld", variable, text,
                        (long long)low, (long long)high);
    *out = value;
    return SHERD_OK;
}

/* A name that only ranks of the same job and attempt make: readable at the front, a hash of every part at the end. */
static void print_name(const char *address, int64_t port, char *name, size_t name_bytes) {
    const char *run = getenv("TORCHELASTIC_RUN_ID"), *attempt = getenv("TORCHELASTIC_RESTART_COUNT");
    uint64_t hash = shd_hash_text(0, address);
    hash = shd_hash_text(hash, run ? run : "");
    hash = shd_hash_text(hash, attempt ? attempt : "");
    snprintf(name, name_bytes, "%.40s:%lld-%016llx", address, (long long)port, (unsigned long long)hash);
}

sherd_status sherd_options_from_env(sherd_options *options) {
    static _Thread_local char name[NAME_BYTES];
    if (!options || options->size != sizeof *options)
        return shd_fail(SHERD_ARGUMENT, "options must start from SHERD_OPTIONS_INIT");
    if (!getenv("RANK") && !getenv("WORLD_SIZE")) return SHERD_OK;
    int64_t world_size = 0, rank = 0, local_world_size = 0, local_rank = 0, port = 0;
    SHD_TRY(read_number("WORLD_SIZE", 1, INT32_MAX, &world_size));
    SHD_TRY(read_number("RANK", 0, world_size - 1, &rank));
    SHD_TRY(read_number("LOCAL_WORLD_SIZE", 1, world_size, &local_world_size));
    SHD_TRY(read_number("LOCAL_RANK", 0, local_world_size - 1, &local_rank));
    SHD_TRY(read_number("MASTER_PORT", 1, 65535, &port));
    const char *address = getenv("MASTER_ADDR");
    if (!address || !*address)
        return shd_fail(SHERD_CONFIG, "MASTER_ADDR is not set or empty, though RANK and WORLD_SIZE are set");
    if (local_world_size != world_size)
        return shd_fail(SHERD_CONFIG,
                        "LOCAL_WORLD_SIZE is %lld and WORLD_SIZE %lld: the ranks of a job must be on one host in this "
                        "build",
                        (long long)local_world_size, (long long)world_size);
    print_name(address, port, name, sizeof name);
    options->rank = (int32_t)rank;
    options->world_size = (int32_t)world_size;
    options->rendezvous = name;
    return SHERD_OK;
}
