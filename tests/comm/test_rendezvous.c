/* How ranks meet, and what happens when those who come do not belong together. */
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/wire.h"
#include "tests/comm/ranks.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What `who` does differently. */
typedef enum oddity {
    FITS,
    OTHER_FINGERPRINT,
    OTHER_WORLD_SIZE,
    RANK_OF_ANOTHER,
    OTHER_SIZES,
    MISSING,
    LATE,
    DIES_MEETING
} oddity;

typedef struct job {
    char name[256];
    int32_t who;
    oddity odd;
    double start_timeout_s;
} job;

/* Meets and does one exchange to prove it. */
static int meet_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm_config config = ranks_config(rank, world, work->name, 4096);
    config.host_bytes = 192;
    if (work->start_timeout_s > 0) config.start_timeout_s = work->start_timeout_s;
    if (rank == work->who) {
        if (work->odd == OTHER_FINGERPRINT) config.fingerprint = 43;
        if (work->odd == OTHER_WORLD_SIZE) config.world_size = world + 1;
        if (work->odd == RANK_OF_ANOTHER) config.rank = world - 1;
        if (work->odd == OTHER_SIZES) config.host_bytes = 256;
        if (work->odd == MISSING) return 0;
        if (work->odd == LATE) usleep(300000);
        if (work->odd == DIES_MEETING) ualarm(200000, 0); /* kills this process while it waits for the others */
    } else if (work->odd == DIES_MEETING && rank == world - 1) {
        usleep(500000);
    }
    shd_comm *comm;
    sherd_status status = shd_comm_create(&config, &comm);
    if (status != SHERD_OK) return (int)status;
    int32_t all[RANKS_MAX];
    status = shd_comm_exchange(comm, &rank, sizeof rank, all);
    for (int32_t r = 0; r < world && status == SHERD_OK; r++)
        if (all[r] != r) status = SHERD_INTERNAL;
    shd_comm_destroy(comm);
    return (int)status;
}

static ranks_result run(rank_style style, int32_t world, job work) {
    if (!work.name[0]) ranks_new_name(work.name, sizeof work.name);
    return ranks_run(style, world, meet_body, &work, 30);
}

static void all_said(const ranks_result *result, int32_t world, int32_t except, sherd_status status,
                     const char *const *texts) {
    for (int32_t r = 0; r < world; r++) {
        if (r == except) continue;
        cr_assert_eq(result->code[r], (int)status, "rank %d of %d: code %d: %s", r, world, result->code[r],
                     result->text[r]);
        for (int t = 0; texts[t]; t++) cr_assert(strstr(result->text[r], texts[t]), "rank %d: %s", r, result->text[r]);
    }
}

Test(rendezvous, ranks_meet_in_any_order_of_arrival, .timeout = 60) {
    for (int32_t late = 0; late < 3; late++)
        for (int style = AS_THREADS; style <= AS_PROCESSES; style++) {
            ranks_result result = run((rank_style)style, 3, (job){.who = late, .odd = LATE});
            cr_assert(ranks_all_ok(&result, 3));
        }
}

Test(rendezvous, sixty_four_ranks_meet, .timeout = 60) {
    ranks_result result = run(AS_PROCESSES, SHD_COMM_MAX_RANKS, (job){.who = -1});
    cr_assert(ranks_all_ok(&result, SHD_COMM_MAX_RANKS));
}

Test(rendezvous, a_long_name_is_as_good_as_a_short_one) {
    job work = {.who = -1};
    memset(work.name, 'n', sizeof work.name - 1);
    ranks_result result = run(AS_THREADS, 2, work);
    cr_assert(ranks_all_ok(&result, 2));
    struct sockaddr_un one, other;
    socklen_t bytes = shd_wire_address(work.name, &one);
    cr_assert_leq(bytes, sizeof one);
    work.name[254] = 'm';
    shd_wire_address(work.name, &other);
    cr_assert(memcmp(&one, &other, sizeof one), "names that differ only at the end stay apart");
}

