/* Steps of a small model on the software device, through the whole backend, over and over:
 *
 *   soft-steps schedules [SETTINGS] [--seeds FIRST:COUNT]   runs in many orders of streams: no report, the same bits, memory
 *                                                           as planned
 *   soft-steps waits [SETTINGS] [--only N]                             each wait of a stream for an event left out in turn, on all
 *                                                           ranks: each must be reported
 *   soft-steps failures [SETTINGS] [--every N]              each call (of N) failing in turn, on one rank: an error on all,
 *                                                           nothing left, no hang
 *
 * SETTINGS: --stage S --ranks N --replicas R --precision fp32|bf16|fp16 --link nccl|staged --optimizer NAME
 *           --states fp32|int8 --late|--early (updates after the verdict, or inside backward)
 *           --limit SECONDS (of one run) --verbose
 * The last line counts; the exit code is 0 when there were no problems. The model has three units: embedding, a block,
 * head. Each run is as many processes as ranks, forked from one that never touches the device. */
#include "io/checkpoint_reader.h"
#include "optim/rules.h"
#include "runtime/base/hash.h"
#include "runtime/base/status.h"
#include "runtime/model/model.h"
#include "runtime/session/setup.h"
#include "runtime/session/state_codes.h"

#include <sherd/sherd.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "softcuda.h"

enum {
    RANKS = 4,
    STEPS = 2,
    BATCH = 4 /* micro-batches of a step, over all ranks */,
    CONTEXT = 8,
    VOCABULARY = 33,
    TEXT_BYTES = 400,
    FUNCTIONS = 96
};
enum { GOOD = 0, FAILED_CLEANLY = 3, WRONG = 4 };

typedef struct setting {
    int stage, ranks, replicas;
    sherd_dtype precision, states;
    sherd_link link;
    sherd_optimizer_kind optimizer;
    bool late, verbose;
    double limit_s;
} setting;

/* What is done to a run. */
typedef struct attempt {
    uint64_t seed, skip_wait; /* skip_wait 0: none is left out */
    const char *failing;      /* NULL: nothing fails */
    uint64_t nth;
    int code, failing_rank;
} attempt;

/* What one rank tells, in memory that it shares with who started it. */
typedef struct outcome {
    double losses[STEPS], norms[STEPS];
    uint64_t wait_count;
    int64_t planned_bytes;
    uint64_t peak_bytes, left_bytes, report_count;
    int status;
    char report[TEXT_BYTES], error[TEXT_BYTES];
    struct {
        char name[48];
        uint64_t count;
    } calls[FUNCTIONS];
} outcome;

static const char *const functions[] = {"cudaGetDeviceCount",
                                        "cudaSetDevice",
                                        "cudaGetDeviceProperties",
                                        "cudaMemGetInfo",
                                        "cudaMalloc",
                                        "cudaHostAlloc",
                                        "cudaHostRegister",
                                        "cudaHostGetDevicePointer",
                                        "cudaMemcpyAsync",
                                        "cudaMemsetAsync",
                                        "cudaStreamCreateWithPriority",
                                        "cudaStreamWaitEvent",
                                        "cudaEventCreateWithFlags",
                                        "cudaEventRecord",
                                        "cudaEventQuery",
                                        "cudaLaunchKernel",
                                        "cublasLtCreate",
                                        "cublasLtMatmulDescCreate",
                                        "cublasLtMatmulDescSetAttribute",
                                        "cublasLtMatrixLayoutCreate",
                                        "cublasLtMatrixLayoutSetAttribute",
                                        "cublasLtMatmulPreferenceCreate",
                                        "cublasLtMatmulPreferenceSetAttribute",
                                        "cublasLtMatmulAlgoGetHeuristic",
                                        "cublasLtMatmul",
                                        "ncclGetUniqueId",
                                        "ncclCommInitRankConfig",
                                        "ncclCommSplit",
                                        "ncclCommGetAsyncError",
                                        "ncclGroupStart",
                                        "ncclGroupEnd",
                                        "ncclAllGather",
                                        "ncclSend",
                                        "ncclRecv",
                                        "ncclReduceScatter",
                                        "ncclCommFinalize",
                                        "ncclCommDestroy"};
