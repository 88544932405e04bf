/* `sherd plan`: what a job will take of each rank's memory, and the program of its step, without running anything. */
#include "runtime/cli/commands.h"
#include "runtime/cli/job_arguments.h"
#include "runtime/cli/progress.h"
#include "runtime/cli/verdict.h"
#include "runtime/schedule/program.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/sample.h"
#include "shard/plan.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_PROGRAM = 256, OPTION_JSON, STAGES = 4 };

/* Rank 0's plans of a job at every stage; ranks differ in nothing that is shown. */
typedef struct plan_set {
    const shd_job *job;
    shd_plan *plans[STAGES];
    int64_t sample_bytes; /* what rank 0 takes beside the plan, to write texts with */
} plan_set;

static const shd_plan *chosen(const plan_set *set) { return set->plans[set->job->shard.stage]; }

static sherd_status make_plans(plan_set *set, const shd_job *job) {
    *set = (plan_set){.job = job};
    sherd_status status = shd_sample_bytes(job, &set->sample_bytes);
    for (int32_t stage = 0; stage < STAGES && status == SHERD_OK; stage++)
        status = shd_job_plan(job, stage, 0, &set->plans[stage]);
    return status;
}

static void destroy_plans(plan_set *set) {
    for (int32_t stage = 0; stage < STAGES; stage++) shd_plan_destroy(set->plans[stage]);
}

/* --- text --------------------------------------------------------------------------------------------------------- */

/* 1234567 as "1,234,567". Returns `text`. */
static const char *with_commas(int64_t value, char text[32]) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, value);
    char *at = text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) *at++ = ',';
        *at++ = digits[i];
    }
    *at = '\0';
    return text;
}

/* "1.18 MiB", or "-" for nothing. Returns `text`. */
static const char *human_size(int64_t bytes, char text[32]) {
    char size[16] = "-";
    if (bytes > 0) shd_bytes_text((double)bytes, size);
    snprintf(text, 32, "%s", size);
    return text;
}

static void print_heading(const plan_set *set) {
    const shd_job *job = set->job;
    const shd_plan *plan = chosen(set);
    const shd_policy *policy = &plan->policy;
    char all[32], frozen[32];
    printf("%s: %s, %s parameters (%s frozen) in %" PRId32 " units\n", job->top.name,
           shd_job_word("model.family", (int32_t)job->model.family), with_commas(plan->parameter_count, all),
           with_commas(plan->parameter_count - plan->trainable_count, frozen), plan->unit_count);
    printf("%" PRId32 " rank%s%s, stage %" PRId32 ", gather %s", policy->world_size, policy->world_size == 1 ? "" : "s",
           shd_mesh_text(policy).text, policy->stage, shd_gather_text(policy));
    if (plan->gather_count > 0 && shd_policy_split(policy) > 1) printf(", prefetch %" PRId32, policy->prefetch);
    printf("%s", shd_precision_text(policy).text);
    if (policy->state_dtype != SHERD_FP32)
        printf(", optimizer state in %s", shd_job_word("optimizer.state_dtype", (int32_t)job->optimizer.state_dtype));
    int64_t micro_steps = job->train.global_batch / (job->train.micro_batch * job->run.ranks);
    printf(", %" PRId64 " micro-batch%s of %" PRId64, micro_steps, micro_steps == 1 ? "" : "es",
           job->train.micro_batch);
    if (job->model.family != SHD_JOB_MLP) printf(" x %" PRId64, job->model.context);
    printf(" %s per rank and step\n\n", shd_job_items(job));
}

static void print_row(const char *name, int64_t bytes) {
    char exact[32], human[32];
    printf("  %-16s %16s  %10s\n", name, with_commas(bytes, exact), human_size(bytes, human));
}

static void print_chosen(const plan_set *set) {
    const shd_plan *plan = chosen(set);
    printf("Memory of each rank at stage %" PRId32 "\n", plan->policy.stage);
    printf("  %-16s %16s\n", "", "bytes");
    for (int c = 0; c < SHD_CATEGORIES; c++) print_row(shd_category_text((shd_category)c), plan->category_bytes[c]);
    print_row("allocated", plan->allocated_bytes);
    if (plan->policy.world_size > 1) print_row("on all ranks", plan->allocated_bytes * plan->policy.world_size);
    if (plan->arena_bytes[SHD_PLACE_PINNED] > 0) print_row("host, pinned", plan->arena_bytes[SHD_PLACE_PINNED]);
    if (set->sample_bytes > 0) print_row("texts, rank 0", set->sample_bytes);
    printf("\n");
}

/* One line of the comparison: a cell for each stage. */
static void print_cells(const plan_set *set, const char *name, int64_t (*bytes_of)(const shd_plan *, int), int argument,
                        const char *(*format)(int64_t, char[32])) {
    char text[32];
    printf("  %-16s", name);
    for (int stage = 0; stage < STAGES; stage++) printf(" %15s", format(bytes_of(set->plans[stage], argument), text));
    printf("\n");
}

