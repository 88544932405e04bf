#include "io/tensorboard.h"

#include "io/crc32c.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/tensorboard.pb-c.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    VALUES = SHD_METRICS_FIGURES + 32,
    TAG_BYTES = 64,
    DATA_BYTES = VALUES * (TAG_BYTES + 16) + 64, /* of a message */
    HEAD_BYTES = 12,
    TAIL_BYTES = 4
};

struct shd_tensorboard {
    int file;
    char path[SHD_PATH_BYTES];
    char tags[VALUES][TAG_BYTES];
    Shd__Tensorboard__Summary__Value values[VALUES];
    Shd__Tensorboard__Summary__Value *listed[VALUES];
    unsigned char record[HEAD_BYTES + DATA_BYTES + TAIL_BYTES];
};

/* --- records ------------------------------------------------------------------------------------------------------ */

static void put_little_endian(unsigned char *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> 8 * i);
}

/* Rotated and moved, so that a sum over bytes that hold sums does not go wrong. */
static uint32_t masked_sum(const void *bytes, size_t count) {
    uint32_t sum = shd_crc32c(bytes, count);
    return (sum >> 15 | sum << 17) + 0xa282ead8u;
}

static sherd_status append(shd_tensorboard *board, Shd__Tensorboard__Event *event) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    event->wall_time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    unsigned char *record = board->record;
    assert(shd__tensorboard__event__get_packed_size(event) <= DATA_BYTES);
    size_t bytes = shd__tensorboard__event__pack(event, record + HEAD_BYTES);
    put_little_endian(record, bytes, 8);
    put_little_endian(record + 8, masked_sum(record, 8), 4);
    put_little_endian(record + HEAD_BYTES + bytes, masked_sum(record + HEAD_BYTES, bytes), TAIL_BYTES);
    return shd_file_write(board->file, board->path, record, (int64_t)(HEAD_BYTES + bytes + TAIL_BYTES));
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* Viewers read the files of a folder in the order of their names, and take the seconds for when a run began. */
static sherd_status create(shd_tensorboard *board, const char *dir) {
    char host[256] = "host";
    gethostname(host, sizeof host - 1);
    for (int64_t number = 0;; number++) {
        SHD_TRY(shd_path_make(board->path, "%s/events.out.tfevents.%010lld.%s.%lld.%lld", dir, (long long)time(NULL),
                              host, (long long)getpid(), (long long)number));
        board->file = open(board->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (board->file >= 0) return SHERD_OK;
        if (errno != EEXIST) return shd_fail(SHERD_IO, "%s: cannot create: %s", board->path, strerror(errno));
    }
}

static sherd_status begin(shd_tensorboard *board, const char *dir, int64_t first_step) {
    SHD_TRY(shd_folder_make(dir));
    SHD_TRY(create(board, dir));
    char version_text[] = "brain.Event:2";
    Shd__Tensorboard__Event version = SHD__TENSORBOARD__EVENT__INIT, start = SHD__TENSORBOARD__EVENT__INIT;
    Shd__Tensorboard__SessionLog log = SHD__TENSORBOARD__SESSION_LOG__INIT;
    version.what_case = SHD__TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    version.file_version = version_text;
    SHD_TRY(append(board, &version));
    log.status = SHD__TENSORBOARD__SESSION_LOG__STATUS__START;
    start.step = first_step;
    start.what_case = SHD__TENSORBOARD__EVENT__WHAT_SESSION_LOG;
    start.session_log = &log;
    return append(board, &start);
}

sherd_status shd_tensorboard_open(const char *dir, int64_t first_step, shd_tensorboard **out) {
    shd_tensorboard *board = shd_alloc(1, sizeof *board);
    if (!board) return shd_fail(SHERD_MEMORY, "%s: out of memory", dir);
    board->file = -1;
    sherd_status status = begin(board, dir, first_step);
    if (status != SHERD_OK) {
        shd_tensorboard_close(board);
        return status;
    }
    *out = board;
    return SHERD_OK;
}

void shd_tensorboard_close(shd_tensorboard *board) {
    if (!board) return;
    shd_file_close(board->file);
    shd_free(board);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static void set_value(shd_tensorboard *board, int32_t at, const char *group, const char *name, double number) {
    Shd__Tensorboard__Summary__Value *value = &board->values[at];
    assert(at < VALUES);
    shd__tensorboard__summary__value__init(value);
    snprintf(board->tags[at], TAG_BYTES, "%s/%s", group, name);
    value->tag = board->tags[at];
    value->value_case = SHD__TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
    value->simple_value = (float)number;
    board->listed[at] = value;
}

sherd_status shd_tensorboard_write(shd_tensorboard *board, const shd_metrics_row *row) {
    shd_metrics_figure figures[SHD_METRICS_FIGURES];
    int32_t count = shd_metrics_figures(row, figures), used = 0;
    for (int32_t i = 0; i < count; i++) {
        const shd_metrics_figure *figure = &figures[i];
        double number = figure->kind == SHD_FIGURE_REAL ? figure->real : (double)figure->whole;
        if (strcmp(figure->name, "step") != 0) set_value(board, used++, figure->group, figure->name, number);
    }
    const shd_metrics_usage *usage = row->usage;
    for (int32_t i = 0; usage && i < usage->memory_count; i++)
        set_value(board, used++, "memory", usage->memory_names[i], (double)usage->memory_bytes[i]);
    Shd__Tensorboard__Summary summary = SHD__TENSORBOARD__SUMMARY__INIT;
    Shd__Tensorboard__Event event = SHD__TENSORBOARD__EVENT__INIT;
    summary.n_value = (size_t)used;
    summary.value = board->listed;
    event.step = row->step;
    event.what_case = SHD__TENSORBOARD__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    return append(board, &event);
}
