/* Text into token files: bytes become tokens, in llmc shards with a checksum (token_file.h). */
#ifndef SHD_IO_TOKEN_PACK_H
#define SHD_IO_TOKEN_PACK_H

#include <sherd/status.h>
#include <stdint.h>

typedef struct shd_token_pack {
    const char *const *texts; /* files, in this order; each is a document */
    int32_t text_count;
    const char *to;       /* the file to write; shards get -00000, -00001… before its last dot */
    int64_t separator;    /* id put after every document, at most 65535; -1: none */
    int64_t shard_tokens; /* of a shard at most, 1 to 2^31 - 1; a single one is `to` itself */
} shd_token_pack;

/* A file that is complete and in its place. */
typedef void (*shd_token_pack_sink)(void *user, const char *path, int64_t token_count, uint64_t checksum);

/* Writes the shards; each appears under its name only when it is complete, and none that exists is replaced.
 * Fails: DATA (a text that cannot be read, or changes meanwhile; no tokens), ARGUMENT (a file of a shard's name exists;
 * a path too long), IO, MEMORY. Shards that are complete stay. */
sherd_status shd_token_pack_run(const shd_token_pack *pack, shd_token_pack_sink sink, void *user);

#endif
