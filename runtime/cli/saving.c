#include "runtime/cli/saving.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

double shd_saving_clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int shd_saving_create(int32_t rank_count) {
    int file = memfd_create("sherd-saving", 0);
    if (file >= 0 && ftruncate(file, (off_t)((size_t)rank_count * sizeof(shd_saving_slot))) == 0) return file;
    if (file >= 0) close(file);
    return -1;
}

shd_saving_slot *shd_saving_map(int file, int32_t rank_count) {
    size_t bytes = (size_t)rank_count * sizeof(shd_saving_slot);
    struct stat about;
    /* Some other file, were the number an old one. */
    if (file < 0 || fcntl(file, F_GET_SEALS) < 0 || fstat(file, &about) != 0 || (size_t)about.st_size != bytes)
        return NULL;
    void *slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return slots == MAP_FAILED ? NULL : slots;
}

void shd_saving_clear(shd_saving_slot *slots, int32_t rank_count) {
    for (int32_t rank = 0; slots && rank < rank_count; rank++) {
        slots[rank].pid = slots[rank].step_ms = slots[rank].trains = slots[rank].told = slots[rank].failed = 0;
        slots[rank].steps = slots[rank].told_ms = 0;
    }
}

void shd_saving_mark(shd_saving_slot *slot, bool saving) { slot->pid = saving ? (int32_t)getpid() : 0; }

void shd_saving_mark_told(shd_saving_slot *slot) {
    slot->told_ms = (int64_t)shd_saving_clock_ms();
    slot->told = (int32_t)getpid();
}

int32_t shd_saving_first_told(const shd_saving_slot *slots, int32_t rank_count) {
    int32_t first = -1;
    for (int32_t rank = 0; slots && rank < rank_count; rank++)
        if (slots[rank].told && (first < 0 || slots[rank].told_ms < slots[first].told_ms)) first = rank;
    return first;
}

/* Writes "/proc/PID/io". */
static void make_path(int32_t pid, char path[32]) {
    char digits[12];
    int count = 0, at = 6;
    for (; count == 0 || pid > 0; pid /= 10) digits[count++] = (char)('0' + pid % 10);
    const char *before = "/proc/", *after = "/io";
    for (int i = 0; i < at; i++) path[i] = before[i];
    while (count > 0) path[at++] = digits[--count];
    for (; *after; after++) path[at++] = *after;
    path[at] = 0;
}

/* What the process has read and written so far, the sum of the file's first two lines, "rchar: N" and "wchar: N"; 0 where
 * the kernel does not tell. */
static int64_t count_bytes(int32_t pid) {
    char path[32], text[256];
    make_path(pid, path);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t got = read(file, text, sizeof text);
    close(file);
    int64_t sum = 0, number = 0;
    for (ssize_t i = 0, lines = 0; i < got && lines < 2; i++) {
        if (text[i] >= '0' && text[i] <= '9') number = 10 * number + (text[i] - '0');
        if (text[i] != '\n') continue;
        sum += number;
        number = 0;
        lines++;
    }
    return sum;
}

/* A rank that has ended in the middle of a save does not take its word back. */
static bool is_gone(int32_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

bool shd_saving_goes_on(shd_saving_watch *watch) {
    bool saving = false;
    int64_t bytes = 0;
    for (int32_t r = 0; watch->slots && r < watch->rank_count; r++) {
        int32_t pid = watch->slots[r].pid;
        if (pid == 0 || is_gone(pid)) continue;
        saving = true;
        bytes += count_bytes(pid);
    }
    double now = shd_saving_clock_ms();
    if (!saving) {
        watch->since_ms = 0;
        return false;
    }
    if (watch->since_ms == 0 || bytes != watch->bytes) {
        watch->bytes = bytes;
        watch->since_ms = now;
    }
    return now - watch->since_ms < watch->patience_ms;
}

double shd_saving_step_ms(const shd_saving_watch *watch) {
    int32_t longest = 0;
    for (int32_t r = 0; watch->slots && r < watch->rank_count; r++)
        if (watch->slots[r].step_ms > longest) longest = watch->slots[r].step_ms;
    return longest;
}
