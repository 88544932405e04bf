#include "runtime/launch/enclosure.h"

#include "runtime/base/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* Attempts to remove a group, and the pause between two while what was killed is still going. */
enum { PASSES = 2500, PAUSE_NS = 2000000, LIST_BYTES = 4096, CHUNK_BYTES = 512, DEPTH_MAX = 64 };

void shd_enclosure_choose(shd_enclosure *enclosure, const char *id) {
    char own[PATH_MAX];
    struct statfs system;
    enclosure->folder[0] = 0;
    if (!shd_cgroup_find("", own, sizeof own)) return;
    /* Something else may be mounted over it, in which folders could be made just as well. */
    if (statfs(own, &system) < 0 || system.f_type != CGROUP2_SUPER_MAGIC) return;
    int length = snprintf(enclosure->folder, sizeof enclosure->folder, "%s/sherd-%d-%s", own, (int)getpid(), id);
    if (length < 0 || (size_t)length >= sizeof enclosure->folder) enclosure->folder[0] = 0;
}

void shd_enclosure_make(shd_enclosure *enclosure) {
    if (enclosure->folder[0] && mkdir(enclosure->folder, 0755) < 0) enclosure->folder[0] = 0;
}

/* --- members ------------------------------------------------------------------------------------------------------ */

static bool write_word(int folder, const char *name, const char *word) {
    int file = openat(folder, name, O_WRONLY | O_CLOEXEC);
    if (file < 0) return false;
    bool written = write(file, word, strlen(word)) == (ssize_t)strlen(word);
    close(file);
    return written;
}

void shd_enclosure_enter(const shd_enclosure *enclosure) {
    int folder = enclosure->folder[0] ? open(enclosure->folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (folder < 0) return;
    write_word(folder, "cgroup.procs", "0"); /* the process that writes it */
    close(folder);
}

/* The numbers of a group's processes, as they are read. */
typedef struct members {
    int file;
    char chunk[CHUNK_BYTES];
    ssize_t got, at;
} members;

/* 0: there are no more. Processes that this one cannot see have the number 0, too, and are passed over. */
static pid_t next_member(members *list) {
    pid_t number = 0;
    for (;;) {
        if (list->at == list->got) {
            list->got = read(list->file, list->chunk, sizeof list->chunk);
            list->at = 0;
            if (list->got <= 0) {
                list->got = 0;
                return number;
            }
        }
        char digit = list->chunk[list->at++];
        if (digit >= '0' && digit <= '9')
            number = 10 * number + (digit - '0');
        else if (number)
            return number;
    }
}

static bool is_member(int folder, pid_t pid) {
    members list = {.file = openat(folder, "cgroup.procs", O_RDONLY | O_CLOEXEC)};
    bool found = false;
    for (pid_t member; !found && (member = next_member(&list));) found = member == pid;
    if (list.file >= 0) close(list.file);
    return found;
}

/* One by one, where the kernel does not kill a whole group (before Linux 5.14). A number that was read may mean another
 * process by now; one that is listed while a descriptor holds on to its process does not. */
static void kill_members(int folder) {
    members list = {.file = openat(folder, "cgroup.procs", O_RDONLY | O_CLOEXEC)};
    for (pid_t member; (member = next_member(&list));) {
        int handle = (int)syscall(SYS_pidfd_open, member, 0);
        if (handle < 0) continue;
        if (is_member(folder, member)) syscall(SYS_pidfd_send_signal, handle, SIGKILL, NULL, 0);
        close(handle);
    }
    if (list.file >= 0) close(list.file);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Kills what is in the group and in those within, and removes those that are empty of the latter. */
static void clear(int folder, int depth) {
    _Alignas(struct dirent64) char list[LIST_BYTES];
    if (!write_word(folder, "cgroup.kill", "1")) kill_members(folder);
    for (ssize_t got; (got = getdents64(folder, list, sizeof list)) > 0;)
        for (ssize_t at = 0; at < got;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(list + at);
            at += entry->d_reclen;
            if (entry->d_type != DT_DIR || !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
            int within = depth < DEPTH_MAX ? openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
            if (within < 0) continue;
            clear(within, depth + 1);
            close(within);
            unlinkat(folder, entry->d_name, AT_REMOVEDIR);
        }
}

void shd_enclosure_end(const shd_enclosure *enclosure) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    if (!enclosure->folder[0]) return;
    for (int pass = 0; pass < PASSES; pass++) {
        int folder = open(enclosure->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder >= 0) {
            clear(folder, 0);
            close(folder);
        }
        /* The kernel removes no group in which anything still lives. */
        if (!rmdir(enclosure->folder) || errno == ENOENT) return;
        nanosleep(&pause, NULL);
    }
}
