#include "runtime/launch/tee.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/launch/lines.h"
#include "runtime/launch/log_file.h"
#include "runtime/launch/screen.h"
#include "runtime/launch/tail.h"
#include "runtime/launch/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16, PREFIX_BYTES = 24, PATIENCE_MS = 2000, STUCK_MS = 5000 };
/* What a rank that has ended can have left in a pipe, and more; beyond that, somebody else goes on writing to it. */
enum { LEFT_READS = 32 };

static const char *const file_names[SHD_STREAMS] = {"stdout.log", "stderr.log"};

/* Once it is open, the thread's, but for `leaving`. */
typedef struct tee_stream {
    shd_tee *tee;
    int32_t local_rank;
    int kind; /* SHD_STREAM_… */
    shd_route route;
    atomic_int fd; /* the reading end; -1: nothing comes. Set last when it is opened: the thread has it from then on */
    atomic_bool leaving; /* the rank is gone, but what it has left is not taken yet */
    shd_log_file file;
    shd_lines lines;
    shd_screen screen;
} tee_stream;

/* What the thread writes is its own. The lock guards little, and never for longer than a line is copied. */
struct shd_tee {
    int32_t rank_count, first_rank;
    char *folder; /* NULL: no files */
    const char *own_prefix;
    pthread_t thread;
    bool runs, abandoned; /* the thread; of the caller's side */
    atomic_bool ending;
    atomic_int_fast64_t progress; /* changes as long as the thread gets on */
    int wake;                     /* an eventfd */
    int32_t stream_count;
    tee_stream *streams; /* SHD_STREAMS a local rank */
    pthread_mutex_t lock;
    pthread_cond_t taken; /* a stream no longer leaves, or the thread has ended */
    shd_tail **tails;     /* a local rank; NULL until it writes something. With the lock */
    bool ended;           /* the thread touches nothing any more, but if orphaned. With the lock */
    bool orphaned;        /* it is the thread's to free. With the lock */
    /* The thread's. */
    bool told; /* that files cannot be written */
    shd_terminal terminals[SHD_STREAMS];
    int shown_by[SHD_STREAMS]; /* which of them shows a stream: one, where both are the same terminal or file */
    char *buffer;
    struct pollfd *polls; /* the eventfd, terminals, streams */
};
enum { POLL_WAKE, POLL_TERMINALS, POLL_STREAMS = POLL_TERMINALS + SHD_STREAMS };

static void show(tee_stream *stream, const char *line, size_t count) {
    shd_tee *tee = stream->tee;
    const char *own = tee->own_prefix;
    shd_terminal *terminal = &tee->terminals[tee->shown_by[stream->kind]];
    char *at = shd_terminal_room(terminal, PREFIX_BYTES + shd_screen_room(count) + 1);
    if (!at) return;
    size_t bytes = 0;
    if (!own || count < strlen(own) || memcmp(line, own, strlen(own)))
        bytes = (size_t)snprintf(at, PREFIX_BYTES, "[rank%d]: ", tee->first_rank + stream->local_rank);
    bytes += shd_screen_line(&stream->screen, line, count, at + bytes);
    at[bytes++] = '\n';
    shd_terminal_add(terminal, bytes);
}

static void take_line(void *user, const char *line, size_t count) {
    tee_stream *stream = user;
    shd_tee *tee = stream->tee;
    pthread_mutex_lock(&tee->lock);
    shd_tail **tail = &tee->tails[stream->local_rank];
    if (!*tail) *tail = shd_alloc(1, sizeof **tail);
    if (*tail) shd_tail_add(*tail, line, count);
    pthread_mutex_unlock(&tee->lock);
    if (stream->route.shown) show(stream, line, count);
}

/* Once, for all files: it is the same disk. */
static void tell_trouble(shd_tee *tee, int cause) {
    if (!cause || tee->told) return;
    tee->told = true;
    shd_terminal_say(&tee->terminals[tee->shown_by[SHD_STREAM_ERR]],
                     "sherd: log files in %s cannot be written: %s; the job goes on, and so do they once they can be\n",
                     tee->folder, strerror(cause));
}

static void close_stream(tee_stream *stream) {
    close(stream->fd);
    stream->fd = -1;
    shd_log_file_close(&stream->file);
}

