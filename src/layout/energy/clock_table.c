/* Costs of the passes of layouts at every clock, and the pipelines made of these passes. */
#include "layout/energy/clock_table.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

static struct erg_clock_row row_at(const struct erg_layout_energy_request *request,
                                   const struct erg_layout_work *work, int clock_mhz)
{
    struct erg_clock_row row = {.clock_mhz = clock_mhz};
    erg_layout_costs_at(&row.costs, request, work, clock_mhz);
    return row;
}

static int tail_clock(const struct erg_gpu *gpu)
{
    int clock = gpu->search_max_mhz;
    while (clock - gpu->search_step_mhz >= gpu->search_min_mhz &&
           (clock - gpu->search_step_mhz) * gpu->memory_issue >= gpu->clock_max_mhz)
        clock -= gpu->search_step_mhz;
    return clock;
}

void erg_clock_table_init(struct erg_clock_table *table,
                          const struct erg_layout_energy_request *request,
                          const struct erg_layout *layout, size_t clocks)
{
    const struct erg_gpu *gpu = request->gpu;
    long gpus = erg_layout_gpus(layout);
    struct erg_layout_work work;
    *table = (struct erg_clock_table){.request = request};
    erg_time_parts_of(&table->parts, &request->time, layout, gpus);
    erg_layout_work_of(&work, request, &table->parts, layout, gpus);
    struct erg_clock_row highest = row_at(request, &work, gpu->search_max_mhz);
    double reached = 0;
    for (int dense = 0; dense < 2; dense++)
        for (int pass = ERG_PASS_FORWARD; pass <= ERG_PASS_BACKWARD; pass++)
            reached =
                fmax(reached, highest.costs.passes[erg_layout_pass_of(pass, dense)].clock_mhz);
    int steps = (int)(fmax(0, reached - gpu->search_min_mhz) / gpu->search_step_mhz);
    int wanted = clocks && (int)clocks < steps ? (int)clocks : steps;
    table->rows = erg_xcalloc((size_t)wanted + 2, sizeof *table->rows);
    table->rows[table->count++] = highest;
    for (int i = wanted; i >= 0; i--) {
        int clock = gpu->search_min_mhz + (wanted ? steps * i / wanted : 0) * gpu->search_step_mhz;
        if (clock < gpu->search_max_mhz)
            table->rows[table->count++] = row_at(request, &work, clock);
    }
    table->tail = row_at(request, &work, tail_clock(gpu));
}

void erg_clock_table_release(struct erg_clock_table *table)
{
    free(table->rows);
    *table = (struct erg_clock_table){0};
}

/* ---- a layout with the tables of its GPUs ---- */

void erg_clocked_layout_on(struct erg_clocked_layout *clocked, const struct erg_clock_table *table,
                           const struct erg_layout *layout, double uneven_s)
{
    const struct erg_time_request *time = &table->request->time;
    struct erg_time_place *place = &clocked->places[0];
    const struct erg_layout_energy_place on = {table->request, place, &table->rows[0].costs};
    struct erg_layout_energy closed;
    clocked->layout = layout;
    clocked->tables = table;
    clocked->count = 1;
    clocked->own_count = 0;
    erg_time_place_init(place, time, &table->parts, layout,
                        erg_time_group_bandwidth(time, erg_time_gradient_stride(layout),
                                                 erg_time_gradient_ranks(layout),
                                                 erg_layout_gpus(layout)));
    erg_layout_energy_compose(&closed, &on, 1, layout, uneven_s);
    clocked->closed_s = closed.time_s;
}

void erg_clocked_layout_init(struct erg_clocked_layout *clocked,
                             const struct erg_layout_frontier_request *request)
{
    const struct erg_layout *layout = request->layout;
    const size_t count = request->place_count ? request->place_count : 1;
    for (size_t i = 0; i < count; i++)
        erg_clock_table_init(&clocked->own[i], &request->energy[i], layout, request->clocks);
    if (request->place_count == 0) {
        erg_clocked_layout_on(clocked, clocked->own, layout, request->uneven_s);
    } else {
        clocked->layout = layout;
        clocked->tables = clocked->own;
        clocked->count = count;
        clocked->closed_s = request->closed_s;
        for (size_t i = 0; i < count; i++)
            clocked->places[i] = request->places[i];
    }
    clocked->own_count = count;
}

void erg_clocked_layout_release(struct erg_clocked_layout *clocked)
{
    for (size_t i = 0; i < clocked->own_count; i++)
        erg_clock_table_release(&clocked->own[i]);
}

struct erg_pass_cost erg_clocked_layout_cost(const struct erg_clocked_layout *clocked, long stage,
                                             long chunk, bool backward, size_t row)
{
    const struct erg_layout *layout = clocked->layout;
    const struct erg_clock_table *table =
        &clocked->tables[erg_clocked_layout_place(clocked, stage)];
    const struct erg_layout_energy_request *request = table->request;
    const struct erg_model *model = request->time.model;
    const long layers = erg_layout_chunk_layers(layout, model->layers, stage, chunk);
    const long dense = erg_layout_dense_layers(layout, model, stage, layers);
    bool head = stage + 1 == layout->pipeline && chunk + 1 == layout->virtual_stages;
    return erg_layout_chunk_cost(request, &table->parts, &table->rows[row].costs, layers, dense,
                                 backward, head, erg_layout_recompute(layout, stage),
                                 erg_layout_offload(layout, stage));
}

