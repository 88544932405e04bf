/* Several launchers that make one job, each in a process of its own on this host. */
#include "runtime/launch/launch.h"
#include "tests/launch/job_folder.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_NODES = 4, LOST = 80, REFUSED = 91 };

static shd_nodes_config common;

/* A port that is free now. */
static int find_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, length), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static void prepare(void) {
    signal(SIGTERM, SIG_DFL);
    make_folder();
    common = (shd_nodes_config)SHD_NODES_CONFIG_INIT;
    common.host = "127.0.0.1";
    common.port = find_port();
    common.job = "test";
    common.join_timeout_s = 60;
    common.beat_s = 0.1;
    common.lost_after_s = 3;
    memset(common.secret.bytes, 7, sizeof common.secret.bytes);
}

TestSuite(nodes, .init = prepare, .fini = remove_folder, .timeout = 120);

/* The launcher of one node, which exits with what a user sees: the code of the rank that failed first, 128 + a signal, LOST
 * + the number of a lost node. */
static pid_t start_node(const shd_nodes_config *nodes, int32_t ranks, int32_t restarts, const char *script) {
    pid_t pid = fork();
    if (pid) return pid;
    shd_launch launch = SHD_LAUNCH_INIT;
    launch.argv = (char *const[4]){(char *)"sh", (char *)"-c", (char *)script, NULL};
    launch.rank_count = ranks;
    launch.max_restarts = restarts;
    launch.restart_delay_s = 0;
    launch.grace_s = 0.5;
    launch.nodes = nodes;
    shd_launch_report report;
    if (shd_launch_run(&launch, &report) != SHERD_OK) _exit(REFUSED);
    if (report.lost_node >= 0) _exit(LOST + report.lost_node);
    if (report.failed_rank >= 0) _exit(report.signal ? 128 + report.signal : report.exit_code);
    _exit(report.stopped ? 128 + report.stop_signal : 0);
}

static int wait_exit(pid_t pid) {
    int state;
    cr_assert_eq(waitpid(pid, &state, 0), pid);
    return (state & 0x7f) == 0 ? (state >> 8) & 0xff : -(state & 0x7f);
}

/* Launchers of nodes 0 to count − 1, all with `script`. */
static void start_all(pid_t pids[MOST_NODES], int32_t count, int32_t restarts, const char *script) {
    common.node_count = count;
    for (int32_t node = 0; node < count; node++) {
        shd_nodes_config config = common;
        config.node = node;
        pids[node] = start_node(&config, node + 1, restarts, script);
    }
}

static void need_all(const pid_t pids[MOST_NODES], int32_t count, int code) {
    for (int32_t node = 0; node < count; node++) {
        int got = wait_exit(pids[node]);
        cr_assert_eq(got, code, "node %d: %d", node, got);
    }
}

Test(nodes, agree_on_ranks_in_the_order_of_nodes) {
    pid_t pids[MOST_NODES];
    start_all(pids, 3, 0,
              "echo $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR >$DIR/$RANK;"
              "echo $MASTER_PORT $TORCHELASTIC_RUN_ID >$DIR/id$RANK");
    need_all(pids, 3, 0);
    static const char *const expected[] = {"6 0 1 0 3 127.0.0.1\n", "6 0 2 1 3 127.0.0.1\n", "6 1 2 1 3 127.0.0.1\n",
                                           "6 0 3 2 3 127.0.0.1\n", "6 1 3 2 3 127.0.0.1\n", "6 2 3 2 3 127.0.0.1\n"};
    char first[128], name[16];
    snprintf(first, sizeof first, "%s", written("id0"));
    for (int rank = 0; rank < 6; rank++) {
        snprintf(name, sizeof name, "%d", rank);
        cr_assert_str_eq(written(name), expected[rank]);
        snprintf(name, sizeof name, "id%d", rank);
        cr_assert_str_eq(written(name), first);
    }
}

Test(nodes, end_with_the_first_failure_of_any_of_them) {
    pid_t pids[MOST_NODES];
    start_all(pids, 3, 0, "[ $RANK = 4 ] && sleep 0.1 && exit 77; sleep 60");
    need_all(pids, 3, 77);
}

Test(nodes, start_again_together) {
    pid_t pids[MOST_NODES];
    start_all(pids, 2, 2,
              "echo $TORCHELASTIC_RESTART_COUNT >>$DIR/attempts$RANK; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0;"
              "[ $RANK = 1 ] && sleep 0.3 && exit 5; sleep 60");
    need_all(pids, 2, 0);
    cr_assert_str_eq(written("attempts0"), "0\n1\n2\n");
    cr_assert_str_eq(written("attempts2"), "0\n1\n2\n");
}

Test(nodes, name_one_that_is_lost) {
    pid_t pids[MOST_NODES];
    start_all(pids, 3, 0, "echo up >$DIR/up$RANK; sleep 60");
    wait_written("up0");
    wait_written("up1");
    wait_written("up3");
    kill(pids[1], SIGKILL);
    cr_assert_eq(wait_exit(pids[1]), -SIGKILL);
    cr_assert_eq(wait_exit(pids[0]), LOST + 1);
    cr_assert_eq(wait_exit(pids[2]), LOST + 1);
}

Test(nodes, notice_the_end_of_the_first) {
    pid_t pids[MOST_NODES];
    start_all(pids, 2, 0, "echo up >$DIR/up$RANK; sleep 60");
    wait_written("up0");
    wait_written("up1");
    kill(pids[0], SIGKILL);
    cr_assert_eq(wait_exit(pids[0]), -SIGKILL);
    cr_assert_eq(wait_exit(pids[1]), LOST + 0);
}

Test(nodes, stop_together) {
    pid_t pids[MOST_NODES];
    start_all(pids, 2, 3, "echo up >$DIR/up$RANK; sleep 60");
    wait_written("up0");
    wait_written("up1");
    wait_written("up2");
    kill(pids[1], SIGTERM);
    need_all(pids, 2, 128 + SIGTERM);
}

Test(nodes, with_another_secret_are_refused) {
    common.node_count = 2;
    shd_nodes_config first = common, second = common;
    first.node = 0;
    second.node = 1;
    second.secret.bytes[31] ^= 1;
    first.join_timeout_s = 2;
    pid_t server = start_node(&first, 1, 0, "exit 0");
    pid_t stranger = start_node(&second, 1, 0, "exit 0");
    cr_assert_eq(wait_exit(stranger), REFUSED);
    cr_assert_eq(wait_exit(server), REFUSED, "nobody else came");
}

Test(nodes, that_were_told_different_things_are_refused) {
    common.node_count = 2;
    shd_nodes_config first = common, second = common;
    first.node = 0;
    second.node = 1;
    pid_t server = start_node(&first, 1, 0, "exit 0"), other = start_node(&second, 1, 4, "exit 0");
    cr_assert_eq(wait_exit(server), REFUSED);
    cr_assert_eq(wait_exit(other), REFUSED);
}
