/* The ledger of node 0; what other nodes do is done by hand. */
#include "runtime/launch/ledger.h"

#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <sherd/status.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

typedef struct rig {
    shd_store_server *server;
    shd_store_config store;
    shd_store *writer, *other; /* other: what the other nodes use */
    shd_ledger *ledger;
} rig;

static void open_all(rig *made, int32_t nodes) {
    shd_store_server_config server = {.job = "test"};
    sigset_t news;
    sigemptyset(&news);
    sigaddset(&news, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &news, NULL);
    cr_assert_eq(shd_store_server_start(&server, &made->server), SHERD_OK);
    made->store = (shd_store_config){
        .port = shd_store_server_port(made->server), .job = "test", .connect_timeout_s = 10, .call_timeout_s = 10};
    cr_assert_eq(shd_store_connect(&made->store, &made->writer), SHERD_OK);
    cr_assert_eq(shd_store_connect(&made->store, &made->other), SHERD_OK);
    const shd_ledger_config config = {.store = &made->store,
                                      .writer = made->writer,
                                      .node_count = nodes,
                                      .watches = true,
                                      .beat_s = 0.1,
                                      .lost_after_s = 1};
    cr_assert_eq(shd_ledger_open(&config, &made->ledger), SHERD_OK);
}

static void close_all(rig *made) {
    shd_ledger_close(made->ledger);
    shd_store_close(made->writer);
    shd_store_close(made->other);
    shd_store_server_stop(made->server);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

/* The next message, within `ms`. */
static bool comes(rig *made, int ms, shd_message *message) {
    for (; ms >= 0; ms -= 5) {
        if (shd_ledger_take(made->ledger, message)) return true;
        usleep(5000);
    }
    return false;
}

static void beat(rig *made, int32_t node) {
    char key[SHD_LEDGER_KEY_BYTES];
    shd_ledger_beat_key(key, node);
    cr_assert_eq(shd_store_add(made->other, key, 1, NULL), SHERD_OK);
}

/* Node 1 takes a number for a message, and dies before the message is there. What is said after it is heard all the same, as
 * is the node's loss, which fills the gap. */
Test(ledger, a_node_that_dies_while_it_writes_keeps_no_message_from_being_read, .timeout = 60) {
    rig made = {0};
    shd_message message;
    open_all(&made, 2);
    beat(&made, 1);
    cr_assert_eq(shd_store_add(made.other, "messages", 1, NULL), SHERD_OK);
    cr_assert_eq(shd_ledger_add(made.ledger, &(shd_message){.kind = SHD_MESSAGE_STOP, .signal = 15}), SHERD_OK);
    cr_assert(comes(&made, 10000, &message), "nothing is heard any more");
    cr_assert(message.kind == SHD_MESSAGE_LOST && message.node == 1);
    cr_assert(comes(&made, 10000, &message));
    cr_assert(message.kind == SHD_MESSAGE_STOP && message.signal == 15);
    close_all(&made);
}

/* It was only slow: it finds its place taken, and what it says comes behind. */
Test(ledger, a_gap_that_was_filled_is_not_written_over, .timeout = 60) {
    rig made = {0};
    shd_message message, done = {.kind = SHD_MESSAGE_DONE, .node = 1};
    open_all(&made, 2);
    beat(&made, 1);
    cr_assert(comes(&made, 10000, &message));
    cr_assert(message.kind == SHD_MESSAGE_LOST && message.node == 1);
    cr_assert_eq(shd_ledger_add(made.ledger, &done), SHERD_OK); /* its number is that of the loss */
    cr_assert(comes(&made, 10000, &message));
    cr_assert(message.kind == SHD_MESSAGE_DONE);
    close_all(&made);
}
