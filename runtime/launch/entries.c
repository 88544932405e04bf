#include "runtime/launch/entries.h"

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CHUNK_BYTES = 32768 };

/* As getdents64 gives it. */
typedef struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
} entry;

/* The number that `name` is, or -1. */
static int read_number(const char *name) {
    int64_t number = 0;
    const char *at = name;
    for (; *at >= '0' && *at <= '9' && number < INT32_MAX / 10; at++) number = 10 * number + (*at - '0');
    return *at || at == name ? -1 : (int)number;
}

bool shd_entries_each(int folder, bool (*take)(int number, const void *user), const void *user) {
    _Alignas(entry) char list[CHUNK_BYTES];
    bool found = false;
    long got;
    while ((got = syscall(SYS_getdents64, folder, list, sizeof list)) > 0)
        for (long at = 0; at < got;) {
            const entry *one = (const entry *)(const void *)(list + at);
            int number = read_number(one->name);
            if (number >= 0 && take(number, user)) found = true;
            at += one->bytes;
        }
    return found;
}
