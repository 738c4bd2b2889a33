#include "layout/energy/ladder.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

static struct erg_layout_rung rung_at(const struct erg_layout_energy_request *request,
                                      const struct erg_layout_work *work, int clock_mhz)
{
    struct erg_layout_rung rung = {.clock_mhz = clock_mhz};
    erg_layout_costs_at(&rung.costs, request, work, clock_mhz);
    return rung;
}

static int tail_clock(const struct erg_gpu *gpu)
{
    int clock = gpu->search_max_mhz;
    while (clock - gpu->search_step_mhz >= gpu->search_min_mhz &&
           (clock - gpu->search_step_mhz) * gpu->memory_issue >= gpu->clock_max_mhz)
        clock -= gpu->search_step_mhz;
    return clock;
}

void erg_layout_ladder_init(struct erg_layout_ladder *ladder,
                            const struct erg_layout_energy_request *request,
                            const struct erg_layout *layout, size_t clocks)
{
    const struct erg_gpu *gpu = request->gpu;
    long gpus = erg_layout_gpus(layout);
    struct erg_layout_work work;
    *ladder = (struct erg_layout_ladder){.request = request};
    erg_time_parts_init(&ladder->parts, &request->time, layout->tensor, layout->context,
                        layout->microbatch, layout->sequence, gpus);
    erg_layout_work_init(&work, request, &ladder->parts, layout->tensor, layout->context,
                         layout->microbatch, layout->sequence, gpus);
    struct erg_layout_rung highest = rung_at(request, &work, gpu->search_max_mhz);
    double reached = fmax(highest.costs.passes[ERG_PASS_FORWARD].clock_mhz,
                          highest.costs.passes[ERG_PASS_BACKWARD].clock_mhz);
    int steps = (int)(fmax(0, reached - gpu->search_min_mhz) / gpu->search_step_mhz);
    int wanted = clocks && (int)clocks < steps ? (int)clocks : steps;
    ladder->rungs = erg_xcalloc((size_t)wanted + 2, sizeof *ladder->rungs);
    ladder->rungs[ladder->count++] = highest;
    for (int i = wanted; i >= 0; i--) {
        int clock = gpu->search_min_mhz + (wanted ? steps * i / wanted : 0) * gpu->search_step_mhz;
        if (clock < gpu->search_max_mhz)
            ladder->rungs[ladder->count++] = rung_at(request, &work, clock);
    }
    ladder->tail = rung_at(request, &work, tail_clock(gpu));
}

void erg_layout_ladder_release(struct erg_layout_ladder *ladder)
{
    free(ladder->rungs);
    *ladder = (struct erg_layout_ladder){0};
}

struct erg_pass_cost erg_layout_ladder_cost(const struct erg_layout_ladder *ladder,
                                            const struct erg_layout *layout, long stage, long chunk,
                                            enum erg_direction direction, size_t rung)
{
    const struct erg_layout_energy_request *request = ladder->request;
    bool head = stage + 1 == layout->pipeline && chunk + 1 == layout->virtual_stages;
    return erg_layout_chunk_cost(
        request, &ladder->parts, &ladder->rungs[rung].costs,
        erg_layout_chunk_layers(layout, request->time.model->layers, stage, chunk),
        direction == ERG_BACKWARD, head, erg_layout_recompute(layout, stage),
        erg_layout_offload(layout, stage));
}

struct erg_time_place erg_layout_ladder_place(const struct erg_layout_ladder *ladder,
                                              const struct erg_layout *layout)
{
    const struct erg_time_request *time = &ladder->request->time;
    struct erg_time_place place;
    erg_time_place_init(&place, time, &ladder->parts, layout,
                        erg_time_group_bandwidth(time, layout->tensor,
                                                 layout->context * layout->data,
                                                 erg_layout_gpus(layout)));
    return place;
}

void erg_layout_pipeline_tail(struct erg_layout_tail *tail,
                              const struct erg_layout_energy_place *places, size_t count,
                              const struct erg_layout *layout)
{
    double boundaries = (double)(layout->pipeline * layout->virtual_stages - 1);
    double replicas = (double)(erg_layout_gpus(layout) / layout->pipeline), message_j = 0;
    for (size_t i = 0; i < count; i++)
        message_j = fmax(message_j, places[i].costs->message_j);
    double messages_j = 2 * boundaries * (double)layout->microbatches * message_j * replicas;
    erg_layout_tail(tail, places, count, layout);
    tail->items[ERG_LAYOUT_ENERGY_WIRES] += messages_j;
    tail->total_j += messages_j;
}

