/* The options that a launcher passes in the environment, and what NCCL finds there: the only place where the library
 * reads it. */
#include <sherd/options.h>

#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/comm/nccl_env.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 160, MAX_IDS = 4 };

/* What a launcher tells its ranks by: complete when every variable that is named is there. */
typedef struct variables {
    const char *launcher, *word; /* for people, and for names */
    const char *rank, *world_size, *local_rank;
    const char *local_world_size; /* NULL: `nodes` tells instead */
    const char *nodes;
    const char *ids[MAX_IDS];      /* which together are of one job alone; none: the launcher's process is */
    const char *attempts[MAX_IDS]; /* and these, where they are set, of one attempt of it */
} variables;

/* The innermost launcher comes first: torchrun may run under any of the others, mpirun under Slurm. Slurm tells batch
 * scripts its task numbers too; only srun tells its step. Open MPI's job has one name or the other, by its version. */
static const variables sets[] = {
    {"torchrun",
     "torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     NULL,
     {"MASTER_ADDR", "MASTER_PORT"},
     {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {"Open MPI",
     "ompi",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     {"PMIX_NAMESPACE"},
     {NULL}},
    {"Open MPI",
     "ompi",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     {"OMPI_MCA_ess_base_jobid"},
     {NULL}},
    {"MPICH", "mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, {NULL}, {NULL}},
    {"Slurm",
     "slurm",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     NULL,
     "SLURM_STEP_NUM_NODES",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     {"SLURM_RESTART_COUNT"}},
};
enum { SETS = sizeof sets / sizeof *sets };
#define TORCHRUN (&sets[0])

/* A rank's place. */
typedef struct place {
    int64_t rank, world_size, local_rank, local_world_size;
} place;

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

static bool is_complete(const variables *set) {
    const char *const needed[] = {set->rank, set->world_size, set->local_rank, set->local_world_size, set->nodes};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i] && !getenv(needed[i])) return false;
    for (int i = 0; i < MAX_IDS && set->ids[i]; i++)
        if (!getenv(set->ids[i])) return false;
    return true;
}

static sherd_status read_place(const variables *set, place *out) {
    int64_t nodes = 1;
    SHD_TRY(read_number(set->world_size, 1, INT32_MAX, &out->world_size));
    SHD_TRY(read_number(set->rank, 0, out->world_size - 1, &out->rank));
    out->local_world_size = out->world_size;
    if (set->nodes) SHD_TRY(read_number(set->nodes, 1, out->world_size, &nodes));
    if (set->local_world_size) SHD_TRY(read_number(set->local_world_size, 1, out->world_size, &out->local_world_size));
    SHD_TRY(read_number(set->local_rank, 0, out->local_world_size - 1, &out->local_rank));
    if (nodes == 1 && out->local_world_size == out->world_size) return SHERD_OK;
    return shd_fail(SHERD_CONFIG,
                    "%s's job has %lld ranks on several hosts: that needs a backend that crosses hosts, NCCL or MPI, "
                    "and this build has none; all ranks must be on one host",
                    set->launcher, (long long)out->world_size);
}

/* The set to take a place from; NULL: there is none. Others than torchrun's are left alone when they tell of one rank, as
 * those of a shell that Slurm has started do, or make no sense. */
static const variables *find(void) {
    if (is_complete(TORCHRUN)) return TORCHRUN;
    for (const variables *set = sets + 1; set < sets + SETS; set++) {
        int64_t world_size, rank;
        if (!is_complete(set)) continue;
        if (read_number(set->world_size, 1, INT32_MAX, &world_size) != SHERD_OK ||
            read_number(set->rank, 0, world_size - 1, &rank) != SHERD_OK)
            shd_log(SHERD_LOG_WARN, "%s's variables are not taken: %s", set->launcher, sherd_last_error());
        else if (world_size > 1)
            return set;
    }
    return NULL;
}

/* What a file of a process in /proc holds, in `text`, which has room for `room` bytes and gets a 0 at its end. */
static size_t read_process(pid_t pid, const char *name, char *text, size_t room) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(text, 1, room - 1, file) : 0;
    if (file) fclose(file);
    text[got] = 0;
    return got;
}

/* Whether the process was started with the variable. Environments may be long, and the launcher's variables their last. */
static bool was_told(pid_t pid, const char *variable) {
    char path[64];
    size_t length = strlen(variable), matched = 0;
    bool found = false, at_start = true; /* of an entry, of which `matched` bytes are as in the name */
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *file = fopen(path, "re");
    for (int c; file && !found && (c = getc(file)) != EOF;) {
        bool same = at_start && c && (matched < length ? c == variable[matched] : c == '=');
        found = same && matched == length;
        matched = same ? matched + 1 : 0;
        at_start = same || !c;
    }
    if (file) fclose(file);
    return found;
}

