/* Reports, and calls: how often, and which one is to fail. */
#include "tests/softcuda/soft_internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPORTS = 256, FUNCTIONS = 256, STRICT_STATUS = 97 };

typedef struct report {
    uint64_t key;
    char *text;
} report;

typedef struct function {
    const char *name;
    uint64_t calls;
} function;

static pthread_mutex_t lock;
static report reports[REPORTS];
static size_t report_count;
static function functions[FUNCTIONS]; /* a hash table that is never full: there are some 80 */
static uint64_t call_count;
static struct {
    char function[64];
    uint64_t countdown; /* 1: the next call fails; 0: none */
    int code;
} fault;
static uint64_t skip_countdown;
static cudaError_t broken;
static _Thread_local cudaError_t last_error;

static void make_lock(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void soft_lock(void) { pthread_mutex_lock(&lock); }
void soft_unlock(void) { pthread_mutex_unlock(&lock); }

uint64_t soft_hash(uint64_t hash, const void *bytes, size_t count) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < count; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

static void append_to_log(const char *text) {
    const char *path = getenv("SOFTCUDA_LOG");
    FILE *file = path && *path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%d %s\n", (int)getpid(), text);
    fclose(file);
}

static void add_report(uint64_t key, const char *text) {
    soft_lock();
    bool is_known = false;
    for (size_t i = 0; i < report_count; i++) is_known |= reports[i].key == key;
    if (!is_known && report_count < REPORTS) {
        reports[report_count++] = (report){key, strdup(text)};
        append_to_log(text);
    }
    soft_unlock();
}

void soft_report_once(uint64_t key, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_report(key, text);
}

void softcuda_add_report(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_report(soft_hash(0, text, strlen(text)), text);
}

size_t softcuda_report_count(void) { return report_count; }
const char *softcuda_report(size_t i) { return i < report_count ? reports[i].text : ""; }

bool softcuda_reported(const char *text) {
    for (size_t i = 0; i < report_count; i++)
        if (strstr(reports[i].text, text)) return true;
    return false;
}

void softcuda_forget_reports(void) {
    for (size_t i = 0; i < report_count; i++) free(reports[i].text);
    report_count = 0;
}

size_t softcuda_print_reports(void) {
    for (size_t i = 0; i < report_count; i++) fprintf(stderr, "softcuda %d: %s\n", (int)getpid(), reports[i].text);
    return report_count;
}

void softcuda_report_leaks(void) {
    soft_lock();
    soft_report_memory_leaks();
    soft_report_stream_leaks();
    soft_unlock();
}

static function *find_function(const char *name) {
    size_t at = soft_hash(0, name, strlen(name)) % FUNCTIONS;
    while (functions[at].name && strcmp(functions[at].name, name) != 0) at = (at + 1) % FUNCTIONS;
    if (!functions[at].name) functions[at].name = strdup(name);
    return &functions[at];
}

int softcuda_enter(const char *name) {
    soft_lock();
    int code = 0;
    find_function(name)->calls++;
    call_count++;
    if (fault.countdown > 0 && (strcmp(fault.function, "*") == 0 || strcmp(fault.function, name) == 0))
        if (--fault.countdown == 0) code = fault.code;
    soft_unlock();
    return code;
}

cudaError_t soft_enter(const char *name) {
    soft_lock();
    int code = softcuda_enter(name);
    return code ? (cudaError_t)code : broken;
}

cudaError_t soft_leave(cudaError_t code) {
    if (code != cudaSuccess) last_error = code;
    soft_unlock();
    return code;
}

cudaError_t soft_last_error(void) { return last_error; }

cudaError_t soft_take_last_error(void) {
    cudaError_t code = last_error;
    last_error = broken;
    return code;
}

void softcuda_break(cudaError_t code) {
    if (broken == cudaSuccess) broken = code;
}

cudaError_t soft_broken(void) { return broken; }

void softcuda_fail_at(const char *name, uint64_t nth, int code) {
    soft_lock();
    snprintf(fault.function, sizeof fault.function, "%s", name);
    fault.countdown = nth;
    fault.code = code;
    soft_unlock();
}

void softcuda_skip_wait(uint64_t nth) { skip_countdown = nth; }
bool soft_skips_wait(void) { return skip_countdown > 0 && --skip_countdown == 0; }

uint64_t softcuda_calls(const char *name) {
    soft_lock();
    uint64_t calls = strcmp(name, "*") == 0 ? call_count : find_function(name)->calls;
    soft_unlock();
    return calls;
}

static void write_counts(const char *path) {
    FILE *file = fopen(path, "a");
    if (!file) return;
    for (int i = 0; i < FUNCTIONS; i++)
        if (functions[i].calls) fprintf(file, "%s %llu\n", functions[i].name, (unsigned long long)functions[i].calls);
    fclose(file);
}

static uint64_t number_of(const char *variable, uint64_t fallback) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

__attribute__((constructor)) static void begin(void) {
    make_lock();
    const char *order = getenv("SOFTCUDA_ORDER"), *fail = getenv("SOFTCUDA_FAIL"),
               *patience = getenv("SOFTCUDA_PATIENCE");
    softcuda_restart(number_of("SOFTCUDA_SEED", 1), !order                        ? SOFTCUDA_RANDOM
                                                    : strcmp(order, "eager") == 0 ? SOFTCUDA_EAGER
                                                    : strcmp(order, "lazy") == 0  ? SOFTCUDA_LAZY
                                                                                  : SOFTCUDA_RANDOM);
    softcuda_limit_memory(number_of("SOFTCUDA_MEMORY", (uint64_t)16 << 30));
    softcuda_set_devices((int)number_of("SOFTCUDA_DEVICES", 1));
    softcuda_skip_wait(number_of("SOFTCUDA_SKIP_WAIT", 0));
    softcuda_set_patience(patience ? strtod(patience, NULL) : 20);
    char name[64];
    unsigned long long nth;
    int code;
    if (fail && sscanf(fail, "%63[^:]:%llu:%d", name, &nth, &code) == 3) softcuda_fail_at(name, nth, code);
}

__attribute__((destructor)) static void end(void) {
    const char *counts = getenv("SOFTCUDA_COUNTS"), *strict = getenv("SOFTCUDA_STRICT");
    if (counts && *counts) write_counts(counts);
    if (!strict || !*strict) return;
    softcuda_report_leaks();
    if (softcuda_print_reports() > 0) _exit(STRICT_STATUS);
}