enum { FUNCTION_COUNT = sizeof functions / sizeof *functions };

/* Codes that each library has for a failure of its own. */
static int code_of(const char *function) {
    if (strncmp(function, "cublas", 6) == 0) return 13; /* CUBLAS_STATUS_EXECUTION_FAILED */
    if (strncmp(function, "nccl", 4) == 0) return 3;    /* ncclInternalError */
    if (strcmp(function, "cudaMalloc") == 0 || strcmp(function, "cudaHostAlloc") == 0) return 2; /* no memory */
    return 719;                                                                                  /* launch failure */
}

/* --- one rank ----------------------------------------------------------------------------------------------------- */

typedef struct rank {
    const setting *setting;
    sherd_options options;
    shd_model *model;
    sherd_session *session;
    shd_session_place place;
    void *sink; /* pinned */
    int32_t tokens[CONTEXT + 1];
} rank;

static sherd_status wait_for(void *session, shd_event *event) {
    return shd_session_await(session, event, "the copy of a micro-batch");
}

/* A bracket may read all parameters that it is lent, and this one does. */
static void read_lent(const rank *r, const sherd_view *view) {
    const shd_session_place *place = &r->place;
    const sherd_model *model = shd_model_describe(r->model);
    for (int32_t t = 0; t < model->tensor_count; t++)
        if (view->parameters[t]) place->device_ops->copy(place->stream, r->sink, view->parameters[t], 4);
}

static sherd_status forward(void *user, const sherd_view *view) {
    rank *r = user;
    read_lent(r, view);
    if (view->unit == 0) {
        int64_t number = sherd_session_step_count(r->session) * 16 + sherd_micro_batch(&r->options, view->micro_step);
        for (int i = 0; i <= CONTEXT; i++) r->tokens[i] = (int32_t)((number * 5 + i * (i + 3)) % VOCABULARY);
        const shd_batch batch = {.inputs = r->tokens, .targets = r->tokens + 1, .first_sequence = number};
        shd_model_bind(r->model, shd_session_pool(r->session), &batch);
    }
    return shd_model_forward(r->model, view);
}

static sherd_status backward(void *user, const sherd_view *view) {
    rank *r = user;
    read_lent(r, view);
    SHD_TRY(shd_model_backward(r->model, view));
    if (view->unit != 2) return SHERD_OK;
    const double *losses, *correct;
    (void)shd_model_late_losses(r->model, &losses, &correct);
    return shd_session_add_loss_later(r->session, losses, CONTEXT);
}

static sherd_options options_of(const setting *s, int32_t number, const char *rendezvous) {
    sherd_options options = SHERD_OPTIONS_INIT;
    options.rank = number;
    options.world_size = s->ranks;
    options.rendezvous = rendezvous;
    options.stage = s->stage;
    options.replicas = s->replicas;
    options.precision = s->precision;
    options.micro_steps = BATCH / s->ranks;
    options.clip = s->late ? 1 : 0;
    options.optimizer.kind = s->optimizer;
    options.optimizer.state_dtype = s->states;
    options.device = SHERD_DEVICE_CUDA;
    options.link = s->link;
    options.timeout_s = options.start_timeout_s = s->limit_s / 2;
    return options;
}

static sherd_status start(rank *r) {
    const shd_model_config config = {.family = SHD_MODEL_GPT2,
                                     .n_layer = 1,
                                     .vocab_size = VOCABULARY,
                                     .context = CONTEXT,
                                     .d_model = 16,
                                     .n_head = 2,
                                     .tied_embeddings = true,
                                     .precision = r->options.precision,
                                     .micro_batch = 1,
                                     .threads = 1,
                                     .ops = shd_ops_device()};
    SHD_TRY(shd_model_create(&config, &r->model));
    SHD_TRY(sherd_session_create(&r->options, shd_model_describe(r->model), &r->session));
    if (!shd_session_device(r->session, &r->place)) return SHERD_INTERNAL;
    const shd_session_place place = r->place;
    SHD_TRY(place.device_ops->allocate_pinned(place.device, 64, &r->sink));
    const shd_model_place where = {.device_ops = place.device_ops,
                                   .device = place.device,
                                   .stream = place.stream,
                                   .wait = wait_for,
                                   .user = r->session};
    SHD_TRY(shd_model_move(r->model, &where));
    shd_model_random random = {.model = r->model, .seed = 7};
    return sherd_session_fill(r->session, shd_model_fill_random, &random);
}

