/* Rates, powers and energies of single things. */
#include "probe/probe.h"
#include "probe/probe_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double rest_power(const struct erg_probe_rows *rows, int gpus, const struct erg_gpu *gpu)
{
    for (size_t i = 0; i < rows->count; i++)
        if (rows->items[i].gpus == gpus && !strcmp(rows->items[i].item, PROBE_REST))
            return rows->items[i].energy_j;
    return gpu->static_power_w;
}

/* The part of a collective's row without the product before it, which runs at another clock when
 * alone. */
static double collective_time(const struct erg_probe_program *program,
                              const struct erg_probe_rows *rows, const struct erg_probe_row *row)
{
    const struct erg_probe_row *product =
        erg_probe_rows_find(rows, program->name, program->gpus, PROBE_PRODUCT);
    return product ? row->time_s -
                         product->time_s / PROBE_PRODUCTS * product->clock_mhz / row->clock_mhz
                   : NAN;
}

static struct erg_probe_ceiling ceiling_of(const struct erg_probe_program *program,
                                           const struct erg_probe_item *item,
                                           const struct erg_probe_row *row,
                                           const struct erg_probe_rows *rows,
                                           const struct erg_gpu *gpu)
{
    double above_j = row->energy_j - rest_power(rows, program->gpus, gpu) * row->time_s;
    double times = (double)(item->step_count ? item->steps->task.op_count : 0);
    double peak = gpu->flops_per_sm_clock * gpu->sms * row->clock_mhz * 1e6;
    struct erg_probe_ceiling ceiling = {
        .shape = program->name,
        .name = item->name,
        .family = item->family,
        .power_w = row->energy_j / row->time_s,
        .unit_j = NAN,
        .clock_mhz = row->clock_mhz,
    };
    switch (item->family) {
    case ERG_PROBE_PRODUCT:
    case ERG_PROBE_ATTENTION:
        ceiling.amount = item->steps->task.ops->flops;
        ceiling.rate = times * ceiling.amount / row->time_s;
        ceiling.share = ceiling.rate / peak;
        ceiling.unit_j = above_j / (times * ceiling.amount);
        break;
    case ERG_PROBE_MEMORY:
        ceiling.amount = item->steps->task.ops->bytes;
        ceiling.rate = times * ceiling.amount / row->time_s;
        ceiling.share = ceiling.rate / gpu->memory_bandwidth;
        ceiling.unit_j = above_j / (times * ceiling.amount);
        break;
    case ERG_PROBE_COLLECTIVE:
        ceiling.amount = item->steps->task.comm.wire_bytes;
        ceiling.rate = ceiling.amount / collective_time(program, rows, row);
        ceiling.share = ceiling.rate / gpu->link_bandwidth;
        break;
    case ERG_PROBE_PARTITION:
    case ERG_PROBE_LAYER:
    case ERG_PROBE_BLOCKED:
    case ERG_PROBE_REST:
        break;
    }
    return ceiling;
}

void erg_probe_ceilings_add(struct erg_probe_ceilings *ceilings,
                            const struct erg_probe_program *program,
                            const struct erg_probe_rows *rows, const struct erg_gpu *gpu)
{
    for (size_t i = 0; i < program->count; i++) {
        const struct erg_probe_item *item = &program->items[i];
        const struct erg_probe_row *row =
            erg_probe_rows_find(rows, program->name, program->gpus, item->name);
        if (row && item->family != ERG_PROBE_PARTITION && item->family != ERG_PROBE_LAYER)
            ERG_PUSH(ceilings, items, ceiling_of(program, item, row, rows, gpu));
    }
}

void erg_probe_ceilings_release(struct erg_probe_ceilings *ceilings)
{
    free(ceilings->items);
    *ceilings = (struct erg_probe_ceilings){0};
}
