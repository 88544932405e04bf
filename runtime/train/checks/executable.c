#include "runtime/train/checks/executable.h"

#include "runtime/base/hash.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

uint64_t shd_executable_hash(void) {
    enum { BLOCK_BYTES = 1 << 20 };
    uint64_t hash = 1;
    unsigned char *block = shd_alloc(1, BLOCK_BYTES);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    while (block && file >= 0 && (got = read(file, block, BLOCK_BYTES)) > 0)
        hash = shd_hash_bytes(hash, block, (size_t)got);
    if (file >= 0) close(file);
    shd_free(block);
    return got == 0 ? hash : 0;
}

/* The first object is the program itself: its build id is a note of the linker's in memory. */
static int take_build(struct dl_phdr_info *object, size_t size, void *user) {
    uint64_t *hash = user;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        if (header->p_type != PT_NOTE) continue;
        const char *at = (const char *)(object->dlpi_addr + header->p_vaddr), *end = at + header->p_memsz;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            memcpy(&note, at, sizeof note);
            const char *name = at + sizeof note, *words = name + ((note.n_namesz + 3u) & ~3u);
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(name, "GNU", 4) == 0)
                *hash = shd_hash_bytes(0, words, note.n_descsz);
            at = words + ((note.n_descsz + 3u) & ~3u);
        }
    }
    return 1;
}

uint64_t shd_executable_build(void) {
    uint64_t hash = 0;
    dl_iterate_phdr(take_build, &hash);
    return hash ? hash : shd_executable_hash();
}

sherd_status shd_executable_compare(sherd_session *session) {
    sherd_status status = shd_session_compare(session, "build of sherd", shd_executable_build());
    return status == SHERD_DATA ? shd_fail_within(SHERD_MISMATCH, "the ranks run different programs") : status;
}
