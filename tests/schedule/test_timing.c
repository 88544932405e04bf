/* Programs under random timing, with memory that remembers what it holds.
 *
 * A small executor runs all ranks of a job: compute instructions in order, the heads of the two other queues at any
 * moment at which their waits and awaits are met, the next instruction drawn by chance. Instead of numbers, memory
 * holds versions (how often a shard was updated, whose gradient of which micro-step), and each instruction checks that
 * it finds the right ones. It knows nothing of the accesses and clocks that the verifier goes by, and it mixes steps
 * with evaluations, which the verifier sees apart. */
#include "tests/schedule/cases.h"

#include "shard/plan.h"

#include <criterion/criterion.h>
#include <string.h>

enum { MAX_UNITS = 8, MAX_TENSORS = 24, MAX_BUFFERS = 96, MAX_INSTRUCTIONS = 512, RANKS = 4 };

/* What a gradient slot or an accumulator holds. */
typedef struct content {
    int32_t unit, step, micro_steps, writers;
} content;

typedef struct rank_memory {
    int32_t owned[MAX_UNITS];          /* updates of the own shard */
    int32_t full[MAX_UNITS][RANKS];    /* stages 0 to 2: updates seen of each place's shard, in the full private copy */
    int32_t slot_unit[MAX_BUFFERS];    /* gather slots: whose; -1: nobody's */
    int32_t slots[MAX_BUFFERS][RANKS]; /* and at which updates */
    content gradients[MAX_BUFFERS];    /* gradient slots */
    content accumulators[MAX_UNITS];   /* own shard */
    int32_t sums[MAX_UNITS][RANKS];    /* stage 0: the step whose sum it holds of each shard */
    int32_t parts[MAX_UNITS][RANKS];   /* of the own shard: the step whose sum over replicas it holds of each replica's
                                          part; -1: none's */
    int32_t directed[MAX_TENSORS];     /* the step whose step of a whole tensor the own slot holds, from 1; 0: none's */
    bool counted, judged;              /* COUNT and VERDICT of this run are over */
    int32_t normed_count;
    int32_t counters[SHD_COUNTERS][MAX_UNITS], base[SHD_COUNTERS][MAX_UNITS];
} rank_memory;

typedef struct rank_run {
    int32_t program;             /* index into the job's sequence */
    int32_t next[SHD_QUEUES];    /* the next instruction of each queue */
    bool done[MAX_INSTRUCTIONS]; /* in this run */
    bool begun;                  /* the barrier at the head of its queue */
    int32_t barriers;            /* begun so far */
} rank_run;

typedef struct simulation {
    case_programs *kinds[SHD_PROGRAM_KINDS];
    const shd_program_kind *sequence;
    int32_t sequence_length;
    int32_t step[RANKS]; /* completed */
    rank_memory memory[RANKS];
    rank_run runs[RANKS];
    uint64_t random;
    const char *fault; /* the first wrong thing; NULL: none */
} simulation;

static uint32_t draw(simulation *job, uint32_t below) {
    job->random = job->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(job->random >> 33) % below;
}

static void check(simulation *job, bool condition, const char *fault) {
    if (!condition && !job->fault) job->fault = fault;
}

static const shd_plan *plan_of(const simulation *job, int32_t r) { return job->kinds[0]->plans[r]; }

static const shd_program *program_of(const simulation *job, int32_t r) {
    return job->kinds[job->sequence[job->runs[r].program]]->programs[r];
}

/* Of rank r's mesh. */
static int32_t split(const simulation *job, int32_t r) { return shd_policy_split(&plan_of(job, r)->policy); }
static int32_t place(const simulation *job, int32_t r) { return r % split(job, r); }
static int32_t replica(const simulation *job, int32_t r) { return r / split(job, r); }
static int32_t replicas(const simulation *job, int32_t r) { return job->kinds[0]->rank_count / split(job, r); }
/* The rank at place g of its replica, and the one at its place of replica p. */
static int32_t neighbour(const simulation *job, int32_t r, int32_t g) { return replica(job, r) * split(job, r) + g; }
static int32_t twin(const simulation *job, int32_t r, int32_t p) { return p * split(job, r) + place(job, r); }

/* How often a unit's shards should have been updated when a run of step `step` reads them. */
static int32_t due(const shd_plan *plan, int32_t unit, int32_t step) {
    return plan->units[unit].gradient_bytes > 0 ? step : 0;
}

/* --- what instructions do --------------------------------------------------------------------- */