Test(rendezvous, a_rank_with_another_plan_is_refused_on_all_and_named, .timeout = 60) {
    for (int32_t who = 1; who < 3; who++) {
        ranks_result result = run(AS_PROCESSES, 3, (job){.who = who, .odd = OTHER_FINGERPRINT});
        char named[64];
        snprintf(named, sizeof named, "rank %d has another model, other options or another build than rank 0", who);
        all_said(&result, 3, -1, SHERD_MISMATCH, (const char *[]){named, "000000000000002b", "000000000000002a", NULL});
    }
    /* rank 0 is the odd one: whoever came first is named */
    ranks_result result = run(AS_PROCESSES, 3, (job){.who = 0, .odd = OTHER_FINGERPRINT});
    all_said(&result, 3, -1, SHERD_MISMATCH,
             (const char *[]){"another model, other options or another build than rank 0", NULL});
}

Test(rendezvous, a_wrong_world_size_is_refused_on_all_and_named, .timeout = 60) {
    for (int32_t who = 0; who < 2; who++) {
        ranks_result result = run(AS_THREADS, 3, (job){.who = who, .odd = OTHER_WORLD_SIZE});
        all_said(&result, 3, -1, SHERD_MISMATCH, (const char *[]){"world size 3", "world size 4", "rank 0", NULL});
        for (int32_t r = 0; r < 3; r++) cr_assert_lt(result.ended_ms[r], 4000);
    }
}

Test(rendezvous, two_processes_with_one_rank_are_refused_on_all_and_named, .timeout = 60) {
    ranks_result result = run(AS_PROCESSES, 4, (job){.who = 1, .odd = RANK_OF_ANOTHER});
    all_said(&result, 4, -1, SHERD_MISMATCH, (const char *[]){"two processes call themselves rank 3", NULL});
}

Test(rendezvous, arenas_of_different_sizes_are_refused, .timeout = 60) {
    ranks_result result = run(AS_PROCESSES, 2, (job){.who = 1, .odd = OTHER_SIZES});
    all_said(&result, 2, -1, SHERD_MISMATCH, (const char *[]){"rank 1 expects", "256 host bytes", "192 bytes", NULL});
}

Test(rendezvous, missing_ranks_are_named_in_time, .timeout = 60) {
    ranks_result result = run(AS_PROCESSES, 4, (job){.who = 2, .odd = MISSING, .start_timeout_s = 0.4});
    all_said(&result, 4, 2, SHERD_TIMEOUT, (const char *[]){"0.4 s", "did not come", ": 2", NULL});
    for (int32_t r = 0; r < 4; r++) cr_assert_lt(result.ended_ms[r], 2000);
    result = run(AS_PROCESSES, 2, (job){.who = 0, .odd = MISSING, .start_timeout_s = 0.4});
    all_said(&result, 2, 0, SHERD_TIMEOUT, (const char *[]){"rank 0 did not open rendezvous", NULL});
}

Test(rendezvous, a_rank_that_dies_while_meeting_ends_it_for_all, .timeout = 60) {
    for (int32_t who = 0; who < 2; who++) {
        ranks_result result = run(AS_PROCESSES, 3, (job){.who = who, .odd = DIES_MEETING, .start_timeout_s = 0.8});
        cr_assert_eq(result.code[who], 128 + SIGALRM);
        cr_assert_eq(result.code[1 - who], SHERD_PEER, "%s", result.text[1 - who]);
        char named[64];
        snprintf(named, sizeof named, "rank %d ended while the ranks were meeting", who);
        cr_assert(strstr(result.text[1 - who], named), "%s", result.text[1 - who]);
    }
}

Test(rendezvous, a_name_in_use_is_a_clear_error) {
    struct sockaddr_un address;
    socklen_t bytes = shd_wire_address("taken-by-a-test", &address);
    int holder = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    cr_assert_eq(bind(holder, (struct sockaddr *)&address, bytes), 0);
    shd_comm_config config = ranks_config(0, 2, "taken-by-a-test", 0);
    shd_comm *comm;
    cr_assert_eq(shd_comm_create(&config, &comm), SHERD_COMM);
    cr_assert(strstr(sherd_last_error(), "'taken-by-a-test' is taken"), "%s", sherd_last_error());
    close(holder);
}