double erg_layout_ladder_time(const struct erg_layout_ladder *ladder,
                              const struct erg_layout *layout, double uneven_s)
{
    const struct erg_time_place time = erg_layout_ladder_place(ladder, layout);
    const struct erg_layout_energy_place place = {ladder->request, &time, &ladder->rungs[0].costs};
    struct erg_layout_energy closed;
    erg_layout_energy_compose(&closed, &place, 1, layout, uneven_s);
    return closed.time_s;
}

/* ---- all stages ---- */

double erg_layout_climb_waiting_w(const struct erg_layout_climb *climb,
                                  const struct erg_layout *layout)
{
    const double first_w = climb->ladders[0].request->gpu->blocking_power_w;
    double waiting_w = first_w;
    for (size_t i = 0; i < climb->count; i++) {
        const struct erg_layout_ladder *ladder = &climb->ladders[i];
        double stages = (double)(climb->places[i].end - climb->places[i].first);
        waiting_w +=
            (ladder->request->gpu->blocking_power_w - first_w) * stages / (double)layout->pipeline;
    }
    return waiting_w;
}

struct erg_pipeline erg_layout_climb_pipeline(const struct erg_layout_climb *climb,
                                              const struct erg_layout *layout,
                                              double *hop_latency_s)
{
    erg_time_hops(hop_latency_s, climb->places, climb->count, layout);
    return (struct erg_pipeline){
        .stages = (size_t)layout->pipeline,
        .microbatches = (size_t)layout->microbatches,
        .chunks = (size_t)layout->virtual_stages,
        .hop_latency_s = hop_latency_s,
        .blocking_power_w = erg_layout_climb_waiting_w(climb, layout),
    };
}

void erg_layout_climb_tables(struct erg_frontier *tables, const struct erg_layout_climb *climb,
                             const struct erg_layout *layout)
{
    const double mean_w = erg_layout_climb_waiting_w(climb, layout);
    for (long i = 0; i < 2 * layout->pipeline * layout->virtual_stages; i++) {
        long stage = i / 2 % layout->pipeline, chunk = i / 2 / layout->pipeline;
        const struct erg_layout_ladder *ladder =
            &climb->ladders[erg_layout_climb_place(climb, stage)];
        double beyond_w = mean_w - ladder->request->gpu->blocking_power_w;
        for (size_t k = 0; k < ladder->count; k++) {
            struct erg_pass_cost cost =
                erg_layout_ladder_cost(ladder, layout, stage, chunk, i % 2, k);
            erg_frontier_add(&tables[i], cost.time_s, cost.total_j + beyond_w * cost.time_s,
                             ladder->rungs[k].clock_mhz);
        }
    }
}

void erg_layout_climb_tail(struct erg_layout_tail *tail, const struct erg_layout_climb *climb,
                           const struct erg_layout *layout)
{
    struct erg_layout_energy_place places[ERG_LAYOUT_MOST_KINDS];
    for (size_t i = 0; i < climb->count; i++)
        places[i] = (struct erg_layout_energy_place){climb->ladders[i].request, &climb->places[i],
                                                     &climb->ladders[i].tail.costs};
    erg_layout_pipeline_tail(tail, places, climb->count, layout);
}

double erg_layout_climb_time(const struct erg_layout_climb *climb, const struct erg_layout *layout,
                             bool lowest)
{
    double *hops_s = erg_xcalloc((size_t)layout->pipeline, sizeof *hops_s);
    struct erg_pipeline pipeline = erg_layout_climb_pipeline(climb, layout, hops_s);
    size_t tables = 2 * pipeline.stages * pipeline.chunks;
    struct erg_point *points = erg_xcalloc(tables, sizeof *points);
    struct erg_frontier *only = erg_xcalloc(tables, sizeof *only);
    for (size_t i = 0; i < tables; i++) {
        long stage = (long)(i / 2 % pipeline.stages), chunk = (long)(i / 2 / pipeline.stages);
        const struct erg_layout_ladder *ladder =
            &climb->ladders[erg_layout_climb_place(climb, stage)];
        size_t rung = lowest ? ladder->count - 1 : 0;
        points[i].time_s = erg_layout_ladder_cost(ladder, layout, stage, chunk, i % 2, rung).time_s;
        only[i] = (struct erg_frontier){.points = &points[i], .count = 1};
    }
    struct erg_schedule schedule;
    double time_s = 0, energy_j;
    if (erg_schedule_init(&schedule, &pipeline, NULL) == 0) {
        uint32_t *option = erg_xcalloc(schedule.count, sizeof *option);
        erg_iteration_evaluate(&schedule, only, option, NULL, &time_s, &energy_j);
        free(option);
        erg_schedule_release(&schedule);
    }
    free(only);
    free(points);
    free(hops_s);
    return time_s;
}
