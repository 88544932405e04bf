/* See replay.h. A clock is a row of counts, one for each actor. */
#include "runtime/schedule/replay.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <inttypes.h>
#include <string.h>

/* Where a rank is in its list. */
typedef struct rank_state {
    int32_t run, next;
    bool arrived;         /* at COUNT or VERDICT, and not past it */
    int32_t barrier;      /* how many it is past */
    int32_t *last_waiter; /* by instruction: who waits for it last; -1: nobody */
    int32_t *kept;        /* by instruction: the row of `pool` that holds its end until then */
} rank_state;

typedef struct replay {
    const shd_host *host;
    shd_visit_fn visit;
    void *user;
    int32_t width; /* actors */
    rank_state *ranks;
    int32_t *clocks; /* [width][width]: each actor's last instruction */
    int32_t *times;  /* [width] */

    /* Ends of instructions that others still wait for. */
    int32_t *pool;      /* [pool_count][width] */
    int32_t *pool_next; /* free list */
    int32_t pool_count, pool_free;

    /* Raises of counters: the n-th of (counter, unit), n from 1, by the ranks of a circle is entry
     * first_raise[counter·units + unit] + (n - 1)·circles + circle. A circle: those who await the counter from one
     * another, a shard group or a place's replicas. */
    int32_t *first_raise;  /* [SHD_COUNTERS·units + 1] */
    int32_t *raiser_count; /* ranks that have raised so far */
    int32_t *raise_clocks; /* [entries][width]: all of them done */
    int32_t *raised;       /* [ranks][SHD_COUNTERS·units]: by that rank so far */

    /* The n-th of COUNT and VERDICT. */
    int32_t *arrival_count;
    int32_t *arrival_clocks;
} replay;

static void join(int32_t *clock, const int32_t *other, int32_t width) {
    for (int32_t a = 0; a < width; a++)
        if (other[a] > clock[a]) clock[a] = other[a];
}

static int32_t *row(int32_t *rows, int32_t width, int32_t i) { return rows + (size_t)i * (size_t)width; }

static bool is_barrier(const shd_instruction *instruction) {
    return instruction->op == SHD_OP_COUNT || instruction->op == SHD_OP_VERDICT;
}

/* --- rows that are kept for waits ------------------------------------------------------------- */

static sherd_status grow_pool(replay *r) {
    int32_t grown = r->pool_count ? 2 * r->pool_count : 64;
    int32_t *pool = shd_realloc(r->pool, (size_t)grown * (size_t)r->width * sizeof *pool);
    if (pool) r->pool = pool;
    int32_t *next = shd_realloc(r->pool_next, (size_t)grown * sizeof *next);
    if (next) r->pool_next = next;
    if (!pool || !next) return shd_fail(SHERD_MEMORY, "no memory to verify step programs");
    for (int32_t i = r->pool_count; i < grown; i++) next[i] = i + 1 < grown ? i + 1 : r->pool_free;
    r->pool_free = r->pool_count;
    r->pool_count = grown;
    return SHERD_OK;
}

static sherd_status keep(replay *r, rank_state *state, int32_t index, const int32_t *clock) {
    if (state->last_waiter[index] < 0) return SHERD_OK;
    if (r->pool_free < 0) SHD_TRY(grow_pool(r));
    int32_t slot = r->pool_free;
    r->pool_free = r->pool_next[slot];
    memcpy(row(r->pool, r->width, slot), clock, (size_t)r->width * sizeof *clock);
    state->kept[index] = slot;
    return SHERD_OK;
}

static void forget(replay *r, rank_state *state, int32_t index) {
    if (state->last_waiter[index] != state->next || state->kept[index] < 0) return;
    r->pool_next[state->kept[index]] = r->pool_free;
    r->pool_free = state->kept[index];
    state->kept[index] = -1;
}

/* --- counters --------------------------------------------------------------------------------- */

static int32_t counter_index(const replay *r, shd_counter counter, int32_t unit) {
    return (int32_t)counter * r->host->plans[0]->unit_count + unit;
}

/* How many circles a counter has, and in which a rank is. */
static int32_t circle_count(const replay *r, shd_counter counter) {
    const shd_policy *policy = &r->host->plans[0]->policy;
    return shd_counter_scope(counter) == SHD_SCOPE_GROUP ? policy->replicas : shd_policy_split(policy);
}

static int32_t circle_of(const replay *r, int32_t rank, shd_counter counter) {
    shd_mesh mesh = shd_policy_mesh(&r->host->plans[rank]->policy);
    return shd_counter_scope(counter) == SHD_SCOPE_GROUP ? shd_mesh_replica(&mesh) : shd_mesh_place(&mesh);
}