static void read_parameters(simulation *job, int32_t r, int32_t unit, int32_t event) {
    const shd_plan *plan = plan_of(job, r);
    const shd_policy *policy = &plan->policy;
    const rank_memory *memory = &job->memory[r];
    int32_t slot = -1;
    for (int32_t i = 0; i < plan->gather_count; i++)
        if (plan->gathers[i].unit_index == unit && plan->gathers[i].first_event <= event &&
            event <= plan->gathers[i].last_event)
            slot = plan->gathers[i].slot_buffer;
    if (plan->units[unit].gathered_bytes == 0) return;
    if (slot >= 0) check(job, memory->slot_unit[slot] == unit, "a slot holds another unit");
    for (int32_t s = 0; s < split(job, r); s++) {
        int32_t seen = policy->gather_shared ? job->memory[neighbour(job, r, s)].owned[unit]
                       : slot >= 0           ? memory->slots[slot][s]
                                             : memory->full[unit][s];
        check(job, seen == due(plan, unit, job->step[r]), "parameters of another step are read");
    }
}

/* The gradient slot of a tensor's unit; -1: none. */
static int32_t slot_of(const shd_plan *plan, int32_t t) {
    for (int32_t i = 0; i < plan->gradient_count; i++)
        if (plan->gradients[i].unit_index == plan->places[t].unit_index) return plan->gradients[i].slot_buffer;
    return -1;
}

static void write_gradient(simulation *job, int32_t r, int32_t unit, int32_t event, int32_t micro_step) {
    const shd_plan *plan = plan_of(job, r);
    for (int32_t i = 0; i < plan->gradient_count; i++) {
        const shd_residency *gradient = &plan->gradients[i];
        if (gradient->unit_index != unit) continue;
        content *held = &job->memory[r].gradients[gradient->slot_buffer];
        for (int32_t t = 0; t < plan->tensor_count; t++)
            if (slot_of(plan, t) == gradient->slot_buffer) job->memory[r].directed[t] = 0;
        if (event == gradient->first_event)
            *held = (content){.unit = unit, .step = job->step[r], .micro_steps = micro_step, .writers = 1};
        else
            check(job, held->unit == unit && held->micro_steps == micro_step && held->writers++ > 0,
                  "a gradient is added to another's");
    }
}

static void compute(simulation *job, int32_t r, const shd_instruction *instruction) {
    const shd_plan *plan = plan_of(job, r);
    int32_t u = instruction->unit_index;
    bool backward = instruction->op == SHD_OP_BACKWARD;
    int32_t event = backward ? 2 * plan->unit_count - 1 - u : u;
    if (backward) check(job, job->memory[r].counted, "backward runs before the targets are counted");
    read_parameters(job, r, u, event);
    if (backward) write_gradient(job, r, u, event, instruction->micro_step);
    for (int32_t i = 0; i < plan->units[u].share_count; i++) {
        read_parameters(job, r, plan->units[u].shares[i], event);
        if (backward) write_gradient(job, r, plan->units[u].shares[i], event, instruction->micro_step);
    }
}

static void gather(simulation *job, int32_t r, const shd_instruction *instruction) {
    const shd_plan *plan = plan_of(job, r);
    int32_t u = instruction->unit_index;
    if (plan->policy.gather_shared) return;
    int32_t slot = instruction->residency >= 0 ? plan->gathers[instruction->residency].slot_buffer : -1;
    if (slot >= 0) job->memory[r].slot_unit[slot] = u;
    for (int32_t s = 0; s < split(job, r); s++)
        *(slot >= 0 ? &job->memory[r].slots[slot][s] : &job->memory[r].full[u][s]) =
            job->memory[neighbour(job, r, s)].owned[u];
}

/* A wait promises that the unit's last gather is over. */
static void check_wait(simulation *job, int32_t r, const shd_instruction *instruction) {
    const shd_program *program = program_of(job, r);
    for (int32_t i = (int32_t)(instruction - program->instructions) - 1; i >= 0; i--)
        if (program->instructions[i].op == SHD_OP_GATHER &&
            program->instructions[i].unit_index == instruction->unit_index) {
            check(job, job->runs[r].done[i], "a wait ends before its gather");
            return;
        }
    check(job, false, "a wait has no gather");
}

static int32_t count_writers(const shd_plan *plan, int32_t unit) {
    int32_t count = 1;
    for (int32_t v = 0; v < plan->unit_count; v++)
        for (int32_t i = 0; i < plan->units[v].share_count; i++) count += plan->units[v].shares[i] == unit;
    return count;
}