/* A checkpoint is begun between the steps, and written during the second one. */
static sherd_status run_steps(rank *r, const char *dir, outcome *out) {
    const sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = forward, .backward = backward, .user = r};
    SHD_TRY(start(r));
    out->planned_bytes = shd_session_plan(r->session)->arena_bytes[SHD_PLACE_PRIVATE] +
                         shd_session_plan(r->session)->arena_bytes[SHD_PLACE_EXPORTED];
    for (int step = 0; step < STEPS; step++) {
        sherd_step_result result;
        SHD_TRY(sherd_run_step(r->session, r->options.micro_steps * CONTEXT, &callbacks, &result));
        out->losses[step] = result.loss;
        out->norms[step] = result.grad_norm;
        if (step == 0) SHD_TRY(sherd_session_save_begin(r->session, dir, NULL));
    }
    return sherd_session_save_wait(r->session);
}

static int run_rank(const setting *s, const attempt *a, int32_t number, const char *rendezvous, const char *dir,
                    outcome *out) {
    rank r = {.setting = s, .options = options_of(s, number, rendezvous)};
    softcuda_restart(a->seed * 64 + (uint64_t)number, SOFTCUDA_RANDOM);
    softcuda_set_patience(s->limit_s);
    if (a->skip_wait) softcuda_skip_wait(a->skip_wait);
    if (a->failing && a->failing_rank == number) softcuda_fail_at(a->failing, a->nth, a->code);
    sherd_status status = run_steps(&r, dir, out);
    snprintf(out->error, sizeof out->error, "%s", status == SHERD_OK ? "" : sherd_last_error());
    out->peak_bytes = softcuda_memory_peak();
    if (r.model) shd_session_rest(r.session);
    if (r.model) shd_model_leave(r.model);
    if (r.sink) r.place.device_ops->release_pinned(r.place.device, r.sink);
    sherd_session_destroy(r.session);
    shd_model_destroy(r.model);
    out->left_bytes = softcuda_memory_in_use();
    if (!a->failing) softcuda_report_leaks();
    out->status = (int)status;
    out->wait_count = softcuda_calls("cudaStreamWaitEvent");
    for (int f = 0; f < FUNCTION_COUNT; f++) {
        snprintf(out->calls[f].name, sizeof out->calls[f].name, "%s", functions[f]);
        out->calls[f].count = softcuda_calls(functions[f]);
    }
    out->report_count = softcuda_report_count();
    if (out->report_count) snprintf(out->report, sizeof out->report, "%s", softcuda_report(0));
    return status == SHERD_OK ? GOOD : FAILED_CLEANLY;
}

/* --- one run ------------------------------------------------------------------------------------------------------ */

typedef struct run {
    outcome *ranks;   /* [RANKS], shared with the children */
    int codes[RANKS]; /* how each ended: its exit code, or 128 + signal */
    bool hung;
    uint64_t saved;
} run;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static sherd_status take_values(void *user, const float *values, int64_t count) {
    uint64_t *hash = user;
    *hash = shd_hash_bytes(*hash, values, (size_t)count * sizeof *values);
    return SHERD_OK;
}

/* Of one tensor: its parameter and its states. */
static sherd_status hash_tensor(shd_reader *reader, const shd_checkpoint_manifest *content, int32_t t,
                                const shd_reader_convert *convert, uint64_t *hash) {
    const shd_checkpoint_value *values = content->values + t * (1 + content->state_count);
    for (int32_t s = 0; s <= content->state_count; s++)
        SHD_TRY(shd_reader_stream(reader, content->tensors[t].name,
                                  s ? content->state_names[s - 1] : SHD_CHECKPOINT_PARAMETER, 0,
                                  values[s].element_count, convert, take_values, hash));
    return SHERD_OK;
}