/* Raises before the first run. */
static int32_t raises_before(const replay *r, shd_counter counter, int32_t unit) {
    return counter == SHD_COUNTER_UPDATED && shd_host_lingering(r->host) > 0 &&
           r->host->plans[0]->units[unit].gradient_bytes > 0;
}

/* Which raise an await means, from 1; less: none. */
static int64_t awaited_raise(const replay *r, int32_t rank, const shd_await *await) {
    int32_t per_run = r->host->programs[rank]->raised[counter_index(r, await->counter, await->unit_index)];
    return (int64_t)raises_before(r, await->counter, await->unit_index) + r->ranks[rank].run * per_run + await->target;
}

/* The entry of a circle's n-th raise; -1: there are not so many. */
static int32_t entry_of(const replay *r, int32_t rank, shd_counter counter, int32_t unit, int64_t raise) {
    int32_t at = counter_index(r, counter, unit);
    int64_t entry = r->first_raise[at] + (raise - 1) * circle_count(r, counter) + circle_of(r, rank, counter);
    return entry < r->first_raise[at + 1] ? (int32_t)entry : -1;
}

static bool is_met(const replay *r, int32_t rank, const shd_await *await) {
    int64_t raise = awaited_raise(r, rank, await);
    if (raise <= 0) return true;
    int32_t entry = entry_of(r, rank, await->counter, await->unit_index, raise);
    return entry >= 0 && r->raiser_count[entry] == r->host->rank_count / circle_count(r, await->counter);
}

static void raise_counter(replay *r, int32_t rank, shd_counter counter, int32_t unit, const int32_t *clock) {
    int32_t at = counter_index(r, counter, unit);
    int32_t count = r->raised[rank * r->host->plans[0]->unit_count * SHD_COUNTERS + at]++;
    int32_t entry = entry_of(r, rank, counter, unit, count + 1);
    r->raiser_count[entry]++;
    join(row(r->raise_clocks, r->width, entry), clock, r->width);
}

/* --- a rank's next instruction ---------------------------------------------------------------- */

static const shd_await *unmet(const replay *r, int32_t rank) {
    const shd_program *program = r->host->programs[rank];
    const shd_instruction *instruction = &program->instructions[r->ranks[rank].next];
    for (int32_t i = 0; i < instruction->awaits.count; i++) {
        const shd_await *await = &program->awaits[instruction->awaits.first + i];
        if (!is_met(r, rank, await)) return await;
    }
    return NULL;
}

static sherd_status start(replay *r, int32_t rank, const shd_instruction *instruction) {
    rank_state *state = &r->ranks[rank];
    const shd_program *program = r->host->programs[rank];
    int32_t actor = shd_actor(rank, instruction->queue);
    int32_t *clock = row(r->clocks, r->width, actor);
    for (int32_t i = 0; i < instruction->waits.count; i++) {
        int32_t wait = program->waits[instruction->waits.first + i];
        join(clock, row(r->pool, r->width, state->kept[wait]), r->width);
    }
    for (int32_t i = 0; i < instruction->waits.count; i++)
        forget(r, state, program->waits[instruction->waits.first + i]);
    for (int32_t i = 0; i < instruction->awaits.count; i++) {
        const shd_await *await = &program->awaits[instruction->awaits.first + i];
        int64_t raise = awaited_raise(r, rank, await);
        if (raise <= 0) continue;
        int32_t entry = entry_of(r, rank, await->counter, await->unit_index, raise);
        join(clock, row(r->raise_clocks, r->width, entry), r->width);
    }
    clock[actor] = ++r->times[actor];
    const shd_moment moment = {.run = state->run,
                               .rank = rank,
                               .index = state->next,
                               .unit_index = instruction->unit_index,
                               .actor = actor,
                               .time = r->times[actor],
                               .clock = clock};
    SHD_TRY(r->visit(r->user, &moment));
    if (is_barrier(instruction)) {
        state->arrived = true;
        r->arrival_count[state->barrier]++;
        join(row(r->arrival_clocks, r->width, state->barrier), clock, r->width);
    }
    return SHERD_OK;
}

static sherd_status finish(replay *r, int32_t rank, const shd_instruction *instruction) {
    rank_state *state = &r->ranks[rank];
    const shd_program *program = r->host->programs[rank];
    int32_t *clock = row(r->clocks, r->width, shd_actor(rank, instruction->queue));
    if (state->arrived) {
        join(clock, row(r->arrival_clocks, r->width, state->barrier++), r->width);
        state->arrived = false;
    }
    for (int32_t i = 0; i < instruction->signals.count; i++) {
        const shd_signal *signal = &program->signals[instruction->signals.first + i];
        raise_counter(r, rank, signal->counter, signal->unit_index, clock);
    }
    SHD_TRY(keep(r, state, state->next, clock));
    state->next++;
    return SHERD_OK;
}