/* Takes one piece. Returns false when there is none now. */
static bool read_piece(tee_stream *stream) {
    shd_tee *tee = stream->tee;
    ssize_t got;
    do got = read(stream->fd, tee->buffer, READ_BYTES);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
        shd_lines_finish(&stream->lines, take_line, stream);
        close_stream(stream);
        return false;
    }
    shd_log_file_write(&stream->file, tee->buffer, (size_t)got);
    tell_trouble(tee, stream->file.cause);
    shd_lines_feed(&stream->lines, tee->buffer, (size_t)got, shd_clock_ms(), take_line, stream);
    tee->progress++;
    return true;
}

/* All that the pipe holds, and the line that will not be finished. */
static void take_rest(tee_stream *stream) {
    for (int i = 0; i < LEFT_READS && stream->fd >= 0 && read_piece(stream); i++) {}
    shd_lines_finish(&stream->lines, take_line, stream);
    pthread_mutex_lock(&stream->tee->lock);
    stream->leaving = false;
    pthread_cond_broadcast(&stream->tee->taken);
    pthread_mutex_unlock(&stream->tee->lock);
}

/* Waits for something to do. */
static void wait_events(shd_tee *tee) {
    struct pollfd *polls = tee->polls;
    polls[POLL_WAKE] = (struct pollfd){.fd = tee->wake, .events = POLLIN};
    for (int kind = 0; kind < SHD_STREAMS; kind++) {
        const shd_terminal *terminal = &tee->terminals[kind];
        polls[POLL_TERMINALS + kind] =
            (struct pollfd){.fd = shd_terminal_waits(terminal) ? terminal->fd : -1, .events = POLLOUT};
    }
    for (int32_t i = 0; i < tee->stream_count; i++)
        polls[POLL_STREAMS + i] = (struct pollfd){.fd = tee->streams[i].fd, .events = POLLIN};
    nfds_t count = (nfds_t)(POLL_STREAMS + tee->stream_count);
    if (poll(polls, count, -1) < 0)
        for (nfds_t i = 0; i < count; i++) polls[i].revents = 0;
    eventfd_t wakes;
    if (polls[POLL_WAKE].revents) eventfd_read(tee->wake, &wakes);
}

/* One turn. */
static void move(shd_tee *tee) {
    for (int kind = 0; kind < SHD_STREAMS; kind++)
        if (tee->polls[POLL_TERMINALS + kind].revents) shd_terminal_write(&tee->terminals[kind], true);
    for (int32_t i = 0; i < tee->stream_count; i++) {
        tee_stream *stream = &tee->streams[i];
        if (stream->fd >= 0) tell_trouble(tee, stream->file.cause);
        if (tee->polls[POLL_STREAMS + i].revents && stream->fd >= 0) read_piece(stream);
        if (stream->leaving) take_rest(stream);
    }
    for (int kind = 0; kind < SHD_STREAMS; kind++) shd_terminal_write(&tee->terminals[kind], false);
}

/* What is left, and no more. */
static void finish(shd_tee *tee) {
    for (int32_t i = 0; i < tee->stream_count; i++) take_rest(&tee->streams[i]);
    for (int kind = 0; kind < SHD_STREAMS; kind++) {
        while (shd_terminal_drain(&tee->terminals[kind], PATIENCE_MS)) tee->progress++;
        tee->progress++;
    }
    for (int32_t i = 0; i < tee->stream_count; i++)
        if (tee->streams[i].fd >= 0) close_stream(&tee->streams[i]);
}

static void destroy(shd_tee *tee);

static void *pump(void *user) {
    shd_tee *tee = user;
    while (!tee->ending) {
        wait_events(tee);
        move(tee);
    }
    finish(tee);
    pthread_mutex_lock(&tee->lock);
    tee->ended = true;
    bool orphaned = tee->orphaned;
    pthread_cond_broadcast(&tee->taken);
    pthread_mutex_unlock(&tee->lock);
    if (orphaned) destroy(tee);
    return NULL;
}

