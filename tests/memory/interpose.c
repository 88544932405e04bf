/* Watches a process's memory from outside: preloaded, it takes the place of malloc and its kin, mmap, munmap,
 * memfd_create and ftruncate, and at exit writes what it saw as JSON to the file $SHERD_INTERPOSE_OUT.PID.
 *
 *   {"rank": "0", "malloc": {OBJECT: {"peak": B, "live": B, "calls": N}, …}, "anonymous": {OBJECT: …},
 *    "memfd": {NAME: B, …}}
 *
 * OBJECT is the program or library that called, so that what the job allocates and what OpenBLAS does can be told
 * apart. Bytes are those asked for. Calls that libc makes inside itself to map thread stacks or grow its heap do not
 * pass through here. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc's own, under the names that remain when the usual ones are taken. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *pointer, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *pointer);

enum { OBJECTS = 32, PIECES = 1 << 20, MEMFDS = 16 };
enum { MALLOC, ANONYMOUS, KINDS };

typedef struct tally {
    int64_t live, peak, calls;
} tally;

/* A piece of memory that is or was there; `address` 0: a free entry. */
typedef struct piece {
    uintptr_t address;
    int64_t bytes;
    int16_t kind, object;
    bool live;
} piece;

/* Shared memory this process made, by name; `file` is its descriptor until it is sized. */
typedef struct memfd {
    char name[32];
    int file;
    int64_t bytes;
} memfd;

static struct {
    atomic_flag lock;
    piece *pieces; /* a hash table with linear probing */
    const void *bases[OBJECTS];
    char names[OBJECTS][64];
    tally tallies[KINDS][OBJECTS];
    int16_t object_count;
    memfd memfds[MEMFDS];
    int32_t memfd_count;
} books = {.lock = ATOMIC_FLAG_INIT};

static void lock(void) {
    while (atomic_flag_test_and_set_explicit(&books.lock, memory_order_acquire)) {}
}
static void unlock(void) { atomic_flag_clear_explicit(&books.lock, memory_order_release); }

/* The program or library of the code at `caller`. Asks the dynamic linker, under whose lock dlopen allocates: must not
 * be called with the books locked. */
static Dl_info find_home(const void *caller) {
    Dl_info home = {0};
    if (!dladdr(caller, &home) || !home.dli_fname) home.dli_fname = "unknown";
    return home;
}

static int16_t find_object(const Dl_info *home) {
    for (int16_t i = 0; i < books.object_count; i++)
        if (books.bases[i] == home->dli_fbase) return i;
    if (books.object_count == OBJECTS) return OBJECTS - 1;
    const char *slash = strrchr(home->dli_fname, '/');
    snprintf(books.names[books.object_count], sizeof *books.names, "%s", slash ? slash + 1 : home->dli_fname);
    books.bases[books.object_count] = home->dli_fbase;
    return books.object_count++;
}

static piece *find_piece(uintptr_t address) {
    size_t at = (size_t)((address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 44);
    while (books.pieces[at].address && books.pieces[at].address != address) at = (at + 1) % PIECES;
    return &books.pieces[at];
}

static void add(int16_t kind, void *pointer, size_t bytes, const void *caller) {
    if (!pointer) return;
    Dl_info home = find_home(caller);
    lock();
    if (!books.pieces)
        books.pieces = (piece *)syscall(SYS_mmap, NULL, PIECES * sizeof(piece), PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int16_t object = find_object(&home);
    *find_piece((uintptr_t)pointer) =
        (piece){.address = (uintptr_t)pointer, .bytes = (int64_t)bytes, .kind = kind, .object = object, .live = true};
    tally *count = &books.tallies[kind][object];
    count->calls++;
    count->live += (int64_t)bytes;
    if (count->live > count->peak) count->peak = count->live;
    unlock();
}

static void drop(void *pointer) {
    if (!pointer || !books.pieces) return;
    lock();
    piece *known = find_piece((uintptr_t)pointer);
    if (known->live) books.tallies[known->kind][known->object].live -= known->bytes;
    known->live = false;
    unlock();
}

#define CALLER __builtin_return_address(0)
#define EXPORT __attribute__((visibility("default")))

EXPORT void *malloc(size_t bytes) {
    void *pointer = __libc_malloc(bytes);
    add(MALLOC, pointer, bytes, CALLER);
    return pointer;
}

EXPORT void *calloc(size_t count, size_t bytes) {
    void *pointer = __libc_calloc(count, bytes);
    add(MALLOC, pointer, count * bytes, CALLER);
    return pointer;
}

EXPORT void *realloc(void *pointer, size_t bytes) {
    void *moved = __libc_realloc(pointer, bytes);
    if (!moved && bytes) return NULL;
    drop(pointer);
    add(MALLOC, moved, bytes, CALLER);
    return moved;
}

EXPORT void *reallocarray(void *pointer, size_t count, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) return errno = ENOMEM, NULL;
    void *moved = __libc_realloc(pointer, total);
    if (!moved && total) return NULL;
    drop(pointer);
    add(MALLOC, moved, total, CALLER);
    return moved;
}

EXPORT void *memalign(size_t alignment, size_t bytes) {
    void *pointer = __libc_memalign(alignment, bytes);
    add(MALLOC, pointer, bytes, CALLER);
    return pointer;
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes) {
    void *pointer = __libc_memalign(alignment, bytes);
    add(MALLOC, pointer, bytes, CALLER);
    return pointer;
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t bytes) {
    void *pointer = __libc_memalign(alignment, bytes);
    if (!pointer) return ENOMEM;
    add(MALLOC, pointer, bytes, CALLER);
    *out = pointer;
    return 0;
}

EXPORT void free(void *pointer) {
    drop(pointer);
    __libc_free(pointer);
}

static void *map(void *hint, size_t bytes, int protection, int flags, int file, off_t offset, const void *caller) {
    void *pointer = (void *)syscall(SYS_mmap, hint, bytes, protection, flags, file, offset);
    if (pointer != MAP_FAILED && (flags & MAP_ANONYMOUS)) add(ANONYMOUS, pointer, bytes, caller);
    return pointer;
}

EXPORT void *mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset) {
    return map(hint, bytes, protection, flags, file, offset, CALLER);
}