static sherd_status hash_checkpoint(const char *path, uint64_t *out) {
    shd_checkpoint *checkpoint;
    shd_reader *reader = NULL;
    shd_state_codes *codes = NULL;
    uint64_t hash = 1;
    SHD_TRY(shd_checkpoint_open(path, &checkpoint));
    sherd_status status = shd_reader_create(checkpoint, &reader);
    const shd_checkpoint_manifest *content = shd_checkpoint_content(checkpoint);
    if (status == SHERD_OK) status = shd_state_codes_create(content->optimizer, &codes);
    for (int32_t t = 0; status == SHERD_OK && t < content->tensor_count; t++) {
        const shd_reader_convert convert = shd_state_codes_converter(codes);
        status = hash_tensor(reader, content, t, &convert, &hash);
    }
    shd_state_codes_destroy(codes);
    shd_reader_destroy(reader);
    shd_checkpoint_close(checkpoint);
    if (status == SHERD_OK) *out = hash;
    return status;
}

/* A hash of all values in the checkpoint, as they are read back; 0: it cannot be read. Then it is removed. */
static uint64_t take_checkpoint(const char *dir) {
    char path[600];
    uint64_t hash = 0;
    snprintf(path, sizeof path, "%s/step-00000001", dir);
    (void)hash_checkpoint(path, &hash);
    snprintf(path, sizeof path, "rm -rf '%s'", dir);
    return system(path) == 0 ? hash : 0;
}

static void start_ranks(const setting *s, const attempt *a, const char *dir, run *out, pid_t *children) {
    static int run_number;
    char rendezvous[64];
    snprintf(rendezvous, sizeof rendezvous, "soft-steps-%ld-%d", (long)getpid(), run_number++);
    fflush(NULL);
    for (int r = 0; r < s->ranks; r++) {
        children[r] = fork();
        if (children[r]) continue;
        alarm((unsigned)s->limit_s + 5);
        _exit(run_rank(s, a, r, s->ranks > 1 ? rendezvous : NULL, dir, &out->ranks[r]));
    }
}