static void round_gradient(simulation *job, int32_t r, const shd_instruction *instruction) {
    const shd_plan *plan = plan_of(job, r);
    content *gradients = job->memory[r].gradients;
    gradients[plan->rounded[instruction->residency].slot_buffer] =
        gradients[plan->gradients[instruction->residency].slot_buffer];
}

static void reduce(simulation *job, int32_t r, const shd_instruction *instruction) {
    const shd_plan *plan = plan_of(job, r);
    int32_t u = instruction->unit_index, slot = shd_exchanged_gradient(plan, instruction->residency)->slot_buffer;
    for (int32_t s = 0; s < split(job, r); s++) {
        const content *held = &job->memory[neighbour(job, r, s)].gradients[slot];
        check(job,
              held->unit == u && held->step == job->step[r] && held->micro_steps == instruction->micro_step &&
                  held->writers == count_writers(plan, u),
              "a gradient is reduced that is not the one, or not complete");
    }
    content *sum = &job->memory[r].accumulators[u];
    if (instruction->first_reduce) *sum = (content){.unit = u, .step = job->step[r]};
    check(job, sum->step == job->step[r] && sum->micro_steps++ == instruction->micro_step, "a micro-step is missing");
    job->memory[r].sums[u][place(job, r)] = job->step[r];
    for (int32_t p = 0; p < replicas(job, r); p++)
        job->memory[r].parts[u][p] = replicas(job, r) == 1 ? job->step[r] : -1;
}

/* Whether rank `s` holds the sum of the step that rank `r` is in. */
static bool is_summed(const simulation *job, int32_t r, int32_t s, int32_t u) {
    const content *sum = &job->memory[s].accumulators[u];
    return sum->step == job->step[r] && sum->micro_steps == program_of(job, r)->micro_steps;
}

static void reduce_replicas(simulation *job, int32_t r, int32_t u) {
    int32_t own = replica(job, r);
    for (int32_t p = 0; p < replicas(job, r); p++) {
        int32_t other = twin(job, r, p);
        check(job, is_summed(job, r, other, u), "a replica's sum is added up that is not the step's");
        check(job, job->memory[other].parts[u][own] == -1, "a part is added up that is gone");
    }
    job->memory[r].parts[u][own] = job->step[r];
}

static void gather_parts(simulation *job, int32_t r, int32_t u) {
    for (int32_t p = 0; p < replicas(job, r); p++) {
        check(job, job->memory[twin(job, r, p)].parts[u][p] == job->step[r],
              "a part is gathered that is not the step's");
        job->memory[r].parts[u][p] = job->step[r];
    }
}

static void gather_gradient(simulation *job, int32_t r, int32_t u) {
    if (replicas(job, r) > 1) {
        gather_parts(job, r, u);
        return;
    }
    for (int32_t s = 0; s < split(job, r); s++) {
        check(job, is_summed(job, r, s, u), "a sum is gathered that is not the step's");
        job->memory[r].sums[u][s] = job->step[r];
    }
}

/* Whether the shard of place g has elements of a tensor. */
static bool has_part(const shd_plan *plan, int32_t t, int32_t g) {
    const shd_tensor_place *tensor = &plan->places[t];
    int64_t shard = plan->groups[tensor->group_index].shard_count;
    return tensor->offset_count < (g + 1) * shard && tensor->offset_count + tensor->element_count > g * shard;
}

static void direct_tensor(simulation *job, int32_t r, int32_t t) {
    const shd_plan *plan = plan_of(job, r);
    const shd_tensor_place *written = &plan->places[t];
    int32_t u = written->unit_index;
    for (int32_t g = 0; g < split(job, r); g++) {
        if (!has_part(plan, t, g)) continue;
        int32_t s = neighbour(job, r, g);
        check(job, is_summed(job, r, s, u), "an owner reads an incomplete sum");
        if (plan->policy.stage == 0)
            check(job, job->memory[r].sums[u][g] == job->step[r], "an owner reads an incomplete sum");
        for (int32_t p = 0; p < replicas(job, r); p++)
            check(job, job->memory[s].parts[u][p] == job->step[r], "an owner reads a sum that lacks replicas");
        check(job, job->memory[s].owned[u] == job->step[r], "an owner reads parameters that are being updated");
    }
    for (int32_t other = 0; other < plan->tensor_count; other++) {
        const shd_tensor_place *tensor = &plan->places[other];
        if (slot_of(plan, other) == slot_of(plan, t) &&
            tensor->offset_count < written->offset_count + written->element_count &&
            written->offset_count < tensor->offset_count + tensor->element_count)
            job->memory[r].directed[other] = 0;
    }
    job->memory[r].directed[t] = job->step[r] + 1;
}