/* --- strangers ---------------------------------------------------------------------------------------------------- */

static int connect_to(const char *name) {
    struct sockaddr_un address;
    socklen_t bytes = shd_wire_address(name, &address);
    int door = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    for (int i = 0; i < 2000; i++) {
        if (!connect(door, (struct sockaddr *)&address, bytes)) return door;
        if (errno != ECONNREFUSED) break;
        usleep(1000);
    }
    close(door);
    return -1;
}

/* Rank 1 of 2 sends its own garbage ahead of itself: silence, wrong sizes, a wrong magic, descriptors it was not asked
 * for. */
static int strange_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    int doors[6] = {-1, -1, -1, -1, -1, -1};
    if (rank == 1) {
        for (int d = 0; d < 5; d++)
            if ((doors[d] = connect_to(work->name)) < 0) return 1;
        shd_hello hello = {.magic = SHD_WIRE_MAGIC + 1, .protocol = SHD_WIRE_PROTOCOL, .rank = 1, .world_size = 2};
        unsigned char junk[3000];
        memset(junk, 0xa5, sizeof junk);
        int fds[3] = {0, 1, 2};
        if (!shd_wire_send(doors[1], &hello, sizeof hello, NULL, 0) ||
            !shd_wire_send(doors[2], junk, sizeof junk, fds, 3) || !shd_wire_send(doors[3], junk, 1, fds, 1))
            return 3;
        close(doors[4]);
        doors[4] = -1;
    }
    int code = meet_body(rank, world, argument);
    for (int d = 0; d < 6; d++)
        if (doors[d] >= 0) close(doors[d]);
    return code;
}

static int log_count;
static void count_lines(void *user, sherd_log_level level, const char *line) {
    (void)user;
    if (level == SHERD_LOG_WARN && strstr(line, "dropped")) __atomic_fetch_add(&log_count, 1, __ATOMIC_SEQ_CST);
}

Test(rendezvous, strangers_and_garbage_are_dropped_and_logged, .timeout = 60) {
    job work = {.who = -1};
    ranks_new_name(work.name, sizeof work.name);
    sherd_log_set(count_lines, NULL, SHERD_LOG_WARN);
    ranks_result result = ranks_run(AS_THREADS, 2, strange_body, &work, 30);
    cr_assert(ranks_all_ok(&result, 2));
    cr_assert_geq(log_count, 3);
}

/* A hello that fits in everything but brings no memory. */
static int empty_handed_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    if (rank == 0) return meet_body(rank, world, argument);
    int door = connect_to(work->name);
    shd_hello hello = {.magic = SHD_WIRE_MAGIC,
                       .protocol = SHD_WIRE_PROTOCOL,
                       .rank = 1,
                       .world_size = 2,
                       .unit_count = 4,
                       .fingerprint = 42,
                       .exported_bytes = 4096,
                       .host_bytes = 192};
    int file = open("/dev/null", O_RDONLY), fds[2] = {file, file};
    bool sent = door >= 0 && shd_wire_send(door, &hello, sizeof hello, fds, 2);
    shd_answer answer;
    ssize_t got = recv(door, &answer, sizeof answer, 0);
    close(file);
    close(door);
    return sent && got == sizeof answer ? answer.status : 1;
}

Test(rendezvous, memory_that_is_not_what_was_promised_is_refused, .timeout = 60) {
    job work = {.who = -1};
    ranks_new_name(work.name, sizeof work.name);
    ranks_result result = ranks_run(AS_PROCESSES, 2, empty_handed_body, &work, 30);
    cr_assert_eq(result.code[0], SHERD_COMM, "%s", result.text[0]);
    cr_assert(strstr(result.text[0], "rank 1 came without its memory"), "%s", result.text[0]);
    cr_assert_eq(result.code[1], SHERD_COMM);
}