static int64_t category_bytes(const shd_plan *plan, int category) { return plan->category_bytes[category]; }
static int64_t allocated_bytes(const shd_plan *plan, int unused) {
    (void)unused;
    return plan->allocated_bytes;
}
static int64_t model_state_bytes(const shd_plan *plan, int unused) {
    (void)unused;
    return plan->model_state_bytes;
}

/* What the words mean, and why stages look alike where they do. */
static void print_notes(const shd_plan *plan) {
    printf("\n'allocated' is what the job takes. 'model states' are parameters, gradients and optimizer state as the "
           "ZeRO\npapers count them, for ranks that share nothing; 'master' are fp32 copies of parameters in fewer "
           "bits: none in\nfp32; 'reduce_buffers' hold the gradients of the units in backward until they are folded "
           "into shards; in 'checkpoint' checkpoints are\nencoded and decoded.\nMemory that ranks share is charged to "
           "them in equal parts.\n");
    if (plan->policy.parameter_dtype != SHERD_FP32)
        printf("\nIn 16 bits 'activations' include up to 3 MiB a thread, in which products pack their matrices: very "
               "small "
               "models\ntake more than in fp32.\n");
    if (plan->policy.gather_shared)
        printf("\nWith gather shared, stages 1 to 3 take the same: parameters live once per %s, and gradients are "
               "folded into\nshards at every stage. '--set shard.gather=copy' shows what ranks with copies of their "
               "own take.\n",
               plan->policy.replicas > 1 ? "replica" : "host");
}

static void print_comparison(const plan_set *set) {
    printf("Stages compared, each rank\n  %-16s", "");
    for (int stage = 0; stage < STAGES; stage++)
        printf("       %sstage %d", set->job->shard.stage == stage ? "* " : "  ", stage);
    printf("\n  %-16s", "gather");
    for (int stage = 0; stage < STAGES; stage++) printf(" %15s", shd_gather_text(&set->plans[stage]->policy));
    printf("\n");
    for (int c = 0; c < SHD_CATEGORIES; c++)
        print_cells(set, shd_category_text((shd_category)c), category_bytes, c, human_size);
    print_cells(set, "allocated", allocated_bytes, 0, human_size);
    print_cells(set, "  bytes", allocated_bytes, 0, with_commas);
    print_cells(set, "model states", model_state_bytes, 0, human_size);
    print_cells(set, "  bytes", model_state_bytes, 0, with_commas);
    print_notes(chosen(set));
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static const char *place_text(shd_place place) {
    static const char *const texts[SHD_PLACES] = {[SHD_PLACE_PRIVATE] = "private",
                                                  [SHD_PLACE_EXPORTED] = "exported",
                                                  [SHD_PLACE_HOST] = "host",
                                                  [SHD_PLACE_PINNED] = "pinned"};
    return texts[place];
}

static json_t *stage_json(const shd_plan *plan) {
    json_t *categories = json_object(), *arenas = json_object();
    for (int c = 0; c < SHD_CATEGORIES; c++)
        json_object_set_new(categories, shd_category_text((shd_category)c), json_integer(plan->category_bytes[c]));
    for (int p = 0; p < SHD_PLACES; p++)
        json_object_set_new(arenas, place_text((shd_place)p), json_integer(plan->arena_bytes[p]));
    return json_pack("{s:i, s:s, s:I, s:I, s:o, s:o}", "stage", (int)plan->policy.stage, "gather",
                     shd_gather_text(&plan->policy), "allocated_bytes", (json_int_t)plan->allocated_bytes,
                     "model_state_bytes", (json_int_t)plan->model_state_bytes, "categories", categories, "arena_bytes",
                     arenas);
}

/* The unit a buffer belongs to, or NULL. */
static const char *unit_of(const shd_plan *plan, const shd_buffer *buffer) {
    switch (buffer->kind) {
    case SHD_BUFFER_PARAMETERS:
    case SHD_BUFFER_SHARD:
    case SHD_BUFFER_MASTER:
    case SHD_BUFFER_ACCUMULATOR:
    case SHD_BUFFER_STATE: return plan->unit_names[plan->groups[buffer->owner_index].unit_index];
    case SHD_BUFFER_OUTPUT:
    case SHD_BUFFER_ACTIVATIONS:
    case SHD_BUFFER_REMADE: return plan->unit_names[buffer->owner_index];
    default: return NULL;
    }
}

static json_t *buffer_json(const shd_plan *plan, const shd_buffer *buffer) {
    const char *unit = unit_of(plan, buffer);
    json_t *json = json_pack("{s:s, s:s, s:s, s:s?, s:I, s:I, s:I}", "kind", shd_buffer_kind_text(buffer->kind),
                             "category", shd_category_text(buffer->category), "place", place_text(buffer->place),
                             "unit", unit, "offset_bytes", (json_int_t)buffer->offset_bytes, "bytes",
                             (json_int_t)buffer->bytes, "charged_bytes", (json_int_t)buffer->charged_bytes);
    bool of_group = unit && buffer->kind != SHD_BUFFER_ACTIVATIONS && buffer->kind != SHD_BUFFER_REMADE &&
                    buffer->kind != SHD_BUFFER_OUTPUT;
    if (of_group) json_object_set_new(json, "trainable", json_boolean(plan->groups[buffer->owner_index].trainable));
    if (buffer->state_index >= 0) json_object_set_new(json, "state", json_integer(buffer->state_index));
    if (buffer->transient) json_object_set_new(json, "slot", json_integer(buffer->owner_index));
    return json;
}

static int print_json(const plan_set *set) {
    const shd_plan *plan = chosen(set);
    json_t *stages = json_array(), *buffers = json_array();
    for (int stage = 0; stage < STAGES; stage++) json_array_append_new(stages, stage_json(set->plans[stage]));
    for (int32_t b = 0; b < plan->buffer_count; b++)
        json_array_append_new(buffers, buffer_json(plan, &plan->buffers[b]));
    const shd_policy *policy = &plan->policy;
    json_t *json = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:s, s:s, s:I, s:I, s:i, s:I, s:o, s:o}", "job", set->job->top.name, "ranks",
        (int)plan->policy.world_size, "replicas", (int)plan->policy.replicas, "stage", (int)plan->policy.stage,
        "prefetch", (int)plan->policy.prefetch, "precision", shd_dtype_text(policy->parameter_dtype), "reduce_dtype",
        shd_dtype_text(policy->reduce_dtype), "parameters", (json_int_t)plan->parameter_count, "trainable",
        (json_int_t)plan->trainable_count, "units", (int)plan->unit_count, "sample_bytes",
        (json_int_t)set->sample_bytes, "stages", stages, "buffers", buffers);
    int written = json ? json_dumpf(json, stdout, JSON_INDENT(2)) : -1;
    json_decref(json);
    printf("\n");
    if (written == 0) return SHD_EXIT_DONE;
    shd_say_error("the plan cannot be written as JSON: memory or the disk is full");
    return SHD_EXIT_FAILED;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static sherd_status print_program(const plan_set *set) {
    const shd_plan *plan = chosen(set);
    shd_program *program;
    sherd_status status = shd_job_program(set->job, plan, SHD_PROGRAM_TRAIN, &program);
    if (status != SHERD_OK) return status;
    shd_program_print(program, plan, stdout);
    shd_program_destroy(program);
    return SHERD_OK;
}

