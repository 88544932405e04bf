#define XXH_STATIC_LINKING_ONLY /* the streaming state on the stack */
#include "io/token_pack.h"

#include "io/file.h"
#include "io/folder.h"
#include "io/token_file.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { BLOCK_TOKENS = 1 << 18 };

/* The shard that is being written. */
typedef struct shard {
    char path[SHD_PATH_BYTES], part[SHD_PATH_BYTES]; /* `part`: the name until it is complete */
    int descriptor;                                  /* -1: none is open */
    int64_t token_count;
    XXH3_state_t hash;
} shard;

typedef struct packing {
    const shd_token_pack *pack;
    shd_token_pack_sink sink;
    void *user;
    int64_t total, shard_count, shards_done;
    uint16_t *block;
    unsigned char *bytes;
    shard at;
} packing;

/* --- shards ------------------------------------------------------------------------------------------------------- */

static sherd_status name_shard(const packing *packer, int64_t number, char out[SHD_PATH_BYTES]) {
    const char *to = packer->pack->to, *slash = strrchr(to, '/'), *dot = strrchr(slash ? slash + 1 : to, '.');
    if (packer->shard_count == 1) return shd_path_make(out, "%s", to);
    if (!dot || dot == to || dot[-1] == '/') return shd_path_make(out, "%s-%05lld", to, (long long)number);
    return shd_path_make(out, "%.*s-%05lld%s", (int)(dot - to), to, (long long)number, dot);
}

static sherd_status refuse_existing(const char *path) {
    if (access(path, F_OK) != 0 && errno == ENOENT) return SHERD_OK;
    return shd_fail(SHERD_ARGUMENT, "%s exists; it is not overwritten: remove it or choose another name", path);
}

