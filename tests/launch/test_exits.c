#include "runtime/launch/exits.h"

#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <sherd/status.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 6 };

/* Each ends only when the one before has, and nobody looks before all have: the order is theirs, not that of the ranks. */
Test(exits, come_in_the_order_in_which_ranks_end, .timeout = 30) {
    static const int32_t order[RANKS] = {4, 1, 5, 0, 3, 2};
    for (int round = 0; round < 20; round++) {
        shd_exits exits;
        pid_t pids[RANKS];
        cr_assert_eq(shd_exits_init(&exits, RANKS), SHERD_OK);
        cr_assert_eq(shd_exits_next(&exits), -1);
        for (int32_t rank = 0; rank < RANKS; rank++) {
            pids[rank] = fork();
            if (!pids[rank])
                for (;;) pause();
            shd_exits_add(&exits, rank, pids[rank]);
        }
        cr_assert_eq(exits.unqueued, 0, "this kernel has no descriptors of processes");
        cr_assert_eq(shd_exits_next(&exits), -1);
        for (int i = 0; i < RANKS; i++) {
            siginfo_t info;
            kill(pids[order[i]], SIGKILL);
            waitid(P_PID, (id_t)pids[order[i]], &info, WEXITED | WNOWAIT);
        }
        for (int i = 0; i < RANKS; i++) cr_assert_eq(shd_exits_next(&exits), order[i], "number %d", i);
        cr_assert_eq(shd_exits_next(&exits), -1, "each comes once");
        shd_exits_fini(&exits);
        for (int32_t rank = 0; rank < RANKS; rank++) waitpid(pids[rank], NULL, 0);
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}