/* Field `number` of /proc/PID/stat, from 3 on: field 2 is a name in brackets, of anything. "": there is none. */
static const char *read_stat(pid_t pid, int number, char *text, size_t room) {
    read_process(pid, "stat", text, room);
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < number; field++) at = strchr(at + 1, ' ');
    if (!at) return "";
    at[1 + strcspn(at + 1, " ")] = 0;
    return at + 1;
}

/* What all ranks of a host share where their launcher names no job: the process that has started them, or the shells
 * around them, told from another of its number by when it was started. */
static uint64_t hash_launcher(const variables *set) {
    enum { PARENT = 4, START = 22, MOST_SHELLS = 32 };
    char text[1024];
    pid_t pid = getppid();
    for (int i = 0; i < MOST_SHELLS && pid > 1 && was_told(pid, set->rank); i++)
        pid = (pid_t)atoi(read_stat(pid, PARENT, text, sizeof text));
    return shd_hash_text((uint64_t)pid, read_stat(pid, START, text, sizeof text));
}

/* A name that only ranks of the same job and attempt make: readable at the front, a hash of every part at the end. */
static void print_name(const variables *set, char *name, size_t name_bytes) {
    uint64_t hash = set->ids[0] ? 0 : hash_launcher(set);
    for (int i = 0; i < MAX_IDS && set->ids[i]; i++) hash = shd_hash_text(hash, getenv(set->ids[i]));
    for (int i = 0; i < MAX_IDS && set->attempts[i]; i++) {
        const char *text = getenv(set->attempts[i]);
        hash = shd_hash_text(hash, text ? text : "");
    }
    if (set == TORCHRUN)
        snprintf(name, name_bytes, "%.40s:%s-%016llx", getenv("MASTER_ADDR"), getenv("MASTER_PORT"),
                 (unsigned long long)hash);
    else
        snprintf(name, name_bytes, "%s-%.40s-%016llx", set->word, set->ids[0] ? getenv(set->ids[0]) : "",
                 (unsigned long long)hash);
}

static sherd_status check_master(void) {
    int64_t port;
    SHD_TRY(read_number("MASTER_PORT", 1, 65535, &port));
    const char *address = getenv("MASTER_ADDR");
    if (address && *address) return SHERD_OK;
    return shd_fail(SHERD_CONFIG, "MASTER_ADDR is not set or empty, though RANK and WORLD_SIZE are set");
}

const char *sherd_launcher_from_env(void) {
    const variables *set = find();
    return set ? set->launcher : NULL;
}

sherd_status sherd_options_from_env(sherd_options *options) {
    static _Thread_local char name[NAME_BYTES];
    if (!options || options->size != sizeof *options)
        return shd_fail(SHERD_ARGUMENT, "options must start from SHERD_OPTIONS_INIT");
    const variables *set = find();
    place found;
    if (!set && (getenv("RANK") || getenv("WORLD_SIZE"))) set = TORCHRUN; /* a part of it: what is missing is named */
    if (!set) return SHERD_OK;
    SHD_TRY(read_place(set, &found));
    if (set == TORCHRUN) SHD_TRY(check_master());
    print_name(set, name, sizeof name);
    options->rank = (int32_t)found.rank;
    options->world_size = (int32_t)found.world_size;
    options->rendezvous = name;
    return SHERD_OK;
}

/* --- NCCL --------------------------------------------------------------------------------------------------------- */

static sherd_status ready_environment(bool tells) {
    static const char order[] = "NCCL_LAUNCH_ORDER_IMPLICIT", blocking[] = "NCCL_COMM_BLOCKING";
    const char *set = getenv(order);
    if (getenv(blocking))
        return shd_fail(SHERD_CONFIG,
                        "%s is set: it makes every communicator wait for its peers where sherd watches them instead; "
                        "unset it",
                        blocking);
    if (set && strcmp(set, "1"))
        return shd_fail(SHERD_CONFIG, "%s is '%.40s': it must be 1, or not be set, since gathers and reduces overlap",
                        order, set);
    for (char **entry = environ; tells && *entry; entry++)
        if (!strncmp(*entry, "NCCL_", 5)) shd_log(SHERD_LOG_INFO, "NCCL: the environment has %.200s", *entry);
    if (!set && setenv(order, "1", 0)) return shd_fail(SHERD_MEMORY, "no memory for %s=1 in the environment", order);
    return SHERD_OK;
}

sherd_status shd_nccl_ready_environment(bool tells) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* ranks may be threads */
    pthread_mutex_lock(&lock);
    sherd_status status = ready_environment(tells);
    pthread_mutex_unlock(&lock);
    return status;
}