static sherd_status begin_shard(packing *packer) {
    static const unsigned char nothing[SHD_LLMC_HEADER_BYTES];
    shard *at = &packer->at;
    SHD_TRY(name_shard(packer, packer->shards_done, at->path));
    SHD_TRY(shd_path_make(at->part, "%s.part", at->path));
    at->descriptor = open(at->part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (at->descriptor < 0 && errno == EEXIST)
        return shd_fail(SHERD_ARGUMENT, "%s exists: another 'data pack' writes it, or one was interrupted; remove it",
                        at->part);
    if (at->descriptor < 0) return shd_fail(SHERD_IO, "cannot create %s: %s", at->part, strerror(errno));
    at->token_count = 0;
    XXH3_64bits_reset(&at->hash);
    return shd_file_write(at->descriptor, at->part, nothing, sizeof nothing);
}

/* The header, once what it says is known. */
static sherd_status write_header(const shard *at, uint64_t checksum) {
    unsigned char header[SHD_LLMC_HEADER_BYTES];
    shd_llmc_header_make((int32_t)at->token_count, checksum, header);
    for (size_t done = 0; done < sizeof header;) {
        ssize_t put = pwrite(at->descriptor, header + done, sizeof header - done, (off_t)done);
        if (put < 0 && errno != EINTR) return shd_fail(SHERD_IO, "cannot write %s: %s", at->part, strerror(errno));
        if (put > 0) done += (size_t)put;
    }
    return shd_file_sync(at->descriptor, at->part);
}

static sherd_status end_shard(packing *packer) {
    shard *at = &packer->at;
    uint64_t checksum = XXH3_64bits_digest(&at->hash);
    SHD_TRY(write_header(at, checksum));
    shd_file_close(at->descriptor);
    at->descriptor = -1;
    /* A link, not a renaming: it never replaces a file. */
    if (link(at->part, at->path) != 0) {
        int error = errno;
        unlink(at->part);
        return error == EEXIST ? refuse_existing(at->path)
                               : shd_fail(SHERD_IO, "cannot name %s: %s", at->path, strerror(error));
    }
    unlink(at->part);
    char folder[SHD_PATH_BYTES];
    SHD_TRY(shd_path_folder(folder, at->path));
    SHD_TRY(shd_folder_sync(folder));
    packer->shards_done++;
    packer->sink(packer->user, at->path, at->token_count, checksum);
    return SHERD_OK;
}

/* Appends tokens, going on to the next shard where one is full. */
static sherd_status put_tokens(packing *packer, const uint16_t *tokens, int64_t count) {
    shard *at = &packer->at;
    for (int64_t done = 0; done < count;) {
        if (at->descriptor < 0) SHD_TRY(begin_shard(packer));
        int64_t room = packer->pack->shard_tokens - at->token_count, some = shd_min(count - done, room);
        SHD_TRY(shd_file_write(at->descriptor, at->part, tokens + done, 2 * some));
        XXH3_64bits_update(&at->hash, tokens + done, (size_t)(2 * some));
        at->token_count += some;
        done += some;
        if (at->token_count == packer->pack->shard_tokens) SHD_TRY(end_shard(packer));
    }
    return SHERD_OK;
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

static sherd_status put_text(packing *packer, shd_token_file *text) {
    for (int64_t at = 0; at < text->file.bytes;) {
        int64_t count = shd_min(BLOCK_TOKENS, text->file.bytes - at);
        SHD_TRY(shd_file_read(text->file.descriptor, text->file.path, at, packer->bytes, count));
        for (int64_t i = 0; i < count; i++) packer->block[i] = htole16(packer->bytes[i]);
        SHD_TRY(put_tokens(packer, packer->block, count));
        at += count;
    }
    if (packer->pack->separator < 0) return SHERD_OK;
    const uint16_t separator = htole16((uint16_t)packer->pack->separator);
    return put_tokens(packer, &separator, 1);
}

/* Counts what will be written, so that names are known and checked before anything is. */
static sherd_status measure(packing *packer) {
    const shd_token_pack *pack = packer->pack;
    for (int32_t i = 0; i < pack->text_count; i++) {
        shd_token_file text;
        SHD_TRY(shd_token_file_open(pack->texts[i], SHD_FORMAT_TEXT, NULL, &text));
        packer->total += text.token_count + (pack->separator >= 0);
        shd_token_file_close(&text);
    }
    if (packer->total == 0) return shd_fail(SHERD_DATA, "%s: the texts are empty, there is nothing to pack", pack->to);
    packer->shard_count = shd_div_ceil(packer->total, pack->shard_tokens);
    for (int64_t i = 0; i < packer->shard_count; i++) {
        char path[SHD_PATH_BYTES];
        SHD_TRY(name_shard(packer, i, path));
        SHD_TRY(refuse_existing(path));
    }
    return SHERD_OK;
}

static sherd_status put_all(packing *packer) {
    int64_t before = packer->total, written = 0;
    for (int32_t i = 0; i < packer->pack->text_count; i++) {
        shd_token_file text;
        SHD_TRY(shd_token_file_open(packer->pack->texts[i], SHD_FORMAT_TEXT, NULL, &text));
        written += text.token_count + (packer->pack->separator >= 0);
        sherd_status status =
            written > before ? shd_fail(SHERD_DATA, "%s has grown meanwhile", text.file.path) : put_text(packer, &text);
        shd_token_file_close(&text);
        SHD_TRY(status);
    }
    return packer->at.descriptor >= 0 ? end_shard(packer) : SHERD_OK;
}

sherd_status shd_token_pack_run(const shd_token_pack *pack, shd_token_pack_sink sink, void *user) {
    packing *packer = shd_alloc(1, sizeof *packer);
    if (!packer) return shd_fail(SHERD_MEMORY, "%s: out of memory", pack->to);
    packer->pack = pack;
    packer->sink = sink;
    packer->user = user;
    packer->at.descriptor = -1;
    packer->block = shd_alloc(BLOCK_TOKENS, sizeof *packer->block);
    packer->bytes = shd_alloc(BLOCK_TOKENS, 1);
    sherd_status status =
        packer->block && packer->bytes ? measure(packer) : shd_fail(SHERD_MEMORY, "%s: out of memory", pack->to);
    if (status == SHERD_OK) status = put_all(packer);
    if (packer->at.descriptor >= 0) {
        shd_file_close(packer->at.descriptor);
        unlink(packer->at.part);
    }
    shd_free(packer->block);
    shd_free(packer->bytes);
    shd_free(packer);
    return status;
}
