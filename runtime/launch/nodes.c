#include "runtime/launch/nodes.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/launch/ledger.h"
#include "runtime/launch/signals.h"

#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 50, GOODBYE_MS = 1000 };

struct shd_nodes {
    const shd_nodes_config *config;
    int32_t self, launcher; /* launcher: as in messages */
    bool serves;            /* node 0 */
    bool busy;              /* somebody here has the port: the launcher that came first, or a stranger */
    shd_store_server *server;
    shd_store *store;
    shd_store_config store_config;
    shd_ledger *ledger;
    shd_roll roll;
    bool joined, attempted, leaving, stop_told, stop_heard, done_told, lost;
    shd_message other; /* the HELLO of a node that was told of another number of nodes; node_count 0: there is none */
    bool there[SHD_ROLL_MAX_NODES];     /* who has said HELLO, and not BYE, and is not lost */
    char names[SHD_ROLL_MAX_NODES][32]; /* hosts of those */
    char host[SHD_MESSAGE_WORD_BYTES];
    char broken[256];
};

/* Later calls on the store are short, and a stop is among what they tell. */
static bool stops_joining(void *user) {
    const shd_nodes *nodes = user;
    return !nodes->joined && shd_signals_stop_waits();
}

/* Until the ledger has read a message, or it is time to look at other things. No rank runs now, whose end this could hide. */
static void await_news(void) {
    const struct timespec wait = {.tv_nsec = LOOK_MS * 1000000L};
    sigset_t news;
    sigemptyset(&news);
    sigaddset(&news, SIGCHLD);
    sigtimedwait(&news, NULL, &wait);
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

/* Whether `host` is, or has, an address of this machine. */
static bool is_here(const char *host) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    if (getaddrinfo(host, NULL, &hints, &list) != 0) return false;
    bool found = false;
    for (struct addrinfo *one = list; one && !found; one = one->ai_next) {
        int fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        found = fd >= 0 && bind(fd, one->ai_addr, one->ai_addrlen) == 0;
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(list);
    return found;
}

/* Node 0 must. Where nobody has said who that is, it is the launcher that comes first on the host that is named: others of
 * the same host find the port busy, and are clients. */
static sherd_status serve(shd_nodes *nodes) {
    const shd_nodes_config *config = nodes->config;
    const shd_store_server_config server = {
        .host = config->host, .port = config->port, .job = config->job, .secret = config->secret};
    if (config->node > 0 || (config->node < 0 && !is_here(config->host))) return SHERD_OK;
    sherd_status status = shd_store_server_start(&server, &nodes->server);
    nodes->serves = status == SHERD_OK;
    nodes->busy = status == SHERD_COMM && config->node < 0;
    return nodes->busy ? SHERD_OK : status;
}

static sherd_status connect_store(shd_nodes *nodes) {
    const shd_nodes_config *config = nodes->config;
    nodes->store_config = (shd_store_config){.host = config->host,
                                             .port = config->port,
                                             .job = config->job,
                                             .secret = config->secret,
                                             .connect_timeout_s = config->join_timeout_s,
                                             .call_timeout_s = config->lost_after_s,
                                             .silence_fails = nodes->busy,
                                             .give_up = stops_joining,
                                             .user = nodes};
    return shd_store_connect(&nodes->store_config, &nodes->store);
}

static sherd_status claim(shd_nodes *nodes, int32_t node, bool *claimed) {
    char key[SHD_LEDGER_KEY_BYTES], holder[SHD_MESSAGE_WORD_BYTES + 32];
    shd_ledger_place_key(key, node);
    snprintf(holder, sizeof holder, "%s, pid %d", nodes->host, (int)getpid());
    SHD_TRY(shd_store_compare_set(nodes->store, key, NULL, 0, holder, strlen(holder), claimed));
    if (*claimed) nodes->self = node;
    return SHERD_OK;
}

static sherd_status try_places(shd_nodes *nodes, bool *claimed) {
    int32_t asked = nodes->serves ? 0 : nodes->config->node;
    if (asked >= 0) return claim(nodes, asked, claimed);
    *claimed = false;
    for (int32_t node = 1; node < nodes->config->node_count && !*claimed; node++) SHD_TRY(claim(nodes, node, claimed));
    return SHERD_OK;
}

static sherd_status fail_taken(shd_nodes *nodes) {
    char key[SHD_LEDGER_KEY_BYTES], *holder;
    size_t bytes;
    if (nodes->config->node < 0)
        return shd_fail(SHERD_COMM, "all %d nodes of the job at %s are there already", nodes->config->node_count,
                        nodes->config->host);
    shd_ledger_place_key(key, nodes->config->node);
    if (shd_store_get(nodes->store, key, 0, &holder, &bytes) != SHERD_OK)
        return shd_fail(SHERD_COMM, "node %d of the job is taken", nodes->config->node);
    sherd_status status =
        shd_fail(SHERD_COMM, "node %d of the job is taken, by %s; each node needs a --node-rank of its own",
                 nodes->config->node, holder);
    shd_free(holder);
    return status;
}

static sherd_status fail_stopped(void) { return shd_fail(SHERD_STATE, "told to stop before all nodes were there"); }

/* A place that is taken may be that of a node that is gone, which is not known yet. */
static sherd_status take_place(shd_nodes *nodes) {
    double until_ms = shd_clock_ms() + (nodes->config->lost_after_s + 2 * nodes->config->beat_s) * 1e3;
    for (;;) {
        bool claimed;
        SHD_TRY(try_places(nodes, &claimed));
        if (claimed) return SHERD_OK;
        if (shd_signals_stop_waits()) return fail_stopped();
        if (shd_clock_ms() >= until_ms) return fail_taken(nodes);
        await_news();
    }
}

/* Whether one can go on listening. Nodes that were told different things would wait for each other for ever. */
static sherd_status check_talk(shd_nodes *nodes) {
    const shd_message *other = &nodes->other;
    if (other->node_count)
        return shd_fail(SHERD_CONFIG, "node %d (%s) has --nnodes %d, and this one %d", other->node, other->host,
                        other->node_count, nodes->config->node_count);
    const char *cause = nodes->broken[0] ? nodes->broken : shd_ledger_broken(nodes->ledger);
    if (!cause) return SHERD_OK;
    return shd_fail(SHERD_PEER, "node 0 of the job cannot be reached any more: %s", cause);
}

static void say_unheard(const shd_nodes *nodes, int32_t node) {
    shd_log(SHERD_LOG_WARN, "node %d (%s) did not take its leave: it may have been lost before all else", node,
            nodes->names[node]);
}

/* Who is there, to be waited for at the end. One that has said good-bye is silent, and so called lost, while others are
 * still waited for. */
static void note_presence(shd_nodes *nodes, const shd_message *message) {
    bool hello = message->kind == SHD_MESSAGE_HELLO;
    bool gone = message->kind == SHD_MESSAGE_BYE || message->kind == SHD_MESSAGE_LOST;
    if ((!hello && !gone) || message->node < 0 || message->node >= SHD_ROLL_MAX_NODES) return;
    if (nodes->leaving && nodes->there[message->node] && message->kind == SHD_MESSAGE_LOST)
        say_unheard(nodes, message->node);
    nodes->there[message->node] = hello;
    if (hello) snprintf(nodes->names[message->node], sizeof nodes->names[0], "%s", message->host);
}

static bool take_message(shd_nodes *nodes, shd_message *message) {
    if (!shd_ledger_take(nodes->ledger, message)) return false;
    if (shd_roll_ignores(&nodes->roll, message)) return true;
    note_presence(nodes, message);
    nodes->lost |= message->kind == SHD_MESSAGE_LOST && message->node == nodes->self;
    if (message->kind == SHD_MESSAGE_HELLO && message->node_count != nodes->config->node_count) nodes->other = *message;
    shd_roll_apply(&nodes->roll, message);
    return true;
}

/* What was said before this node came. It may be one that takes the place of a lost one: then the attempt that is awaited
 * is not the first, and the message of the loss is among those to come. */
static sherd_status catch_up(shd_nodes *nodes) {
    int64_t count;
    shd_roll *roll = &nodes->roll;
    SHD_TRY(shd_ledger_count(nodes->ledger, &count));
    while (count > 0 || roll->phase == SHD_ROLL_RUN) {
        shd_message message;
        if (shd_signals_stop_waits()) return fail_stopped();
        SHD_TRY(check_talk(nodes));
        if (!take_message(nodes, &message)) {
            await_news();
            continue;
        }
        count--;
        if (shd_roll_failed(roll) && roll->attempt < nodes->config->max_restarts) shd_roll_next(roll);
    }
    nodes->lost = false; /* it was the one before */
    if (roll->phase == SHD_ROLL_OVER || roll->stop_signal)
        return shd_fail(SHERD_PEER, "the job at %s is over", nodes->config->host);
    return SHERD_OK;
}

static sherd_status open_ledger(shd_nodes *nodes) {
    const shd_nodes_config *config = nodes->config;
    const shd_ledger_config ledger = {.store = &nodes->store_config,
                                      .writer = nodes->store,
                                      .node = nodes->self,
                                      .node_count = config->node_count,
                                      .watches = nodes->serves,
                                      .beat_s = config->beat_s,
                                      .lost_after_s = config->lost_after_s};
    SHD_TRY(shd_ledger_open(&ledger, &nodes->ledger));
    SHD_TRY(shd_ledger_number(nodes->ledger, &nodes->launcher));
    return catch_up(nodes);
}

static void release(shd_nodes *nodes) {
    shd_ledger_close(nodes->ledger);
    shd_store_close(nodes->store);
    shd_store_server_stop(nodes->server);
    shd_roll_fini(&nodes->roll);
    shd_free(nodes);
}

static sherd_status join(shd_nodes *nodes) {
    SHD_TRY(shd_roll_init(&nodes->roll, nodes->config->node_count));
    if (nodes->config->node >= nodes->config->node_count)
        return shd_fail(SHERD_ARGUMENT, "node %d of %d: they are numbered from 0", nodes->config->node,
                        nodes->config->node_count);
    SHD_TRY(serve(nodes));
    SHD_TRY(connect_store(nodes));
    SHD_TRY(take_place(nodes));
    SHD_TRY(open_ledger(nodes));
    nodes->joined = true;
    return SHERD_OK;
}

sherd_status shd_nodes_join(const shd_nodes_config *config, shd_nodes **out) {
    shd_nodes *nodes = shd_alloc(1, sizeof *nodes);
    if (!nodes) return shd_fail(SHERD_MEMORY, "no memory for other nodes");
    nodes->config = config;
    if (gethostname(nodes->host, sizeof nodes->host) < 0 || strpbrk(nodes->host, " \t\n"))
        snprintf(nodes->host, sizeof nodes->host, "unnamed");
    nodes->host[sizeof nodes->host - 1] = 0;
    sherd_status status = join(nodes);
    if (status != SHERD_OK) {
        release(nodes);
        return status;
    }
    *out = nodes;
    return SHERD_OK;
}

int32_t shd_nodes_self(const shd_nodes *nodes) { return nodes->self; }

/* --- telling ------------------------------------------------------------------------------------------------------ */

static void tell(shd_nodes *nodes, shd_message *message) {
    message->node = nodes->self;
    message->launcher = nodes->launcher;
    message->attempt = nodes->roll.attempt;
    snprintf(message->host, sizeof message->host, "%s", nodes->host);
    if (!nodes->broken[0] && shd_ledger_add(nodes->ledger, message) != SHERD_OK)
        snprintf(nodes->broken, sizeof nodes->broken, "%s", sherd_last_error());
}

void shd_nodes_tell_failed(shd_nodes *nodes, int32_t rank, int32_t pid, int exit_code, int signal) {
    if (nodes->done_told) return;
    nodes->done_told = true;
    tell(nodes, &(shd_message){
                    .kind = SHD_MESSAGE_FAILED, .rank = rank, .pid = pid, .exit_code = exit_code, .signal = signal});
}

void shd_nodes_tell_done(shd_nodes *nodes, bool stopped) {
    if (nodes->done_told) return;
    nodes->done_told = true;
    tell(nodes, &(shd_message){.kind = SHD_MESSAGE_DONE, .stopped = stopped});
}

void shd_nodes_tell_stop(shd_nodes *nodes, int signal) {
    if (nodes->stop_told || nodes->roll.stop_signal) return;
    nodes->stop_told = true;
    tell(nodes, &(shd_message){.kind = SHD_MESSAGE_STOP, .signal = signal});
}

int shd_nodes_stop_signal(const shd_nodes *nodes) { return nodes->roll.stop_signal; }

bool shd_nodes_stop_waits(shd_nodes *nodes) { return shd_ledger_stop_waits(nodes->ledger); }

/* --- meeting ------------------------------------------------------------------------------------------------------ */

/* Nodes that were told different things would wait for each other, or part. */
static sherd_status check_agreement(const shd_nodes *nodes) {
    const shd_message *first = &nodes->roll.hello[0];
    for (int32_t node = 1; node < nodes->roll.node_count; node++) {
        const shd_message *other = &nodes->roll.hello[node];
        if (other->max_restarts != first->max_restarts)
            return shd_fail(SHERD_CONFIG, "node %d (%s) has --max-restarts %d, and node 0 (%s) %d", node, other->host,
                            other->max_restarts, first->host, first->max_restarts);
    }
    return SHERD_OK;
}

sherd_status shd_nodes_check(const shd_nodes *nodes) {
    if (!nodes->lost) return SHERD_OK;
    return shd_fail(SHERD_PEER, "node 0 has taken this node for lost, as nothing was heard of it for %g s",
                    nodes->config->lost_after_s);
}

static sherd_status fail_meeting(shd_nodes *nodes) {
    const shd_message *verdict = &nodes->roll.verdict;
    return shd_fail(SHERD_PEER, "node %d (%s) has left the job", verdict->node, verdict->host);
}

static sherd_status await_all(shd_nodes *nodes) {
    double until_ms = shd_clock_ms() + nodes->config->join_timeout_s * 1e3;
    shd_roll *roll = &nodes->roll;
    while (roll->phase == SHD_ROLL_MEET) {
        shd_message message;
        if (shd_signals_stop_waits() || roll->stop_signal) return fail_stopped();
        SHD_TRY(check_talk(nodes));
        if (shd_clock_ms() >= until_ms) {
            char missing[128];
            shd_roll_missing(roll, missing, sizeof missing);
            return shd_fail(SHERD_TIMEOUT, "%d of %d nodes were there within %g s; missing: node %s", roll->here,
                            roll->node_count, nodes->config->join_timeout_s, missing);
        }
        if (!take_message(nodes, &message)) await_news();
        SHD_TRY(shd_nodes_check(nodes));
    }
    SHD_TRY(check_talk(nodes));
    return roll->phase == SHD_ROLL_RUN ? check_agreement(nodes) : fail_meeting(nodes);
}

sherd_status shd_nodes_meet(shd_nodes *nodes, const char *run_id, int port, shd_launch_place *place) {
    const shd_nodes_config *config = nodes->config;
    shd_roll *roll = &nodes->roll;
    if (nodes->attempted) shd_roll_next(roll);
    for (shd_message message; take_message(nodes, &message);) {}
    SHD_TRY(shd_nodes_check(nodes));
    /* A node that was told to stop has left by now: it is the stop that ended the job, and not that it has left. */
    if (roll->stop_signal) return fail_stopped();
    nodes->attempted = true;
    nodes->done_told = false;
    shd_message hello = {.kind = SHD_MESSAGE_HELLO,
                         .count = config->local_count,
                         .node_count = config->node_count,
                         .max_restarts = config->max_restarts,
                         .port = port,
                         .pid = (int32_t)getpid()};
    snprintf(hello.run_id, sizeof hello.run_id, "%s", run_id);
    snprintf(hello.address, sizeof hello.address, "%s", config->local_address ? config->local_address : config->host);
    tell(nodes, &hello);
    SHD_TRY(await_all(nodes));
    place->node = nodes->self;
    place->node_count = roll->node_count;
    place->attempt = roll->attempt;
    place->first_rank = shd_roll_first_rank(roll, nodes->self);
    place->world_size = shd_roll_first_rank(roll, roll->node_count);
    place->run_id = roll->hello[0].run_id;
    place->master_address = roll->hello[0].address;
    place->master_port = roll->hello[0].port;
    return SHERD_OK;
}

/* --- hearing ------------------------------------------------------------------------------------------------------ */

shd_news shd_nodes_hear(shd_nodes *nodes, int *signal) {
    shd_message message;
    while (nodes->roll.phase == SHD_ROLL_RUN && take_message(nodes, &message)) {}
    if (nodes->roll.stop_signal && !nodes->stop_heard) {
        nodes->stop_heard = true;
        *signal = nodes->roll.stop_signal;
        if (!nodes->stop_told) return SHD_NEWS_STOP;
    }
    const char *cause = shd_ledger_broken(nodes->ledger);
    if (cause && !nodes->broken[0]) snprintf(nodes->broken, sizeof nodes->broken, "%s", cause);
    return nodes->roll.phase == SHD_ROLL_OVER || nodes->broken[0] ? SHD_NEWS_OVER : SHD_NEWS_NONE;
}

void shd_nodes_get_verdict(const shd_nodes *nodes, shd_nodes_verdict *verdict) {
    const shd_roll *roll = &nodes->roll;
    *verdict = (shd_nodes_verdict){.failed = true, .message.kind = SHD_MESSAGE_LOST, .host = roll->hello[0].host};
    if (roll->phase != SHD_ROLL_OVER) {
        verdict->broken = nodes->broken;
        return;
    }
    verdict->failed = shd_roll_failed(roll);
    verdict->stopped = roll->stopped;
    verdict->message = roll->verdict;
    verdict->host = roll->hello[roll->verdict.node].host;
}

/* --- leaving ------------------------------------------------------------------------------------------------------ */

static bool is_alone(const shd_nodes *nodes) {
    for (int32_t node = 0; node < nodes->config->node_count; node++)
        if (nodes->there[node]) return false;
    return true;
}

/* The others still read what was decided, and one that is gone may have been the cause of it: it is called lost within this
 * time. Those that are still there then have heard all, and end their ranks without us. */
static void wait_for_others(shd_nodes *nodes) {
    double silence_s = nodes->config->lost_after_s + 2 * nodes->config->beat_s;
    double until_ms = shd_clock_ms() + silence_s * 1e3 + GOODBYE_MS;
    shd_message message;
    while (!is_alone(nodes) && shd_clock_ms() < until_ms && !shd_ledger_broken(nodes->ledger) &&
           !shd_signals_stop_waits())
        if (!take_message(nodes, &message)) await_news();
}

void shd_nodes_leave(shd_nodes *nodes) {
    if (!nodes) return;
    if (!nodes->lost) tell(nodes, &(shd_message){.kind = SHD_MESSAGE_BYE});
    nodes->leaving = true;
    if (nodes->serves) wait_for_others(nodes);
    release(nodes);
}