/* --- several jobs, and what is left ------------------------------------------------------------------------------- */

static void *run_job(void *argument) {
    ranks_result result = run(AS_THREADS, 3, (job){.who = 1, .odd = LATE});
    *(bool *)argument = ranks_all_ok(&result, 3);
    return NULL;
}

Test(rendezvous, jobs_of_different_names_do_not_disturb_each_other, .timeout = 60) {
    pthread_t threads[3];
    bool good[3] = {false};
    for (int j = 0; j < 3; j++) pthread_create(&threads[j], NULL, run_job, &good[j]);
    for (int j = 0; j < 3; j++) pthread_join(threads[j], NULL);
    for (int j = 0; j < 3; j++) cr_assert(good[j]);
}

static int count_entries(const char *dir) {
    DIR *listing = opendir(dir);
    int count = 0;
    while (listing && readdir(listing)) count++;
    if (listing) closedir(listing);
    return count;
}

static bool has_entry_of_ours(const char *dir) {
    DIR *listing = opendir(dir);
    bool found = false;
    for (struct dirent *entry; listing && (entry = readdir(listing));)
        found = found || strstr(entry->d_name, "sherd-exported") || strstr(entry->d_name, "sherd-host") ||
                strstr(entry->d_name, "sherd-control");
    if (listing) closedir(listing);
    return found;
}

/* True when /proc/net/unix lists a socket of that name. */
static bool name_is_listed(const char *name) {
    FILE *file = fopen("/proc/net/unix", "r");
    char line[512];
    bool found = false;
    while (file && fgets(line, sizeof line, file)) found = found || strstr(line, name);
    if (file) fclose(file);
    return found;
}

Test(rendezvous, nothing_is_left_after_a_job_or_a_failed_meeting, .timeout = 60) {
    int fds = count_entries("/proc/self/fd");
    int64_t arena = shd_memory_held(SHD_MEMORY_ARENA), objects = shd_memory_held(SHD_MEMORY_OBJECTS),
            control = shd_memory_held(SHD_MEMORY_CONTROL);
    static const oddity oddities[] = {FITS, OTHER_FINGERPRINT, OTHER_WORLD_SIZE, RANK_OF_ANOTHER, MISSING};
    for (int i = 0; i < 5; i++) {
        job work = {.who = 1, .odd = oddities[i], .start_timeout_s = 0.3};
        ranks_new_name(work.name, sizeof work.name);
        run(AS_THREADS, 3, work);
        cr_assert_eq(count_entries("/proc/self/fd"), fds, "oddity %d", i);
        cr_assert_not(name_is_listed(work.name));
        cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA), arena, "oddity %d", i);
        cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), objects, "oddity %d", i);
        cr_assert_eq(shd_memory_held(SHD_MEMORY_CONTROL), control, "oddity %d", i);
    }
    cr_assert_not(has_entry_of_ours("/dev/shm"));
}

static int killed_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm_config config = ranks_config(rank, world, work->name, 1 << 20);
    shd_comm *comm;
    if (shd_comm_create(&config, &comm)) return 1;
    memset(shd_comm_exported(comm, rank), 1, 1 << 20);
    raise(SIGKILL);
    return 2;
}

Test(rendezvous, nothing_is_left_when_every_rank_is_killed, .timeout = 60) {
    job work = {.who = -1};
    for (int i = 0; i < 10; i++) {
        ranks_new_name(work.name, sizeof work.name);
        ranks_result result = ranks_run(AS_PROCESSES, 4, killed_body, &work, 30);
        for (int32_t r = 0; r < 4; r++) cr_assert_eq(result.code[r], 128 + SIGKILL, "rank %d: %s", r, result.text[r]);
        cr_assert_not(name_is_listed(work.name));
    }
    cr_assert_not(has_entry_of_ours("/dev/shm"));
}
