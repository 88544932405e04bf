#include "runtime/launch/cores.h"

int32_t shd_cores_count_nodes(const shd_cores *cores, shd_core_span of) {
    int32_t count = of.first < of.end;
    for (int32_t i = of.first + 1; i < of.end; i++) count += cores->nodes[i] != cores->nodes[i - 1];
    return count;
}

static shd_core_span even_share(shd_core_span of, int32_t rank_count, int32_t rank) {
    int64_t width = of.end - of.first;
    return (shd_core_span){.first = of.first + (int32_t)(width * rank / rank_count),
                           .end = of.first + (int32_t)(width * (rank + 1) / rank_count)};
}

/* How many ranks a node of `cores` cores gets, of those that are left for it and the `rest` cores after it: its share,
 * and enough for every node that follows to have one. */
static int32_t ranks_of_node(int32_t cores, int32_t rest, int32_t nodes_after, int32_t ranks) {
    int32_t share = (int32_t)(((int64_t)ranks * cores + (cores + rest) / 2) / (cores + rest));
    if (share > ranks - nodes_after) share = ranks - nodes_after;
    if (share < 1) share = 1;
    if (share > cores) share = cores;
    /* What follows can take no more ranks than it has cores. */
    return ranks - share > rest ? ranks - rest : share;
}

/* What the rank, one of rank_count in `of`, gets of it. */
static shd_core_span share_of(const shd_cores *cores, shd_core_span of, int32_t rank_count, int32_t rank) {
    int32_t nodes = shd_cores_count_nodes(cores, of);
    if (rank_count < nodes) return even_share(of, rank_count, rank);
    for (;;) {
        shd_core_span node = {of.first, of.first + 1};
        while (node.end < of.end && cores->nodes[node.end] == cores->nodes[node.first]) node.end++;
        int32_t here = ranks_of_node(node.end - node.first, of.end - node.end, --nodes, rank_count);
        if (rank < here) return even_share(node, here, rank);
        rank -= here;
        rank_count -= here;
        of.first = node.end;
    }
}

void shd_cores_divide(const shd_cores *cores, int32_t rank_count, shd_core_span *shares) {
    for (int32_t rank = 0; rank < rank_count; rank++)
        shares[rank] = share_of(cores, (shd_core_span){0, cores->count}, rank_count, rank);
}

bool shd_cores_divide_near(const shd_cores *cores, const shd_core_span *near, int32_t rank_count,
                           shd_core_span *shares) {
    for (int32_t rank = 0; rank < rank_count; rank++) {
        shd_core_span place = near[rank];
        int32_t ranks_here = 0, before = 0;
        for (int32_t other = 0; other < rank_count; other++) {
            bool is_same = near[other].first == place.first && near[other].end == place.end;
            if (!is_same && near[other].first < place.end && place.first < near[other].end) return false;
            ranks_here += is_same;
            before += is_same && other < rank;
        }
        if (place.end - place.first < ranks_here) return false;
        shares[rank] = share_of(cores, place, ranks_here, before);
    }
    return true;
}
