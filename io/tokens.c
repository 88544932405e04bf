#include "io/tokens.h"

#include "io/file_list.h"
#include "io/token_file.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>

enum { OPEN_FILES = 64 };

/* A file's part in the source. */
typedef struct piece {
    shd_token_file file;
    /* Without a separator the file's first sequence, with one its first token in the whole. */
    int64_t first;
    bool separated; /* a separator that is in no file follows */
} piece;

struct shd_tokens {
    shd_tokens_config config; /* its texts are not kept */
    shd_keep *keep;           /* paths */
    piece *pieces;
    shd_source_summary summary;
    shd_open_files open;
    uint32_t *ids; /* T + 1, as read */
};

static sherd_status out_of_memory(const char *key) { return shd_fail(SHERD_MEMORY, "%s: out of memory", key); }

/* --- the files ---------------------------------------------------------------------------------------------------- */

static sherd_status open_pieces(shd_tokens *tokens, const char *const *paths) {
    const shd_tokens_config *config = &tokens->config;
    int32_t count = tokens->summary.file_count;
    int32_t samples = shd_source_samples(count);
    for (int32_t i = 0; i < count; i++) {
        SHD_TRY(shd_token_file_open(paths[i], config->format, &tokens->open, &tokens->pieces[i].file));
        SHD_TRY(shd_token_file_fingerprint(&tokens->pieces[i].file, samples, &tokens->summary.fingerprint));
    }
    return SHERD_OK;
}

/* --- the cut ------------------------------------------------------------------------------------------------------ */

/* One file says what it lacks; several say what they lack together. */
static sherd_status too_few(const shd_tokens *tokens) {
    const shd_source_summary *all = &tokens->summary;
    long long context = tokens->config.context;
    if (all->file_count == 1)
        return shd_fail(SHERD_DATA, "%s: %s%lld tokens are too few; model.context %lld needs at least %lld",
                        tokens->pieces[0].file.file.path, all->token_count == 0 ? "empty: " : "",
                        (long long)all->token_count, context, context + 1);
    return shd_fail(SHERD_DATA,
                    tokens->config.separator < 0
                        ? "%s: none of its %d files, %lld tokens in all, holds a sequence; model.context %lld needs at "
                          "least %lld tokens in a file, or data.document_separator to pack files together"
                        : "%s: its %d files hold %lld tokens together; model.context %lld needs at least %lld",
                    tokens->config.key, all->file_count, (long long)all->token_count, context, context + 1);
}

/* Every file by itself. */
static void cut_apart(shd_tokens *tokens) {
    shd_source_summary *all = &tokens->summary;
    for (int32_t i = 0; i < all->file_count; i++) {
        int64_t count = tokens->pieces[i].file.token_count, context = tokens->config.context;
        int64_t sequences = count > 0 ? (count - 1) / context : 0;
        tokens->pieces[i].first = all->sequence_count;
        all->sequence_count += sequences;
        all->token_count += count;
        all->dropped_count += sequences ? count - (sequences * context + 1) : count;
        all->short_count += sequences == 0;
    }
}

/* True when a separator is to be put between two files. Texts are documents; token files bring their separators
 * along, and may be cut inside a document. */
static bool needs_separator(const piece *before, uint32_t end, const piece *after, uint32_t begin, uint32_t separator) {
    bool texts = before->file.format == SHD_FORMAT_TEXT || after->file.format == SHD_FORMAT_TEXT;
    return texts && end != separator && begin != separator;
}