static void await_ranks(const setting *s, run *out, const pid_t *children) {
    double end_s = now_s() + s->limit_s;
    int left = s->ranks;
    bool ended[RANKS] = {false};
    while (left > 0) {
        for (int r = 0; r < s->ranks; r++) {
            int status;
            if (ended[r] || waitpid(children[r], &status, WNOHANG) != children[r]) continue;
            ended[r] = true;
            left--;
            out->codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        if (left > 0 && now_s() > end_s) {
            out->hung = true;
            for (int r = 0; r < s->ranks; r++)
                if (!ended[r]) kill(children[r], SIGKILL);
            end_s = INFINITY;
        }
        if (left > 0) usleep(500);
    }
}

static run make_run(const setting *s, const attempt *a, outcome *shared) {
    char dir[] = "/dev/shm/soft-steps-XXXXXX", other[] = "/tmp/soft-steps-XXXXXX";
    const char *made = mkdtemp(dir);
    if (!made) made = mkdtemp(other);
    pid_t children[RANKS];
    run out = {.ranks = shared};
    memset(shared, 0, RANKS * sizeof *shared);
    start_ranks(s, a, made, &out, children);
    await_ranks(s, &out, children);
    out.saved = take_checkpoint(made);
    return out;
}

/* --- judging ------------------------------------------------------------------------------------------------------ */

static int problems;

static void complain(const char *what, const run *r, int number) {
    const outcome *o = &r->ranks[number];
    problems++;
    printf("%s: rank %d ended with %d (%s)%s%s%s\n", what, number, r->codes[number], o->error, r->hung ? ", hung" : "",
           o->report_count ? "; " : "", o->report);
    fflush(stdout);
}

/* Whether the run ended well: all of it, without a report. */
static bool is_good(const setting *s, const run *r, const char *what) {
    for (int i = 0; i < s->ranks; i++) {
        const outcome *o = &r->ranks[i];
        char text[200];
        if (r->hung || r->codes[i] != GOOD || o->report_count) {
            complain(what, r, i);
            return false;
        }
        if (o->peak_bytes != (uint64_t)o->planned_bytes || o->left_bytes) {
            snprintf(text, sizeof text, "%s: %llu bytes held at most, %lld planned, %llu left at the end", what,
                     (unsigned long long)o->peak_bytes, (long long)o->planned_bytes, (unsigned long long)o->left_bytes);
            complain(text, r, i);
            return false;
        }
    }
    return true;
}

static bool is_same(const run *a, const outcome *first, uint64_t saved) {
    return memcmp(a->ranks[0].losses, first->losses, sizeof first->losses) == 0 &&
           memcmp(a->ranks[0].norms, first->norms, sizeof first->norms) == 0 && a->saved == saved;
}

static void run_schedules(const setting *s, uint64_t first_seed, uint64_t count, outcome *shared) {
    outcome first;
    uint64_t saved = 0;
    for (uint64_t i = 0; i < count; i++) {
        char what[64];
        run r = make_run(s, &(attempt){.seed = first_seed + i}, shared);
        snprintf(what, sizeof what, "seed %llu", (unsigned long long)(first_seed + i));
        if (!is_good(s, &r, what)) continue;
        if (i == 0 || first.planned_bytes == 0) {
            first = r.ranks[0];
            saved = r.saved;
        }
        if (!r.saved)
            complain("no checkpoint", &r, 0);
        else if (!is_same(&r, &first, saved))
            complain(r.saved == saved ? "other losses or norms" : "another checkpoint", &r, 0);
    }
    printf("%llu schedules: %d problems, losses %.9g %.9g\n", (unsigned long long)count, problems, first.losses[0],
           first.losses[1]);
}

static const char *shown_report(const setting *s, const run *r) {
    for (int i = 0; i < s->ranks; i++)
        if (r->ranks[i].report_count) return r->ranks[i].report;
    return "it was not there";
}

/* Whether the wait was there to be left out, and that was reported; there may be fewer of them where what they wait for
 * has passed already. */
static bool is_noticed(const setting *s, const run *r, uint64_t nth) {
    bool there = false;
    for (int i = 0; i < s->ranks; i++) {
        if (r->ranks[i].report_count) return true;
        there |= r->ranks[i].wait_count >= nth;
    }
    return !there;
}

static void run_waits(const setting *s, uint64_t only, outcome *shared) {
    run r = make_run(s, &(attempt){.seed = 1}, shared);
    uint64_t count = 0, missed = 0;
    if (!is_good(s, &r, "nothing left out")) return;
    for (int i = 0; i < s->ranks; i++)
        if (r.ranks[i].wait_count > count) count = r.ranks[i].wait_count;
    for (uint64_t n = only ? only : 1; n <= (only ? only : count); n++) {
        bool found = false;
        for (uint64_t seed = 1; !found && seed <= 3; seed++) { /* a query may have met it by chance */
            r = make_run(s, &(attempt){.seed = seed, .skip_wait = n}, shared);
            found = is_noticed(s, &r, n);
        }
        if (found && only) printf("wait %llu: %s\n", (unsigned long long)n, shown_report(s, &r));
        if (found) continue;
        missed++;
        problems++;
        printf("wait %llu of %llu can be left out without a report\n", (unsigned long long)n,
               (unsigned long long)count);
        fflush(stdout);
    }
    printf("%llu waits: %llu not missed\n", (unsigned long long)count, (unsigned long long)missed);
}

/* After a failure on one rank: every rank ended by itself with an error, and gave everything back. */
static void judge_failure(const setting *s, const attempt *a, const run *r) {
    char what[120];
    bool failed = false;
    snprintf(what, sizeof what, "%s %llu", a->failing, (unsigned long long)a->nth);
    for (int i = 0; i < s->ranks; i++) failed |= r->codes[i] == FAILED_CLEANLY;
    for (int i = 0; i < s->ranks; i++) {
        const outcome *o = &r->ranks[i];
        bool clean =
            r->codes[i] == FAILED_CLEANLY ? o->error[0] != 0 && o->left_bytes == 0 : r->codes[i] == GOOD && !failed;
        if (r->hung || !clean) {
            complain(what, r, i);
            return;
        }
    }
}

static void run_failures(const setting *s, uint64_t every, outcome *shared) {
    run r = make_run(s, &(attempt){.seed = 1}, shared);
    if (!is_good(s, &r, "nothing fails")) return;
    outcome calls = r.ranks[s->ranks - 1];
    uint64_t tried = 0, all = 0;
    for (int f = 0; f < FUNCTION_COUNT; f++) {
        uint64_t count = calls.calls[f].count;
        for (uint64_t n = 1; n <= count; n++, all++) {
            if (all % every && n != 1 && n != count) continue;
            const attempt a = {.seed = 1,
                               .failing = functions[f],
                               .nth = n,
                               .code = code_of(functions[f]),
                               .failing_rank = s->ranks - 1};
            r = make_run(s, &a, shared);
            judge_failure(s, &a, &r);
            tried++;
        }
        if (s->verbose && count) printf("%s: %llu calls\n", functions[f], (unsigned long long)count);
    }
    printf("%llu failing calls of %llu: %d problems\n", (unsigned long long)tried, (unsigned long long)all, problems);
}

/* --- the command line --------------------------------------------------------------------------------------------- */

static int find_word(const char *word, const char *const *words) {
    for (int i = 0; words[i]; i++)
        if (word && strcmp(word, words[i]) == 0) return i;
    fprintf(stderr, "soft-steps: what is '%s'?\n", word ? word : "nothing");
    exit(2);
}

int main(int argument_count, char **arguments) {
    static const char *const precisions[] = {"fp32", "bf16", "fp16", NULL}, *const links[] = {"auto", "nccl", "staged",
                                                                                              NULL};
    static const char *const modes[] = {"schedules", "waits", "failures", NULL};
    static const char *const states[] = {"fp32", "int8", NULL};
    static const char *const optimizers[] = {"adamw", "sgd", "lion", "adam", NULL};
    static const sherd_dtype dtypes[] = {SHERD_FP32, SHERD_BF16, SHERD_FP16};
    static const sherd_link link_kinds[] = {SHERD_LINK_AUTO, SHERD_LINK_NCCL, SHERD_LINK_STAGED};
    static const sherd_optimizer_kind kinds[] = {SHERD_ADAMW, SHERD_SGD, SHERD_LION, SHERD_ADAM};
    setting s = {.stage = 3, .ranks = 2, .replicas = 1, .precision = SHERD_FP32, .late = true, .limit_s = 60};
    unsigned long long first_seed = 1, seeds = 10, every = 1, only = 0;
    int mode = find_word(argument_count > 1 ? arguments[1] : NULL, modes);
    for (int i = 2; i < argument_count; i++) {
        const char *key = arguments[i], *value = i + 1 < argument_count ? arguments[i + 1] : "";
        if (strcmp(key, "--late") == 0)
            s.late = true;
        else if (strcmp(key, "--early") == 0)
            s.late = false;
        else if (strcmp(key, "--verbose") == 0)
            s.verbose = true;
        else if (i++, strcmp(key, "--stage") == 0)
            s.stage = atoi(value);
        else if (strcmp(key, "--ranks") == 0)
            s.ranks = atoi(value);
        else if (strcmp(key, "--replicas") == 0)
            s.replicas = atoi(value);
        else if (strcmp(key, "--precision") == 0)
            s.precision = dtypes[find_word(value, precisions)];
        else if (strcmp(key, "--link") == 0)
            s.link = link_kinds[find_word(value, links)];
        else if (strcmp(key, "--optimizer") == 0)
            s.optimizer = kinds[find_word(value, optimizers)];
        else if (strcmp(key, "--states") == 0)
            s.states = find_word(value, states) ? SHERD_INT8 : SHERD_FP32;
        else if (strcmp(key, "--limit") == 0)
            s.limit_s = atof(value);
        else if (strcmp(key, "--only") == 0)
            only = strtoull(value, NULL, 10);
        else if (strcmp(key, "--every") == 0)
            every = strtoull(value, NULL, 10);
        else if (strcmp(key, "--seeds") == 0) {
            if (sscanf(value, "%llu:%llu", &first_seed, &seeds) != 2) find_word(value, modes);
        } else
            find_word(key, modes);
    }
    if (s.ranks < 1 || s.ranks > RANKS || BATCH % s.ranks) find_word("--ranks", modes);
    outcome *shared = mmap(NULL, RANKS * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    if (mode == 0) run_schedules(&s, first_seed, seeds, shared);
    if (mode == 1) run_waits(&s, only, shared);
    if (mode == 2) run_failures(&s, every ? every : 1, shared);
    return problems ? 1 : 0;
}
