/* Exchanges of a mixture of experts, and the cost of its parameters at the end of an iteration. */
#include "layout/time/time.h"

#include <math.h>

long erg_time_expert_members(const struct erg_time_request *request,
                             const struct erg_layout *layout, long gpus)
{
    const long expert = erg_layout_experts(layout);
    const long fewest =
        erg_time_fewest_members(request->machine->node_gpus, layout->tensor, expert, gpus);
    return fewest ? fewest : expert;
}

/* A rank sends an equal share of its rows to each rank of the group. */
static double all_to_all_s(const struct erg_time_request *request, const struct erg_layout *layout,
                           double wire_bytes, long gpus)
{
    const double ranks = (double)erg_layout_experts(layout);
    const double inside = (double)erg_time_expert_members(request, layout, gpus);
    const double to_each = wire_bytes / (ranks - 1);
    const long size = erg_layout_experts(layout);
    const double link_s =
        to_each * (inside - 1) / erg_time_link_rate(request, layout->tensor, size);
    if (inside == ranks)
        return link_s;
    return fmax(link_s, to_each * (ranks - inside) / erg_time_message_rate(request, true, gpus));
}

double erg_time_expert_exchange(const struct erg_time_request *request,
                                const struct erg_layout *layout, const struct erg_comm *comm,
                                long gpus)
{
    if (comm->kind == ERG_COMM_ALLTOALL)
        return all_to_all_s(request, layout, comm->wire_bytes, gpus);
    return comm->wire_bytes / erg_time_group_bandwidth(request, 1, layout->tensor, gpus);
}

long erg_time_expert_replicas(const struct erg_layout *layout)
{
    return layout->data / erg_layout_experts(layout);
}

double erg_time_expert_gradient_bytes(const struct erg_engine *engine,
                                      const struct erg_layout *layout)
{
    const double replicas = (double)erg_time_expert_replicas(layout);
    return engine->gradient_bytes * (replicas - 1) / replicas;
}

double erg_time_expert_optimizer_bytes(const struct erg_engine *engine,
                                       const struct erg_layout *layout)
{
    return engine->optimizer_bytes +
           engine->optimizer_sharded_bytes / (double)erg_time_expert_replicas(layout);
}