/* The files as one row of tokens. */
static sherd_status cut_together(shd_tokens *tokens) {
    shd_source_summary *all = &tokens->summary;
    uint32_t separator = (uint32_t)tokens->config.separator, end = separator, begin;
    piece *before = NULL;
    for (int32_t i = 0; i < all->file_count; i++) {
        piece *here = &tokens->pieces[i];
        int64_t count = here->file.token_count;
        if (count > 0) {
            SHD_TRY(shd_token_file_read(&here->file, 0, 1, &begin));
            if (before && needs_separator(before, end, here, begin, separator)) {
                before->separated = true;
                /* Files in between are empty: they lie behind the separator. */
                for (piece *empty = before + 1; empty < here; empty++) empty->first++;
                all->token_count++;
            }
            SHD_TRY(shd_token_file_read(&here->file, count - 1, 1, &end));
            before = here;
        }
        here->first = all->token_count;
        all->token_count += count;
    }
    all->sequence_count = all->token_count > 0 ? (all->token_count - 1) / tokens->config.context : 0;
    all->dropped_count = all->token_count - (all->sequence_count * tokens->config.context + 1);
    return SHERD_OK;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static sherd_status init(shd_tokens *tokens, const shd_tokens_config *config) {
    const char *const *paths;
    tokens->keep = shd_keep_create();
    if (!tokens->keep) return out_of_memory(config->key);
    SHD_TRY(shd_file_list_expand(config->key, config->paths, config->path_count, tokens->keep, &paths,
                                 &tokens->summary.file_count));
    size_t count = (size_t)tokens->summary.file_count;
    tokens->config.key = shd_keep_text(tokens->keep, config->key, strlen(config->key));
    tokens->pieces = shd_keep_take(tokens->keep, count * sizeof *tokens->pieces);
    tokens->open.limit = config->open_files > 0 ? config->open_files : OPEN_FILES;
    tokens->open.files = shd_keep_take(tokens->keep, (size_t)tokens->open.limit * sizeof *tokens->open.files);
    tokens->ids = shd_alloc((size_t)config->context + 1, sizeof *tokens->ids);
    if (!tokens->config.key || !tokens->pieces || !tokens->open.files || !tokens->ids)
        return out_of_memory(config->key);
    SHD_TRY(open_pieces(tokens, paths));
    if (config->separator >= 0)
        SHD_TRY(cut_together(tokens));
    else
        cut_apart(tokens);
    return tokens->summary.sequence_count > 0 ? SHERD_OK : too_few(tokens);
}

sherd_status shd_tokens_open(const shd_tokens_config *config, shd_tokens **out) {
    shd_tokens *tokens = shd_alloc(1, sizeof *tokens);
    if (!tokens) return out_of_memory(config->key);
    tokens->config = *config;
    sherd_status status = init(tokens, config);
    tokens->config.paths = NULL;
    if (status != SHERD_OK) {
        shd_tokens_close(tokens);
        return status;
    }
    *out = tokens;
    return SHERD_OK;
}

void shd_tokens_close(shd_tokens *tokens) {
    if (!tokens) return;
    shd_open_files_close(&tokens->open);
    shd_free(tokens->ids);
    shd_keep_destroy(tokens->keep);
    shd_free(tokens);
}

shd_source_summary shd_tokens_summarize(const shd_tokens *tokens) { return tokens->summary; }

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* The last piece that begins at or before `at`: an empty one lies before the piece that begins at the same place. */
static int32_t find_piece(const shd_tokens *tokens, int64_t at) {
    int32_t low = 0, high = tokens->summary.file_count;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (tokens->pieces[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Checks ids read from the piece's token `first` on. */
static sherd_status check_ids(const shd_tokens *tokens, const piece *from, int64_t first, int64_t count,
                              const uint32_t *ids) {
    for (int64_t i = 0; i < count; i++)
        if (ids[i] >= tokens->config.vocab_size)
            return shd_fail(SHERD_DATA, "%s: token %u at byte %lld is not below model.vocab_size %lld",
                            from->file.file.path, ids[i],
                            (long long)(from->file.first_byte + (first + i) * from->file.token_bytes),
                            (long long)tokens->config.vocab_size);
    return SHERD_OK;
}

static sherd_status read_checked(shd_tokens *tokens, int32_t index, int64_t first, int64_t count, uint32_t *ids) {
    piece *from = &tokens->pieces[index];
    SHD_TRY(shd_token_file_read(&from->file, first, count, ids));
    return check_ids(tokens, from, first, count, ids);
}

/* Reads T + 1 tokens of the whole from token `at` on, over as many files as they touch. */
static sherd_status read_across(shd_tokens *tokens, int64_t at) {
    int64_t wanted = tokens->config.context + 1;
    int32_t index = find_piece(tokens, at);
    for (int64_t done = 0; done < wanted; index++) {
        const piece *from = &tokens->pieces[index];
        int64_t first = at + done - from->first;
        int64_t count = shd_min(wanted - done, from->file.token_count - first);
        if (count > 0) {
            SHD_TRY(read_checked(tokens, index, first, count, tokens->ids + done));
            done += count;
        }
        if (from->separated && done < wanted) tokens->ids[done++] = (uint32_t)tokens->config.separator;
    }
    return SHERD_OK;
}

sherd_status shd_tokens_read(shd_tokens *tokens, int64_t index, int32_t *inputs, int32_t *targets, int64_t *counted) {
    int64_t context = tokens->config.context;
    if (tokens->config.separator >= 0) {
        SHD_TRY(read_across(tokens, index * context));
    } else {
        int32_t at = find_piece(tokens, index);
        SHD_TRY(read_checked(tokens, at, (index - tokens->pieces[at].first) * context, context + 1, tokens->ids));
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < context; i++) {
        bool ignored = tokens->ids[i + 1] == tokens->config.ignored_token;
        inputs[i] = (int32_t)tokens->ids[i];
        targets[i] = ignored ? -1 : (int32_t)tokens->ids[i + 1];
        kept += !ignored;
    }
    *counted = kept;
    return SHERD_OK;
}

shd_source_place shd_tokens_locate(const shd_tokens *tokens, int64_t index) {
    int64_t context = tokens->config.context;
    bool packed = tokens->config.separator >= 0;
    const piece *from = &tokens->pieces[find_piece(tokens, packed ? index * context : index)];
    int64_t in_file = packed ? index : index - from->first;
    return (shd_source_place){.file = from->file.file.path,
                              .index = in_file,
                              .token = packed ? index * context - from->first : in_file * context};
}

sherd_status shd_tokens_sample(shd_tokens *tokens) {
    enum { SAMPLES = 64 };
    int64_t last = tokens->summary.sequence_count - 1, counted;
    int64_t samples = shd_min(SAMPLES, last + 1);
    int32_t *room = shd_alloc(2 * (size_t)tokens->config.context, sizeof *room);
    if (!room) return shd_fail(SHERD_MEMORY, "%s: out of memory", tokens->config.key);
    sherd_status status = SHERD_OK;
    for (int64_t i = 0; i < samples && status == SHERD_OK; i++) {
        int64_t index = i == samples - 1 ? last : last / samples * i;
        status = shd_tokens_read(tokens, index, room, room + tokens->config.context, &counted);
    }
    shd_free(room);
    return status;
}

/* The first id of a file that is out of range, which is there, with its place. */
static sherd_status find_bad_id(shd_tokens *tokens, int32_t index) {
    int64_t count = tokens->pieces[index].file.token_count, step = tokens->config.context + 1;
    for (int64_t first = 0; first < count; first += step)
        SHD_TRY(read_checked(tokens, index, first, shd_min(step, count - first), tokens->ids));
    return SHERD_OK;
}

sherd_status shd_tokens_scan(shd_tokens *tokens, int64_t *summed_count) {
    int64_t summed = 0;
    for (int32_t i = 0; i < tokens->summary.file_count; i++) {
        shd_token_file *file = &tokens->pieces[i].file;
        shd_token_scan found;
        SHD_TRY(shd_token_file_scan(file, &found));
        if (file->has_checksum && file->checksum != found.checksum)
            return shd_fail(SHERD_DATA,
                            "%s: damaged: its header states the checksum %016llx, and its tokens have %016llx",
                            file->file.path, (unsigned long long)file->checksum, (unsigned long long)found.checksum);
        if (found.highest >= tokens->config.vocab_size) SHD_TRY(find_bad_id(tokens, i));
        summed += file->has_checksum;
    }
    *summed_count = summed;
    return SHERD_OK;
}