EXPORT void *mmap64(void *hint, size_t bytes, int protection, int flags, int file, off_t offset) {
    return map(hint, bytes, protection, flags, file, offset, CALLER);
}

EXPORT int munmap(void *pointer, size_t bytes) {
    drop(pointer);
    return (int)syscall(SYS_munmap, pointer, bytes);
}

EXPORT int memfd_create(const char *name, unsigned flags) {
    int file = (int)syscall(SYS_memfd_create, name, flags);
    if (file < 0) return file;
    lock();
    if (books.memfd_count < MEMFDS) {
        memfd *made = &books.memfds[books.memfd_count++];
        made->file = file;
        snprintf(made->name, sizeof made->name, "%s", name);
    }
    unlock();
    return file;
}

/* A memfd is sized once: the first size of its descriptor is its own. */
static int truncate_file(int file, off_t bytes) {
    int status = (int)syscall(SYS_ftruncate, file, bytes);
    lock();
    for (int32_t i = 0; status == 0 && i < books.memfd_count; i++) {
        if (books.memfds[i].file != file) continue;
        books.memfds[i].file = -1;
        books.memfds[i].bytes = bytes;
        break;
    }
    unlock();
    return status;
}

EXPORT int ftruncate(int file, off_t bytes) { return truncate_file(file, bytes); }
EXPORT int ftruncate64(int file, off_t bytes) { return truncate_file(file, bytes); }

/* Appends to `report`; what does not fit is cut off, which its reader notices. */
typedef struct report {
    char text[16384];
    size_t length;
} report;

__attribute__((format(printf, 2, 3))) static void say(report *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(to->text + to->length, sizeof to->text - to->length, format, arguments);
    va_end(arguments);
    to->length += (size_t)length;
    if (to->length >= sizeof to->text) to->length = sizeof to->text - 1;
}

static void say_kind(report *to, const char *name, const tally *tallies) {
    say(to, "\"%s\": {", name);
    const char *comma = "";
    for (int32_t i = 0; i < books.object_count; i++) {
        if (!tallies[i].calls) continue;
        say(to, "%s\"%s\": {\"peak\": %lld, \"live\": %lld, \"calls\": %lld}", comma, books.names[i],
            (long long)tallies[i].peak, (long long)tallies[i].live, (long long)tallies[i].calls);
        comma = ", ";
    }
    say(to, "}, ");
}

static void say_all(report *to) {
    const char *rank = getenv("RANK");
    say(to, "{\"rank\": \"%s\", ", rank ? rank : "");
    say_kind(to, "malloc", books.tallies[MALLOC]);
    say_kind(to, "anonymous", books.tallies[ANONYMOUS]);
    say(to, "\"memfd\": {");
    for (int32_t i = 0; i < books.memfd_count; i++)
        say(to, "%s\"%s\": %lld", i ? ", " : "", books.memfds[i].name, (long long)books.memfds[i].bytes);
    say(to, "}}\n");
}

__attribute__((destructor)) static void write_report(void) {
    const char *out = getenv("SHERD_INTERPOSE_OUT");
    if (!out) return;
    static report all;
    static char path[4096];
    lock();
    say_all(&all);
    unlock();
    snprintf(path, sizeof path, "%s.%d", out, (int)getpid());
    FILE *file = fopen(path, "w");
    if (!file) return;
    fwrite(all.text, 1, all.length, file);
    fclose(file);
}
