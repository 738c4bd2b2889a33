/* Groups of GPUs, and the time of collectives over links with known rates. */
#include "layout/grid/grid.h"

#include <math.h>

struct erg_comm_group erg_comm_group_of(long first, long stride, long size, long gpus_per_node)
{
    struct erg_comm_group group = {size, 0};
    long last = -1;
    for (long i = 0; i < size; i++) {
        long node = (first + i * stride) / gpus_per_node;
        group.nodes += node != last;
        last = node;
    }
    return group;
}

static int time_of_links(const void *context, const struct erg_allocation *allocation,
                         enum erg_grid_collective op, struct erg_comm_group group, double elements,
                         double *seconds, struct erg_error *err)
{
    const struct erg_grid_links *links = context;
    const double gpus_of_node = floor((double)group.size / (double)group.nodes);
    double rate =
        group.nodes == 1 ? links->node_bandwidth : links->network_bandwidth * gpus_of_node;
    double sent = (double)(group.size - 1) / (double)group.size; /* of each GPU's share */
    (void)allocation;
    (void)err;
    if (op == ERG_SEND)
        sent = 1;
    else if (op == ERG_ALL_REDUCE)
        sent *= 2;
    *seconds += links->latency_s + sent * elements * sizeof(float) / rate;
    return 0;
}

struct erg_grid_network erg_grid_network_of(const struct erg_grid_links *links)
{
    return (struct erg_grid_network){time_of_links, links};
}