static int show(const plan_set *set, bool program, bool json) {
    if (json) return print_json(set);
    if (program) {
        sherd_status status = print_program(set);
        if (status != SHERD_OK) shd_say_error("%s", sherd_last_error());
        return shd_status_exit_code(status);
    }
    print_heading(set);
    print_chosen(set);
    print_comparison(set);
    return SHD_EXIT_DONE;
}

static int run(const shd_command *command, int argc, char **argv) {
    shd_job_arguments given = {0};
    bool program = false, json = false;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case OPTION_PROGRAM: program = true; break;
        case OPTION_JSON: json = true; break;
        case SHD_ARGUMENT_STOP: return arguments.exit_code;
        default:
            if (!shd_job_arguments_take(&given, command, id, arguments.value)) return SHD_EXIT_USAGE;
        }
    if (program && json) return shd_usage_error(command, "--program and --json do not go together");

    shd_job *job;
    int exit_code = shd_job_arguments_load(&given, command, &job);
    if (exit_code != SHD_EXIT_DONE) return exit_code;
    plan_set set;
    sherd_status status = make_plans(&set, job);
    if (status == SHERD_OK) {
        exit_code = show(&set, program, json);
    } else {
        shd_say_error("%s", sherd_last_error());
        exit_code = shd_status_exit_code(status);
    }
    destroy_plans(&set);
    shd_job_destroy(job);
    return exit_code;
}

static const shd_option options[] = {
    SHD_JOB_OPTIONS,
    {OPTION_PROGRAM, "program", NULL, "Print the step program of rank 0 instead: every instruction, in order."},
    {OPTION_JSON, "json", NULL, "Print the plan as one JSON object, with every buffer."},
    {0},
};

const shd_command shd_command_plan = {
    .name = "plan",
    .summary = "show the memory a job takes on each rank, or its step program",
    .usage = "JOB.yaml [-n RANKS] [--set KEY=VALUE]... [--program | --json]",
    .about = "Computes what each rank of a job allocates, by category, and compares the stages. Nothing is trained, no "
             "data\n"
             "are read, and no rank is started: plans for any number of ranks can be made anywhere.",
    .options = options,
    .examples = "sherd plan configs/demo.yaml\n"
                "sherd plan configs/demo.yaml -n 8 --set shard.gather=copy --set shard.prefetch=2\n"
                "sherd plan configs/demo.yaml --program",
    .exit_codes = "0 done; 1 failed; 2 bad usage or bad job file",
    .run = run,
};