double erg_clocked_layout_waiting_w(const struct erg_clocked_layout *clocked)
{
    const double first_w = clocked->tables[0].request->gpu->blocking_power_w;
    double mean_w = first_w;
    for (size_t i = 1; i < clocked->count; i++) {
        double stages = (double)(clocked->places[i].end - clocked->places[i].first);
        mean_w += (clocked->tables[i].request->gpu->blocking_power_w - first_w) * stages /
                  (double)clocked->layout->pipeline;
    }
    return mean_w;
}

struct erg_pipeline erg_clocked_layout_pipeline(const struct erg_clocked_layout *clocked,
                                                double *hop_latency_s)
{
    const struct erg_layout *layout = clocked->layout;
    erg_time_hops(hop_latency_s, clocked->places, clocked->count, layout);
    return (struct erg_pipeline){
        .stages = (size_t)layout->pipeline,
        .microbatches = (size_t)layout->microbatches,
        .chunks = (size_t)layout->virtual_stages,
        .hop_latency_s = hop_latency_s,
        .blocking_power_w = erg_clocked_layout_waiting_w(clocked),
    };
}

struct erg_frontier *erg_clocked_layout_tables(const struct erg_clocked_layout *clocked)
{
    const size_t count = erg_clocked_layout_table_count(clocked->layout);
    const double mean_w = erg_clocked_layout_waiting_w(clocked);
    struct erg_frontier *tables = erg_xcalloc(count, sizeof *tables);
    for (size_t i = 0; i < count; i++) {
        long stage = (long)(i / 2) % clocked->layout->pipeline;
        long chunk = (long)(i / 2) / clocked->layout->pipeline;
        const struct erg_clock_table *table =
            &clocked->tables[erg_clocked_layout_place(clocked, stage)];
        double beyond_w = mean_w - table->request->gpu->blocking_power_w;
        for (size_t k = 0; k < table->count; k++) {
            struct erg_pass_cost cost = erg_clocked_layout_cost(clocked, stage, chunk, i % 2, k);
            erg_frontier_add(&tables[i], cost.time_s, cost.total_j + beyond_w * cost.time_s,
                             table->rows[k].clock_mhz);
        }
    }
    return tables;
}

void erg_clocked_layout_free_tables(struct erg_frontier *tables, size_t count)
{
    for (size_t i = 0; i < count; i++)
        erg_frontier_release(&tables[i]);
    free(tables);
}

int erg_pipeline_time(double *time_s, const struct erg_pipeline *pipeline,
                      const struct erg_frontier *tables, bool last, struct erg_error *err)
{
    struct erg_schedule schedule;
    double energy_j;
    if (erg_schedule_init(&schedule, pipeline, err) != 0)
        return -1;
    uint32_t *option = erg_xcalloc(schedule.count, sizeof *option);
    for (size_t i = 0; last && i < schedule.count; i++)
        option[i] =
            (uint32_t)tables[erg_table_index(pipeline, &schedule.instructions[i])].count - 1;
    erg_iteration_evaluate(&schedule, tables, option, NULL, time_s, &energy_j);
    free(option);
    erg_schedule_release(&schedule);
    return 0;
}

double erg_clocked_layout_tail(struct erg_layout_tail *tail,
                               const struct erg_clocked_layout *clocked, double pipeline_s)
{
    const struct erg_layout *layout = clocked->layout;
    const double gpus = (double)erg_layout_gpus(layout), stages = (double)layout->pipeline;
    const double boundaries = (double)(layout->pipeline * layout->virtual_stages - 1);
    struct erg_layout_energy_place places[ERG_LAYOUT_MOST_KINDS];
    double message_j = 0;
    for (size_t i = 0; i < clocked->count; i++) {
        const struct erg_clock_table *table = &clocked->tables[i];
        places[i] = (struct erg_layout_energy_place){table->request, &clocked->places[i],
                                                     &table->tail.costs};
        message_j = fmax(message_j, table->tail.costs.message_j);
    }
    const double messages_j =
        2 * boundaries * (double)layout->microbatches * message_j * gpus / stages;
    erg_layout_tail(tail, places, clocked->count, layout);
    const double drift_s = fmax(0, clocked->closed_s - pipeline_s - tail->time_s);
    const double drift_j = drift_s * erg_clocked_layout_waiting_w(clocked) * gpus;
    tail->time_s += drift_s;
    tail->items[ERG_LAYOUT_ENERGY_WIRES] += messages_j;
    tail->items[ERG_LAYOUT_ENERGY_WAITING] += drift_j;
    tail->total_j += messages_j + drift_j;
    return drift_s;
}