static void direct(simulation *job, int32_t r, int32_t u) {
    const shd_plan *plan = plan_of(job, r);
    check(job, job->memory[r].judged, "an owner does not know the clip scale");
    for (int32_t t = 0; t < plan->tensor_count; t++)
        if (plan->places[t].unit_index == u && plan->places[t].whole && plan->places[t].owner == place(job, r))
            direct_tensor(job, r, t);
}

static void take_steps(simulation *job, int32_t r, int32_t u) {
    const shd_plan *plan = plan_of(job, r);
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        if (plan->places[t].unit_index != u || !plan->places[t].whole) continue;
        int32_t owner = neighbour(job, r, plan->places[t].owner);
        if (plan->policy.stage == 0 || has_part(plan, t, place(job, r)))
            check(job, job->memory[owner].directed[t] == job->step[r] + 1, "a step is taken that is not this one's");
    }
}

static void update(simulation *job, int32_t r, int32_t u) {
    take_steps(job, r, u);
    const shd_policy *policy = &plan_of(job, r)->policy;
    rank_memory *memory = &job->memory[r];
    if (program_of(job, r)->late_updates) check(job, memory->judged, "an update does not know the clip scale");
    check(job, is_summed(job, r, r, u), "an update uses an incomplete sum");
    for (int32_t p = 0; p < replicas(job, r); p++)
        check(job, memory->parts[u][p] == job->step[r], "an update uses a sum that lacks replicas");
    for (int32_t s = 0; policy->stage == 0 && s < split(job, r); s++) {
        check(job, memory->sums[u][s] == job->step[r], "an update uses an incomplete sum");
        memory->full[u][s]++;
    }
    memory->owned[u]++;
    if (policy->stage > 0) memory->full[u][place(job, r)] = memory->owned[u];
}

static void execute(simulation *job, int32_t r, const shd_instruction *instruction) {
    rank_memory *memory = &job->memory[r];
    switch (instruction->op) {
    case SHD_OP_COUNT: memory->counted = true; break;
    case SHD_OP_GATHER: gather(job, r, instruction); break;
    case SHD_OP_WAIT: check_wait(job, r, instruction); break;
    case SHD_OP_FORWARD:
    case SHD_OP_BACKWARD: compute(job, r, instruction); break;
    case SHD_OP_RELEASE: {
        int32_t slot = plan_of(job, r)->gathers[instruction->residency].slot_buffer;
        if (slot >= 0) memory->slot_unit[slot] = -1;
        break;
    }
    case SHD_OP_ROUND: round_gradient(job, r, instruction); break;
    case SHD_OP_REDUCE: reduce(job, r, instruction); break;
    case SHD_OP_REDUCE_REPLICAS: reduce_replicas(job, r, instruction->unit_index); break;
    case SHD_OP_NORM:
        check(job,
              is_summed(job, r, r, instruction->unit_index) &&
                  memory->parts[instruction->unit_index][replica(job, r)] == job->step[r],
              "a norm is of an incomplete sum");
        memory->normed_count++;
        break;
    case SHD_OP_GATHER_GRADIENT: gather_gradient(job, r, instruction->unit_index); break;
    case SHD_OP_VERDICT:
        if (program_of(job, r)->kind == SHD_PROGRAM_TRAIN)
            check(job, memory->normed_count == plan_of(job, r)->gradient_count, "the verdict misses a norm");
        memory->judged = true;
        break;
    case SHD_OP_DIRECT: direct(job, r, instruction->unit_index); break;
    case SHD_OP_UPDATE: update(job, r, instruction->unit_index); break;
    default: break;
    }
}

/* --- when they may ---------------------------------------------------------------------------- */

static int32_t head(const simulation *job, int32_t r, int32_t queue) {
    const shd_program *program = program_of(job, r);
    int32_t i = job->runs[r].next[queue];
    while (i < program->instruction_count && program->instructions[i].queue != (shd_queue_id)queue) i++;
    return i;
}