/* A run ends with the COMPUTE queue, which must know that the others are done. */
static sherd_status end_run(replay *r, int32_t rank) {
    const int32_t *compute = row(r->clocks, r->width, shd_actor(rank, SHD_QUEUE_COMPUTE));
    for (int32_t q = 0; q < SHD_QUEUES; q++) {
        int32_t actor = shd_actor(rank, (shd_queue_id)q);
        if (compute[actor] < r->times[actor])
            return shd_fail(SHERD_INTERNAL,
                            "%s: no instruction waits for it, so it may still run when the program ends",
                            shd_name_moment(r->host, actor, compute[actor] + 1).text);
        memmove(row(r->clocks, r->width, actor), compute, (size_t)r->width * sizeof *compute);
    }
    r->ranks[rank].run++;
    r->ranks[rank].next = 0;
    return SHERD_OK;
}

static sherd_status advance(replay *r, int32_t rank, bool *moved) {
    rank_state *state = &r->ranks[rank];
    const shd_program *program = r->host->programs[rank];
    while (state->run < SHD_REPLAY_RUNS) {
        if (state->next == program->instruction_count) {
            SHD_TRY(end_run(r, rank));
            *moved = true;
            continue;
        }
        const shd_instruction *instruction = &program->instructions[state->next];
        if (!state->arrived) {
            if (unmet(r, rank)) return SHERD_OK;
            SHD_TRY(start(r, rank, instruction));
            *moved = true;
        }
        if (state->arrived && r->arrival_count[state->barrier] < r->host->rank_count) return SHERD_OK;
        SHD_TRY(finish(r, rank, instruction));
        *moved = true;
    }
    return SHERD_OK;
}

/* Nobody can go on: tells why, by the first rank that awaits a counter, else by one that waits at a barrier. */
static sherd_status fail_blocked(const replay *r) {
    int32_t held = -1;
    for (int32_t rank = 0; rank < r->host->rank_count; rank++) {
        const rank_state *state = &r->ranks[rank];
        if (state->run == SHD_REPLAY_RUNS) continue;
        if (state->arrived) {
            held = rank;
            continue;
        }
        const shd_await *await = unmet(r, rank);
        int32_t at = counter_index(r, await->counter, await->unit_index);
        int32_t units = r->host->plans[0]->unit_count;
        int32_t behind = rank, circle = circle_of(r, rank, await->counter);
        for (int32_t s = 0; s < r->host->rank_count; s++)
            if (circle_of(r, s, await->counter) == circle &&
                r->raised[s * units * SHD_COUNTERS + at] < r->raised[behind * units * SHD_COUNTERS + at])
                behind = s;
        return shd_fail(SHERD_INTERNAL,
                        "%s blocks for ever: it awaits %s %s to reach %" PRId32
                        ", and nothing before it makes rank %" PRId32 " raise it that often",
                        shd_name_instruction(r->host, rank, state->next).text, shd_counter_text(await->counter),
                        r->host->plans[rank]->unit_names[await->unit_index], await->target, behind);
    }
    return shd_fail(SHERD_INTERNAL, "%s blocks for ever: not every rank comes to it",
                    shd_name_instruction(r->host, held, r->ranks[held].next).text);
}

/* The updates that an evaluation finds under way. */
static sherd_status linger(replay *r) {
    for (int32_t rank = 0; rank < r->host->rank_count; rank++) {
        int32_t actor = shd_actor(rank, SHD_QUEUE_COMPUTE);
        int32_t *clock = row(r->clocks, r->width, actor);
        for (int32_t i = 0; i < shd_host_lingering(r->host); i++) {
            clock[actor] = ++r->times[actor];
            const shd_moment moment = {.run = -1,
                                       .rank = rank,
                                       .index = -1,
                                       .unit_index = shd_host_lingering_unit(r->host, i),
                                       .actor = actor,
                                       .time = r->times[actor],
                                       .clock = clock};
            SHD_TRY(r->visit(r->user, &moment));
            raise_counter(r, rank, SHD_COUNTER_UPDATED, moment.unit_index, clock);
        }
        for (int32_t q = 0; q < SHD_QUEUES; q++)
            memmove(row(r->clocks, r->width, shd_actor(rank, (shd_queue_id)q)), clock,
                    (size_t)r->width * sizeof *clock);
    }
    return SHERD_OK;
}

