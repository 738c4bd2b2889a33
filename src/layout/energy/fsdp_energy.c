/* Energy of layouts with FSDP: gathers and scatters of weights, and waits for them. */
#include "layout/energy/layout_energy.h"

#include "device/emulated/power.h"

#include <math.h>

void erg_layout_work_of(struct erg_layout_work *work,
                        const struct erg_layout_energy_request *request,
                        const struct erg_time_parts *parts, const struct erg_layout *layout,
                        long gpus)
{
    const struct erg_time_shards *shards = &parts->shards;
    struct erg_layout_network *network = &work->network;
    erg_layout_work_unsharded(work, request, parts, layout, gpus);
    if (!erg_layout_is_sharded(layout))
        return;
    const double gathered = erg_time_shard_bytes(layout, shards->layer_parameters);
    *network = (struct erg_layout_network){
        .time_s = {shards->layer_gather_s, shards->layer_gather_s + shards->layer_scatter_s},
        .bytes = {gathered, gathered + erg_time_shard_bytes(layout, parts->layer_parameters)},
        .ends_bytes =
            2 * erg_time_shard_bytes(layout,
                                     shards->embedding_parameters + shards->head_parameters) +
            erg_time_shard_bytes(layout, parts->embedding_parameters + parts->head_parameters),
    };
    const double compute_s[2] = {parts->forward_s - parts->forward[ERG_TIME_FSDP],
                                 parts->backward_s - parts->backward[ERG_TIME_FSDP]};
    for (int way = 0; way < 2; way++) {
        struct erg_pass_work *pass = &work->passes[way ? ERG_PASS_BACKWARD : ERG_PASS_FORWARD];
        network->beside_bytes[way] =
            network->bytes[way] * fmin(1, compute_s[way] / network->time_s[way]);
        pass->wire_bytes += network->beside_bytes[way];
        erg_layout_find_clocks(pass, request);
    }
}

void erg_layout_network_costs(struct erg_layout_costs *costs, const struct erg_gpu *gpu,
                              const struct erg_layout_work *work, double clock_mhz)
{
    const double voltage = erg_gpu_voltage(gpu, clock_mhz);
    const double blocks_w = voltage * voltage * gpu->spin_power_w * clock_mhz / gpu->clock_max_mhz *
                            gpu->library_blocks;
    costs->network = work->network;
    costs->blocking_w = gpu->blocking_power_w;
    for (int way = 0; way < 2; way++)
        costs->network_active_j[way] = blocks_w * work->network.time_s[way];
}

void erg_layout_add_network(struct erg_pass_cost *sum, const struct erg_layout_costs *costs,
                            double layers, bool backward, bool again)
{
    const struct erg_layout_network *network = &costs->network;
    const double network_s = layers * network->time_s[backward];
    if (!(network_s > 0))
        return;
    const double waiting_bytes = network->bytes[backward] - network->beside_bytes[backward];
    const double wires_j = layers * costs->wire_byte_j * waiting_bytes;
    const double again_j = again ? layers * costs->wire_byte_j * network->beside_bytes[0] : 0;
    const double active_j = layers * costs->network_active_j[backward];
    const double wait_s = network_s > sum->time_s ? network_s - sum->time_s : 0;
    sum->items[ERG_LAYOUT_ENERGY_WIRES] += wires_j;
    sum->items[ERG_LAYOUT_ENERGY_RECOMPUTE] -= again_j;
    sum->items[ERG_LAYOUT_ENERGY_ACTIVE] += active_j;
    sum->wait_s += wait_s;
    sum->time_s += wait_s;
    sum->total_j += wires_j - again_j + active_j + costs->blocking_w * wait_s;
}