static bool is_same_file(int a, int b) {
    struct stat first, second;
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static void destroy(shd_tee *tee) {
    for (int32_t i = 0; i < tee->stream_count; i++) {
        if (tee->streams[i].fd >= 0) close_stream(&tee->streams[i]);
        shd_log_file_close(&tee->streams[i].file);
    }
    for (int kind = 0; kind < SHD_STREAMS; kind++) shd_terminal_fini(&tee->terminals[kind]);
    for (int32_t rank = 0; tee->tails && rank < tee->rank_count; rank++) shd_free(tee->tails[rank]);
    if (tee->wake >= 0) close(tee->wake);
    pthread_cond_destroy(&tee->taken);
    pthread_mutex_destroy(&tee->lock);
    shd_free(tee->folder);
    shd_free(tee->streams);
    shd_free(tee->tails);
    shd_free(tee->buffer);
    shd_free(tee->polls);
    shd_free(tee);
}

static void init_lock(shd_tee *tee) {
    pthread_condattr_t clock;
    pthread_mutex_init(&tee->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&tee->taken, &clock);
    pthread_condattr_destroy(&clock);
}

static void init_terminals(shd_tee *tee, const int outputs[SHD_STREAMS]) {
    for (int kind = 0; kind < SHD_STREAMS; kind++) tee->shown_by[kind] = kind;
    if (is_same_file(outputs[SHD_STREAM_OUT], outputs[SHD_STREAM_ERR])) tee->shown_by[SHD_STREAM_ERR] = SHD_STREAM_OUT;
    for (int kind = 0; kind < SHD_STREAMS; kind++)
        shd_terminal_init(&tee->terminals[kind], tee->shown_by[kind] == kind ? outputs[kind] : -1);
}

static sherd_status init(shd_tee *tee, const shd_tee_config *config) {
    size_t ranks = (size_t)config->routes->rank_count, folder_bytes = config->folder ? strlen(config->folder) + 1 : 0;
    tee->wake = -1;
    tee->rank_count = config->routes->rank_count;
    tee->first_rank = config->first_rank;
    tee->own_prefix = config->own_prefix;
    init_lock(tee);
    init_terminals(tee, config->outputs);
    tee->folder = config->folder ? shd_alloc(1, folder_bytes) : NULL;
    tee->streams = shd_alloc(ranks * SHD_STREAMS, sizeof *tee->streams);
    tee->tails = shd_alloc(ranks, sizeof *tee->tails);
    tee->buffer = shd_alloc(1, READ_BYTES);
    tee->polls = shd_alloc(POLL_STREAMS + ranks * SHD_STREAMS, sizeof *tee->polls);
    if (!tee->streams || !tee->tails || !tee->buffer || !tee->polls || (config->folder && !tee->folder))
        return shd_fail(SHERD_MEMORY, "no memory for the output of %d ranks", tee->rank_count);
    if (config->folder) memcpy(tee->folder, config->folder, folder_bytes);
    tee->stream_count = tee->rank_count * SHD_STREAMS;
    for (int32_t i = 0; i < tee->stream_count; i++) {
        tee_stream *stream = &tee->streams[i];
        stream->tee = tee;
        stream->local_rank = i / SHD_STREAMS;
        stream->kind = i % SHD_STREAMS;
        stream->route = config->routes->ranks[stream->local_rank][stream->kind];
        stream->fd = stream->file.fd = -1;
    }
    tee->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return tee->wake >= 0 ? SHERD_OK : shd_fail(SHERD_IO, "cannot take the output of ranks: %s", strerror(errno));
}

sherd_status shd_tee_start(const shd_tee_config *config, shd_tee **out) {
    shd_tee *tee = shd_alloc(1, sizeof *tee);
    if (!tee) return shd_fail(SHERD_MEMORY, "no memory for the output of ranks");
    sherd_status status = init(tee, config);
    if (status == SHERD_OK) {
        /* Signals are for whoever watches the ranks; a SIGPIPE of this thread ends with it. */
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        int cause = pthread_create(&tee->thread, NULL, pump, tee);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (cause) status = shd_fail(SHERD_IO, "no thread for the output of ranks: %s", strerror(cause));
    }
    if (status != SHERD_OK) {
        destroy(tee);
        return status;
    }
    pthread_setname_np(tee->thread, "sherd-output");
    tee->runs = true;
    *out = tee;
    return SHERD_OK;
}

static void wake(const shd_tee *tee) { eventfd_write(tee->wake, 1); }

/* A pipe whose writing end is none of 0, 1 and 2, which the child is about to replace. */
static sherd_status open_stream(tee_stream *stream, int *end) {
    const shd_tee *tee = stream->tee;
    int32_t rank = tee->first_rank + stream->local_rank;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return shd_fail(SHERD_IO, "cannot take the output of rank %d: %s", rank, strerror(errno));
    int writing = fcntl(ends[1], F_DUPFD_CLOEXEC, 3), cause = errno;
    close(ends[1]);
    sherd_status status = SHERD_OK;
    if (writing < 0) status = shd_fail(SHERD_IO, "cannot take the output of rank %d: %s", rank, strerror(cause));
    if (status == SHERD_OK && tee->folder && stream->route.filed)
        status = shd_log_file_open(&stream->file, tee->folder, rank, file_names[stream->kind]);
    if (status != SHERD_OK) {
        close(ends[0]);
        if (writing >= 0) close(writing);
        return status;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    stream->fd = ends[0];
    *end = writing;
    return SHERD_OK;
}

sherd_status shd_tee_open(shd_tee *tee, int32_t local_rank, int ends[SHD_STREAMS]) {
    int opened[SHD_STREAMS] = {-1, -1};
    sherd_status status = SHERD_OK;
    for (int kind = 0; kind < SHD_STREAMS && status == SHERD_OK; kind++) {
        tee_stream *stream = &tee->streams[local_rank * SHD_STREAMS + kind];
        if (stream->route.taken) status = open_stream(stream, &opened[kind]);
    }
    wake(tee);
    if (status != SHERD_OK)
        shd_tee_started(opened);
    else
        memcpy(ends, opened, sizeof opened);
    return status;
}

void shd_tee_started(int ends[SHD_STREAMS]) {
    for (int kind = 0; kind < SHD_STREAMS; kind++) {
        if (ends[kind] >= 0) close(ends[kind]);
        ends[kind] = -1;
    }
}

void shd_tee_close_rank(shd_tee *tee, int32_t local_rank) {
    for (int kind = 0; kind < SHD_STREAMS; kind++) {
        tee_stream *stream = &tee->streams[local_rank * SHD_STREAMS + kind];
        stream->leaving = stream->fd >= 0;
    }
    wake(tee);
}

static struct timespec find_time(int from_now_ms) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += from_now_ms / 1000;
    return at;
}

char *shd_tee_last_lines(shd_tee *tee, int32_t local_rank, int lines) {
    const struct timespec until = find_time(PATIENCE_MS);
    pthread_mutex_lock(&tee->lock);
    const tee_stream *streams = &tee->streams[local_rank * SHD_STREAMS];
    while ((streams[SHD_STREAM_OUT].leaving || streams[SHD_STREAM_ERR].leaving) &&
           !pthread_cond_timedwait(&tee->taken, &tee->lock, &until)) {}
    char *text = shd_tail_text(tee->tails[local_rank], lines);
    pthread_mutex_unlock(&tee->lock);
    return text;
}

/* False when the thread gets no further. */
static bool await_end(shd_tee *tee) {
    int_fast64_t seen;
    pthread_mutex_lock(&tee->lock);
    do {
        const struct timespec until = find_time(STUCK_MS);
        seen = tee->progress;
        while (!tee->ended && !pthread_cond_timedwait(&tee->taken, &tee->lock, &until)) {}
    } while (!tee->ended && tee->progress != seen);
    bool ended = tee->ended;
    pthread_mutex_unlock(&tee->lock);
    return ended;
}

void shd_tee_stop(shd_tee *tee) {
    if (!tee || !tee->runs) return;
    tee->runs = false;
    tee->ending = true;
    wake(tee);
    tee->abandoned = !await_end(tee);
    if (!tee->abandoned)
        pthread_join(tee->thread, NULL);
    else
        shd_log(SHERD_LOG_WARN, "what ranks wrote last may be missing: %s takes nothing",
                tee->folder ? tee->folder : "the terminal");
}

void shd_tee_destroy(shd_tee *tee) {
    if (!tee) return;
    shd_tee_stop(tee);
    if (tee->abandoned) {
        pthread_mutex_lock(&tee->lock);
        tee->orphaned = !tee->ended;
        if (tee->orphaned) pthread_detach(tee->thread);
        bool orphaned = tee->orphaned;
        pthread_mutex_unlock(&tee->lock);
        if (orphaned) return;
        pthread_join(tee->thread, NULL);
    }
    destroy(tee);
}