static sherd_status replay_all(replay *r) {
    SHD_TRY(linger(r));
    bool moved = true;
    while (moved) {
        moved = false;
        for (int32_t rank = 0; rank < r->host->rank_count; rank++) SHD_TRY(advance(r, rank, &moved));
    }
    for (int32_t rank = 0; rank < r->host->rank_count; rank++)
        if (r->ranks[rank].run < SHD_REPLAY_RUNS) return fail_blocked(r);
    return SHERD_OK;
}

/* --- life ------------------------------------------------------------------------------------- */

static bool rank_init(replay *r, int32_t rank) {
    const shd_program *program = r->host->programs[rank];
    rank_state *state = &r->ranks[rank];
    state->last_waiter = shd_alloc((size_t)program->instruction_count, sizeof *state->last_waiter);
    state->kept = shd_alloc((size_t)program->instruction_count, sizeof *state->kept);
    if (!state->last_waiter || !state->kept) return false;
    for (int32_t i = 0; i < program->instruction_count; i++) state->last_waiter[i] = -1;
    for (int32_t i = 0; i < program->instruction_count; i++) {
        const shd_instruction *instruction = &program->instructions[i];
        for (int32_t w = 0; w < instruction->waits.count; w++)
            state->last_waiter[program->waits[instruction->waits.first + w]] = i;
    }
    return true;
}

static bool counters_init(replay *r) {
    const shd_program *program = r->host->programs[0];
    int32_t units = r->host->plans[0]->unit_count;
    size_t kinds = (size_t)SHD_COUNTERS * (size_t)units;
    r->first_raise = shd_alloc(kinds + 1, sizeof *r->first_raise);
    r->raised = shd_alloc((size_t)r->host->rank_count * kinds, sizeof *r->raised);
    if (!r->first_raise || !r->raised) return false;
    for (int32_t c = 0; c < SHD_COUNTERS; c++)
        for (int32_t u = 0; u < units; u++) {
            int32_t at = counter_index(r, (shd_counter)c, u);
            r->first_raise[at + 1] =
                r->first_raise[at] + (raises_before(r, (shd_counter)c, u) + SHD_REPLAY_RUNS * program->raised[at]) *
                                         circle_count(r, (shd_counter)c);
        }
    size_t raises = (size_t)r->first_raise[kinds];
    r->raiser_count = shd_alloc(raises, sizeof *r->raiser_count);
    r->raise_clocks = shd_alloc(raises * (size_t)r->width, sizeof *r->raise_clocks);
    return r->raiser_count && r->raise_clocks;
}

static bool replay_init(replay *r, const shd_host *host, shd_visit_fn visit, void *user) {
    *r = (replay){.host = host, .visit = visit, .user = user, .width = host->rank_count * SHD_QUEUES, .pool_free = -1};
    size_t width = (size_t)r->width, barriers = 0;
    for (int32_t i = 0; i < host->programs[0]->instruction_count; i++)
        barriers += is_barrier(&host->programs[0]->instructions[i]);
    barriers *= SHD_REPLAY_RUNS;
    r->ranks = shd_alloc((size_t)host->rank_count, sizeof *r->ranks);
    r->clocks = shd_alloc(width * width, sizeof *r->clocks);
    r->times = shd_alloc(width, sizeof *r->times);
    r->arrival_count = shd_alloc(barriers, sizeof *r->arrival_count);
    r->arrival_clocks = shd_alloc(barriers * width, sizeof *r->arrival_clocks);
    if (!r->ranks || !r->clocks || !r->times || !r->arrival_count || !r->arrival_clocks) return false;
    for (int32_t rank = 0; rank < host->rank_count; rank++)
        if (!rank_init(r, rank)) return false;
    return counters_init(r);
}

static void replay_fini(replay *r) {
    for (int32_t rank = 0; r->ranks && rank < r->host->rank_count; rank++) {
        shd_free(r->ranks[rank].last_waiter);
        shd_free(r->ranks[rank].kept);
    }
    shd_free(r->ranks);
    shd_free(r->clocks);
    shd_free(r->times);
    shd_free(r->pool);
    shd_free(r->pool_next);
    shd_free(r->first_raise);
    shd_free(r->raiser_count);
    shd_free(r->raise_clocks);
    shd_free(r->raised);
    shd_free(r->arrival_count);
    shd_free(r->arrival_clocks);
}

sherd_status shd_replay(const shd_host *host, shd_visit_fn visit, void *user) {
    replay r;
    sherd_status status = replay_init(&r, host, visit, user)
                              ? replay_all(&r)
                              : shd_fail(SHERD_MEMORY, "no memory to verify step programs");
    replay_fini(&r);
    return status;
}
