#include "runtime/launch/spawn.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The variables that torchrun gives; those before VARIABLE_SHARED differ between ranks. */
enum {
    VARIABLE_RANK,
    VARIABLE_LOCAL_RANK,
    VARIABLE_ROLE_RANK,
    VARIABLE_SHARED,
    VARIABLE_MAX = 20,
    VARIABLE_BYTES = 96
};

static const char *const owned[] = {"RANK",
                                    "LOCAL_RANK",
                                    "ROLE_RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_WORLD_SIZE",
                                    "GROUP_RANK",
                                    "GROUP_WORLD_SIZE",
                                    "ROLE_WORLD_SIZE",
                                    "ROLE_NAME",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_RUN_ID",
                                    "TORCHELASTIC_RESTART_COUNT",
                                    "TORCHELASTIC_MAX_RESTARTS",
                                    "TORCHELASTIC_USE_AGENT_STORE"};
enum { OWNED_COUNT = sizeof owned / sizeof *owned };

static bool is_owned(const char *entry) {
    for (int i = 0; i < OWNED_COUNT; i++) {
        size_t length = strlen(owned[i]);
        if (!strncmp(entry, owned[i], length) && entry[length] == '=') return true;
    }
    return false;
}

/* A port that is free now. A rank that binds it later may still lose it to someone else, as with torchrun. */
static sherd_status find_free_port(int *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && !bind(fd, (struct sockaddr *)&address, length) &&
                 !getsockname(fd, (struct sockaddr *)&address, &length);
    int cause = errno;
    if (fd >= 0) close(fd);
    if (!found) return shd_fail(SHERD_IO, "no free port on 127.0.0.1: %s", strerror(cause));
    *port = ntohs(address.sin_port);
    return SHERD_OK;
}

static sherd_status draw_run_id(char id[33]) {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return shd_fail(SHERD_IO, "no random bytes for the run id: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    return SHERD_OK;
}

/* Writes "NAME=value" into entry `index`, which has room for VARIABLE_BYTES. */
static void set(char **environment, int index, const char *name, const char *value) {
    snprintf(environment[index], VARIABLE_BYTES, "%s=%s", name, value);
}
static void set_number(char **environment, int index, const char *name, long value) {
    snprintf(environment[index], VARIABLE_BYTES, "%s=%ld", name, value);
}

sherd_status shd_spawn_init(shd_spawn *spawn, const char *program, char *const *argv, int32_t rank_count,
                            const sigset_t *mask) {
    char id[33];
    int port = 0, inherited = 0;
    SHD_TRY(find_free_port(&port));
    SHD_TRY(draw_run_id(id));
    while (environ[inherited]) inherited++;
    /* One block: the pointers, then the texts of our own entries. */
    char **list = shd_alloc((size_t)inherited + VARIABLE_MAX + 1, sizeof *list);
    char *texts = shd_alloc(VARIABLE_MAX, VARIABLE_BYTES);
    if (!list || !texts) {
        shd_free(list);
        shd_free(texts);
        return shd_fail(SHERD_MEMORY, "no memory for the environment of the ranks");
    }
    for (int i = 0; i < VARIABLE_MAX; i++) list[i] = texts + (size_t)i * VARIABLE_BYTES;
    int count = VARIABLE_SHARED;
    set_number(list, count++, "WORLD_SIZE", rank_count);
    set_number(list, count++, "LOCAL_WORLD_SIZE", rank_count);
    set(list, count++, "GROUP_RANK", "0");
    set(list, count++, "GROUP_WORLD_SIZE", "1");
    set_number(list, count++, "ROLE_WORLD_SIZE", rank_count);
    set(list, count++, "ROLE_NAME", "default");
    set(list, count++, "MASTER_ADDR", "127.0.0.1");
    set_number(list, count++, "MASTER_PORT", port);
    set(list, count++, "TORCHELASTIC_RUN_ID", id);
    set(list, count++, "TORCHELASTIC_RESTART_COUNT", "0");
    set(list, count++, "TORCHELASTIC_MAX_RESTARTS", "0");
    if (rank_count > 1 && !getenv("OMP_NUM_THREADS")) set(list, count++, "OMP_NUM_THREADS", "1");
    for (int i = 0; i < inherited; i++)
        if (!is_owned(environ[i])) list[count++] = environ[i];
    list[count] = NULL;
    *spawn = (shd_spawn){.argv = argv,
                         .program = program ? program : argv[0],
                         .rank_count = rank_count,
                         .environment = list,
                         .mask = *mask,
                         .parent = getpid()};
    return SHERD_OK;
}

void shd_spawn_fini(shd_spawn *spawn) {
    if (spawn->environment) shd_free(spawn->environment[0]);
    shd_free(spawn->environment);
    *spawn = (shd_spawn){0};
}

/* In the child, between fork and exec: only async-signal-safe calls. Ends in the program, or returns what went
 * wrong. */
static int become_rank(const shd_spawn *spawn, int32_t rank, const shd_guard *guard) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The launcher may have died before prctl: then nobody sends the signal. */
    if (getppid() != spawn->parent) _exit(128 + SIGKILL);
    /* Not left to the launcher, which may be killed before it comes to it, when the program has started others already. */
    shd_guard_add(guard, getpid());
    /* A group in the background that reads a terminal would be stopped; one input cannot be shared by several. */
    if (rank > 0 || isatty(0)) {
        int nothing = open("/dev/null", O_RDONLY);
        if (nothing > 0) {
            dup2(nothing, 0);
            close(nothing);
        }
    }
    sigprocmask(SIG_SETMASK, &spawn->mask, NULL);
    execvpe(spawn->program, spawn->argv, spawn->environment);
    return errno;
}

sherd_status shd_spawn_rank(shd_spawn *spawn, int32_t rank, const shd_guard *guard, pid_t *pid, int *exit_code) {
    set_number(spawn->environment, VARIABLE_RANK, "RANK", rank);
    set_number(spawn->environment, VARIABLE_LOCAL_RANK, "LOCAL_RANK", rank);
    set_number(spawn->environment, VARIABLE_ROLE_RANK, "ROLE_RANK", rank);
    /* exec closes the writing end; what can be read instead is why it failed. */
    int ends[2], cause = 0;
    if (pipe2(ends, O_CLOEXEC) < 0) return shd_fail(SHERD_IO, "cannot start rank %d: %s", rank, strerror(errno));
    pid_t child = fork();
    if (child < 0) {
        cause = errno;
        close(ends[0]);
        close(ends[1]);
        return shd_fail(SHERD_IO, "cannot start rank %d: %s", rank, strerror(cause));
    }
    if (child == 0) {
        cause = become_rank(spawn, rank, guard);
        shd_guard_remove(guard, getpid());
        ssize_t written = write(ends[1], &cause, sizeof cause);
        _exit(written == (ssize_t)sizeof cause ? 127 : 126);
    }
    setpgid(child, child); /* both do it: whoever comes first, the group exists when it is needed */
    close(ends[1]);
    ssize_t got;
    do got = read(ends[0], &cause, sizeof cause);
    while (got < 0 && errno == EINTR);
    close(ends[0]);
    if (got == (ssize_t)sizeof cause) {
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
        *exit_code = cause == ENOENT ? 127 : 126;
        return shd_fail(SHERD_UNSUPPORTED, "cannot execute %s: %s", spawn->program, strerror(cause));
    }
    *pid = child;
    return SHERD_OK;
}