static bool is_ready(const simulation *job, int32_t r, int32_t index) {
    const shd_program *program = program_of(job, r);
    const shd_instruction *instruction = &program->instructions[index];
    for (int32_t i = 0; i < instruction->waits.count; i++)
        if (!job->runs[r].done[program->waits[instruction->waits.first + i]]) return false;
    for (int32_t a = 0; a < instruction->awaits.count; a++) {
        const shd_await *await = &program->awaits[instruction->awaits.first + a];
        int32_t target = job->memory[r].base[await->counter][await->unit_index] + await->target;
        shd_scope scope = shd_counter_scope(await->counter);
        int32_t count = scope == SHD_SCOPE_GROUP ? split(job, r) : replicas(job, r);
        for (int32_t i = 0; i < count; i++) {
            int32_t s = scope == SHD_SCOPE_GROUP ? neighbour(job, r, i) : twin(job, r, i);
            if (job->memory[s].counters[await->counter][await->unit_index] < target) return false;
        }
    }
    return true;
}

static bool is_over(const simulation *job, int32_t r) { return job->runs[r].program == job->sequence_length; }

static void finish_run(simulation *job, int32_t r) {
    const shd_program *program = program_of(job, r);
    rank_run *run = &job->runs[r];
    for (int32_t i = 0; i < program->instruction_count; i++)
        check(job, run->done[i], "a program ends before its instructions");
    if (program->kind == SHD_PROGRAM_TRAIN) job->step[r]++;
    run->program++;
    memset(run->next, 0, sizeof run->next);
    memset(run->done, 0, sizeof run->done);
    job->memory[r].counted = job->memory[r].judged = false;
    job->memory[r].normed_count = 0;
    memcpy(job->memory[r].base, job->memory[r].counters, sizeof job->memory[r].base);
}

/* One turn of one queue; false when it cannot go on now. */
static bool turn(simulation *job, int32_t r, int32_t queue) {
    if (is_over(job, r)) return false;
    const shd_program *program = program_of(job, r);
    rank_run *run = &job->runs[r];
    int32_t index = head(job, r, queue);
    if (index == program->instruction_count) {
        if (queue == SHD_QUEUE_COMPUTE) finish_run(job, r);
        return queue == SHD_QUEUE_COMPUTE;
    }
    const shd_instruction *instruction = &program->instructions[index];
    if (!is_ready(job, r, index)) return false;
    if (instruction->op == SHD_OP_COUNT || instruction->op == SHD_OP_VERDICT) {
        if (!run->begun) {
            run->begun = true;
            run->barriers++;
            return true;
        }
        for (int32_t s = 0; s < plan_of(job, r)->policy.world_size; s++)
            if (job->runs[s].barriers < run->barriers) return false;
        run->begun = false;
    }
    execute(job, r, instruction);
    run->done[index] = true;
    run->next[queue] = index + 1;
    for (int32_t i = 0; i < instruction->signals.count; i++) {
        const shd_signal *signal = &program->signals[instruction->signals.first + i];
        job->memory[r].counters[signal->counter][signal->unit_index]++;
    }
    return true;
}

static bool all_over(const simulation *job, int32_t ranks) {
    for (int32_t r = 0; r < ranks; r++)
        if (!is_over(job, r)) return false;
    return true;
}

