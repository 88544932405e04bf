#include "runtime/comm/store_notes.h"

#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PATIENCE_S = 1 };

struct shd_store_notes {
    pthread_t thread;
    pthread_mutex_t lock; /* guards the numbers; never held while a line is said */
    pthread_cond_t news;
    int count, said;
    bool ending, ended;
    bool orphaned;                                     /* it is the thread's to free */
    char lines[SHD_STORE_NOTES][SHD_STORE_NOTE_BYTES]; /* those below `count` no longer change */
};

static void destroy(shd_store_notes *notes) {
    pthread_cond_destroy(&notes->news);
    pthread_mutex_destroy(&notes->lock);
    shd_free(notes);
}

static void *run(void *argument) {
    shd_store_notes *notes = argument;
    pthread_mutex_lock(&notes->lock);
    for (;;) {
        while (notes->said == notes->count && !notes->ending) pthread_cond_wait(&notes->news, &notes->lock);
        if (notes->said == notes->count) break;
        const char *line = notes->lines[notes->said];
        pthread_mutex_unlock(&notes->lock);
        shd_log(SHERD_LOG_WARN, "%s", line);
        pthread_mutex_lock(&notes->lock);
        notes->said++;
    }
    notes->ended = true;
    bool orphaned = notes->orphaned;
    pthread_cond_broadcast(&notes->news);
    pthread_mutex_unlock(&notes->lock);
    if (orphaned) destroy(notes);
    return NULL;
}

sherd_status shd_store_notes_start(shd_store_notes **out) {
    shd_store_notes *notes = shd_alloc(1, sizeof *notes);
    if (!notes) return shd_fail(SHERD_MEMORY, "no memory for the store's log");
    pthread_condattr_t clock;
    pthread_mutex_init(&notes->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&notes->news, &clock);
    pthread_condattr_destroy(&clock);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int cause = pthread_create(&notes->thread, NULL, run, notes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (cause) {
        destroy(notes);
        return shd_fail(SHERD_MEMORY, "the store's log gets no thread: %s", strerror(cause));
    }
    pthread_setname_np(notes->thread, "sherd-notes");
    *out = notes;
    return SHERD_OK;
}

void shd_store_notes_add(shd_store_notes *notes, const char *format, ...) {
    pthread_mutex_lock(&notes->lock);
    if (notes->count < SHD_STORE_NOTES) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(notes->lines[notes->count++], SHD_STORE_NOTE_BYTES, format, arguments);
        va_end(arguments);
        pthread_cond_signal(&notes->news);
    }
    pthread_mutex_unlock(&notes->lock);
}

void shd_store_notes_stop(shd_store_notes *notes) {
    if (!notes) return;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&notes->lock);
    notes->ending = true;
    pthread_cond_broadcast(&notes->news);
    while (!notes->ended && !pthread_cond_timedwait(&notes->news, &notes->lock, &until)) {}
    notes->orphaned = !notes->ended;
    bool orphaned = notes->orphaned;
    if (orphaned) pthread_detach(notes->thread);
    pthread_mutex_unlock(&notes->lock);
    if (orphaned) return;
    pthread_join(notes->thread, NULL);
    destroy(notes);
}
