/* Energy of layouts with FSDP: what gathers and scatters of weights draw, and what waits for them.
 */
#include "layout/energy/layout_energy.h"

#include "device/emulated/power.h"

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
                            double layers, bool backward)
{
    const double network_s = layers * costs->network.time_s[backward];
    if (!(network_s > 0))
        return;
    const double wires_j = layers * costs->wire_byte_j * costs->network.bytes[backward];
    const double active_j = layers * costs->network_active_j[backward];
    const double wait_s = network_s > sum->time_s ? network_s - sum->time_s : 0;
    sum->items[ERG_LAYOUT_ENERGY_WIRES] += wires_j;
    sum->items[ERG_LAYOUT_ENERGY_ACTIVE] += active_j;
    sum->wait_s += wait_s;
    sum->time_s += wait_s;
    sum->total_j += wires_j + active_j + costs->blocking_w * wait_s;
}