/* Runs the sequence; NULL, or what went wrong. */
static const char *play(case_programs kinds[SHD_PROGRAM_KINDS], uint64_t seed) {
    static const shd_program_kind sequence[] = {SHD_PROGRAM_PROLOGUE, SHD_PROGRAM_EVALUATE, SHD_PROGRAM_TRAIN,
                                                SHD_PROGRAM_TRAIN,    SHD_PROGRAM_EVALUATE, SHD_PROGRAM_TRAIN};
    static simulation job;
    job = (simulation){.sequence = sequence, .sequence_length = sizeof sequence / sizeof *sequence, .random = seed};
    for (int k = 0; k < SHD_PROGRAM_KINDS; k++) job.kinds[k] = &kinds[k];
    int32_t ranks = kinds[0].rank_count, actors = ranks * SHD_QUEUES, slow = (int32_t)draw(&job, (uint32_t)ranks);
    for (int32_t failures = 0; failures < 1000 * actors && !all_over(&job, ranks) && !job.fault;) {
        /* One rank is slow, or one queue of all: chance alone would keep them abreast. */
        int32_t actor = (int32_t)draw(&job, (uint32_t)actors), r = actor / SHD_QUEUES, queue = actor % SHD_QUEUES;
        bool held = (seed % 3 == 0 && r == slow) || (seed % 3 == 1 && queue == (int32_t)(seed / 3 % SHD_QUEUES));
        if (held && draw(&job, 30)) continue;
        failures = turn(&job, r, queue) ? 0 : failures + 1;
    }
    check(&job, all_over(&job, ranks), "it hangs");
    return job.fault;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void compile_all(case_model model, case_policy policy, int32_t micro_steps, bool clip,
                        case_programs kinds[SHD_PROGRAM_KINDS]) {
    for (int k = 0; k < SHD_PROGRAM_KINDS; k++)
        kinds[k] = case_compile(model, policy, (shd_program_kind)k, micro_steps, clip);
    cr_assert_leq(kinds[0].plans[0]->buffer_count, MAX_BUFFERS);
    cr_assert_leq(kinds[0].plans[0]->tensor_count, MAX_TENSORS);
    cr_assert_leq(kinds[0].programs[0]->instruction_count, MAX_INSTRUCTIONS);
}

static void destroy_all(case_programs kinds[SHD_PROGRAM_KINDS]) {
    for (int k = 0; k < SHD_PROGRAM_KINDS; k++) case_destroy(&kinds[k]);
}

Test(timing, no_order_of_events_shows_a_rank_wrong_bytes) {
    for (case_policy policy = {0}; case_next_policy(&policy);)
        for (case_model model = policy.world_size > RANKS ? CASE_MODELS : 0; model < CASE_MODELS; model++)
            for (int variant = 0; variant < (case_is_owned(model) ? 2 : 4); variant++) {
                case_programs kinds[SHD_PROGRAM_KINDS];
                compile_all(model, policy, 1 + variant % 2, variant / 2, kinds);
                for (uint64_t seed = 0; seed < (policy.replicas > 1 || case_is_owned(model) ? 3 : 6); seed++) {
                    const char *fault = play(kinds, seed);
                    cr_assert_null(fault,
                                   "%s, %d ranks, %d replicas, stage %d, %s, prefetch %d, variant %d, seed %d: %s",
                                   case_model_name(model), policy.world_size, policy.replicas, policy.stage,
                                   policy.shared ? "shared" : "copy", policy.prefetch, variant, (int)seed, fault);
                }
                destroy_all(kinds);
            }
}

/* So the executor above would see it, and nothing is waited for in vain. */
Test(timing, every_wait_and_await_prevents_harm_in_some_order_of_events) {
    int tried = 0, harmful = 0;
    static const case_policy policies[] = {
        {.world_size = 3, .stage = 0, .gradient_slots = 1},
        {.world_size = 3, .stage = 2, .gradient_slots = 1},
        {.world_size = 3, .stage = 3, .gradient_slots = 1, .prefetch = 1},
        {.world_size = 3, .stage = 3, .gradient_slots = 1, .shared = true},
        {.world_size = 4, .replicas = 2, .stage = 1, .gradient_slots = 1},
        {.world_size = 4, .replicas = 2, .stage = 3, .gradient_slots = 1, .shared = true},
        {.world_size = 3, .replicas = 3, .stage = 2, .gradient_slots = 1},
    };
    enum { POLICIES = sizeof policies / sizeof *policies };
    for (size_t c = 0; c < 2 * POLICIES; c++) {
        case_programs kinds[SHD_PROGRAM_KINDS];
        compile_all(c < POLICIES ? CASE_TIED : CASE_ADAFACTOR, policies[c % POLICIES], 2, true, kinds);
        for (int32_t i = 0; i < kinds[0].programs[0]->instruction_count; i++) {
            shd_instruction kept[RANKS];
            if (kinds[0].programs[0]->instructions[i].waits.count +
                    kinds[0].programs[0]->instructions[i].awaits.count ==
                0)
                continue;
            for (int32_t r = 0; r < kinds[0].rank_count; r++) {
                shd_instruction *instruction = &kinds[0].programs[r]->instructions[i];
                kept[r] = *instruction;
                instruction->waits.count = instruction->awaits.count = 0;
            }
            bool harm = false;
            for (uint64_t seed = 0; seed < 200 && !harm; seed++) harm = play(kinds, seed) != NULL;
            tried++;
            harmful += harm;
            for (int32_t r = 0; r < kinds[0].rank_count; r++) kinds[0].programs[r]->instructions[i] = kept[r];
        }
        destroy_all(kinds);
    }
    cr_assert_gt(tried, 60);
    cr_assert_eq(harmful, tried, "%d of %d", harmful, tried);
}
