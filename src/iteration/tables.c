/* Option tables: filters measured options, and scales them to integer ticks for the exact sweep. */
#include "iteration/tables_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static const double max_ticks = 536870912.0; /* 2^29, half of the solver's limit */

static int check_table(size_t index, const struct erg_frontier *given, struct erg_error *err)
{
    const char *direction = erg_direction_names[index % 2];
    size_t stage = index / 2;
    if (!given->count)
        return erg_fail(err, ERG_FAILED,
                        "The %s of virtual stage %zu has no options to choose from.", direction,
                        stage);
    if (given->count > UINT16_MAX)
        return erg_fail(err, ERG_FAILED,
                        "The %s of virtual stage %zu has %zu options, but at most %d are possible.",
                        direction, stage, given->count, UINT16_MAX);
    for (size_t i = 0; i < given->count; i++) {
        const struct erg_point *point = &given->points[i];
        if (!(point->time_s > 0) || !(point->time_s <= 1e6))
            return erg_fail(err, ERG_FAILED,
                            "Option %zu of the %s of virtual stage %zu takes %g s, but must take "
                            "more than 0 and at most a million seconds.",
                            i, direction, stage, point->time_s);
        if (!(point->energy_j >= 0) || !(point->energy_j <= 1e12))
            return erg_fail(err, ERG_FAILED,
                            "Option %zu of the %s of virtual stage %zu needs %g J, but must need "
                            "between 0 and 1e12 J.",
                            i, direction, stage, point->energy_j);
    }
    return 0;
}

static void filter_options(struct option_table *table, const struct erg_frontier *given,
                           double blocking_power_w)
{
    struct erg_frontier costs = {0};
    for (size_t i = 0; i < given->count; i++)
        erg_frontier_add(&costs, given->points[i].time_s,
                         given->points[i].energy_j - blocking_power_w * given->points[i].time_s,
                         (int64_t)i);
    erg_frontier_filter(&costs);
    table->count = costs.count;
    assert(costs.count > 0);
    table->options = erg_xcalloc(costs.count, sizeof *table->options);
    for (size_t i = 0; i < costs.count; i++)
        table->options[i] = (struct option){.time_s = costs.points[i].time_s,
                                            .cost_j = costs.points[i].energy_j,
                                            .index = (uint32_t)costs.points[i].recipe};
    erg_frontier_release(&costs);
}

double erg_option_tables_span_s(const struct option_tables *tables,
                                const struct erg_schedule *schedule, bool fastest, double *start_s)
{
    double *finish = erg_xcalloc(schedule->count, sizeof *finish), end = 0;
    for (size_t next = 0; next < schedule->count; next++) {
        uint32_t i = schedule->order[next];
        double start = 0;
        for (int k = 0; k < 2; k++) {
            uint32_t before = schedule->before[i][k];
            if (before == ERG_NONE)
                continue;
            double ready = finish[before] + erg_schedule_latency_s(schedule, before, i);
            start = ready > start ? ready : start;
        }
        const struct option_table *table =
            &tables->tables[erg_table_index(&schedule->pipeline, &schedule->instructions[i])];
        if (start_s)
            start_s[i] = start;
        finish[i] = start + table->options[fastest ? 0 : table->count - 1].time_s;
        end = finish[i] > end ? finish[i] : end;
    }
    free(finish);
    return end;
}

double erg_option_tables_cheapest_j(const struct option_tables *tables,
                                    const struct erg_schedule *schedule)
{
    double sum_j = 0;
    for (size_t i = 0; i < schedule->count; i++) {
        const struct option_table *table =
            &tables->tables[erg_table_index(&schedule->pipeline, &schedule->instructions[i])];
        sum_j += table->options[table->count - 1].cost_j;
    }
    return sum_j;
}

static int choose_tick(struct option_tables *tables, const struct erg_schedule *schedule,
                       double tick_s, struct erg_error *err)
{
    double slowest = erg_option_tables_span_s(tables, schedule, false, NULL);
    if (tick_s > 0) {
        if (slowest / tick_s > max_ticks)
            return erg_fail(err, ERG_USAGE,
                            "A unit of time of %g s is too short for an iteration of up to %g s; "
                            "the shortest possible is %g s.",
                            tick_s, slowest, slowest / max_ticks);
        tables->tick_s = tick_s;
        return 0;
    }
    tables->tick_s = 1e-9;
    while (slowest / tables->tick_s > max_ticks)
        tables->tick_s *= 10;
    return 0;
}

/*
 * The lower convex hull in ticks, slow to fast, from the cheapest option to the fastest. In the
 * hull's chain the saving per tick falls from fast to slow.
 */
static size_t hull_of(const struct option_table *table, const struct option **hull)
{
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct option *option = &table->options[i];
        /* Among the options in one tick the last is the cheapest. */
        if (count && hull[count - 1]->ticks == option->ticks)
            count--;
        while (count >= 2) {
            const struct option *a = hull[count - 2], *b = hull[count - 1];
            assert(a->ticks < b->ticks && b->ticks < option->ticks);
            double ab = (a->cost_j - b->cost_j) / (b->ticks - a->ticks);
            double bc = (b->cost_j - option->cost_j) / (option->ticks - b->ticks);
            if (ab > bc)
                break;
            count--;
        }
        hull[count++] = option;
    }
    return count;
}

static double steepest_w(const struct option_tables *tables)
{
    double steepest = 0;
    for (size_t t = 0; t < tables->count; t++) {
        const struct option_table *table = &tables->tables[t];
        for (size_t i = 1; i < table->count; i++) {
            const struct option *fast = &table->options[i - 1], *slow = &table->options[i];
            int32_t ticks = slow->ticks - fast->ticks;
            double slope = (fast->cost_j - slow->cost_j) / (ticks ? ticks : 1) / tables->tick_s;
            steepest = slope > steepest ? slope : steepest;
        }
    }
    return steepest;
}

static void quantise(struct option_table *table, double unit_j)
{
    const struct option **hull = erg_xcalloc(table->count, sizeof *hull);
    size_t count = hull_of(table, hull);
    table->durations = erg_xcalloc(count, sizeof *table->durations);
    table->slopes = erg_xcalloc(count + 1, sizeof *table->slopes);
    int32_t levels = 1;
    table->durations[0] = hull[count - 1]->ticks;
    for (size_t i = count - 1; i-- > 0;) { /* slow to fast */
        double slope = (hull[i]->cost_j - hull[i + 1]->cost_j) /
                       (hull[i + 1]->ticks - hull[i]->ticks) / unit_j;
        int64_t rounded = (int64_t)llround(slope);
        if (rounded > table->slopes[levels - 1]) {
            table->slopes[levels] = rounded;
            table->durations[levels++] = hull[i]->ticks;
        } else { /* same integer slope as the neighbour: one segment */
            table->durations[levels - 1] = hull[i]->ticks;
        }
    }
    assert((size_t)levels <= count);
    table->slopes[levels] = TIMECOST_INFINITE;
    table->hull = (struct timecost_table){levels, table->durations, table->slopes};
    free(hull);
}

/* Ticks that last at least the given time; a multiple of a tick is not rounded up. */
static int32_t ticks_of(const struct option_tables *tables, double time_s)
{
    return (int32_t)ceil(time_s / tables->tick_s * (1 - 1e-12));
}

int erg_option_tables_init(struct option_tables *tables, const struct erg_schedule *schedule,
                           const struct erg_frontier *given, double tick_s, struct erg_error *err)
{
    const struct erg_pipeline *pipeline = &schedule->pipeline;
    size_t count = 2 * pipeline->stages * pipeline->chunks;
    *tables =
        (struct option_tables){.count = count, .blocking_power_w = pipeline->blocking_power_w};
    tables->tables = erg_xcalloc(count, sizeof *tables->tables);
    for (size_t t = 0; t < count; t++) {
        if (check_table(t, &given[t], err) != 0)
            return -1;
        filter_options(&tables->tables[t], &given[t], pipeline->blocking_power_w);
    }
    if (choose_tick(tables, schedule, tick_s, err) != 0)
        return -1;
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tables->tables[t].count; i++) {
            struct option *option = &tables->tables[t].options[i];
            option->ticks = ticks_of(tables, option->time_s);
            option->ticks = option->ticks < 1 ? 1 : option->ticks;
        }
    /* Fine slopes, but so that the flow of all virtual stages together stays far from 64 bits. */
    double coarsest = steepest_w(tables) * (double)count / 1e17;
    tables->slope_unit_w = coarsest > 1e-6 ? coarsest : 1e-6;
    for (size_t t = 0; t < count; t++)
        quantise(&tables->tables[t], tables->slope_unit_w * tables->tick_s);
    return 0;
}

void erg_option_tables_release(struct option_tables *tables)
{
    for (size_t t = 0; t < tables->count; t++) {
        free(tables->tables[t].options);
        free(tables->tables[t].durations);
        free(tables->tables[t].slopes);
    }
    free(tables->tables);
    *tables = (struct option_tables){0};
}

void erg_option_tables_problem(const struct option_tables *tables,
                               const struct erg_schedule *schedule,
                               struct timecost_problem *problem)
{
    size_t count = schedule->count;
    const struct timecost_table **table = erg_xcalloc(count, sizeof *table);
    struct timecost_arc *dependencies = erg_xcalloc(2 * count, sizeof *dependencies);
    size_t dependency_count = 0;
    for (size_t i = 0; i < count; i++) {
        size_t index = erg_table_index(&schedule->pipeline, &schedule->instructions[i]);
        table[i] = &tables->tables[index].hull;
        for (int k = 0; k < 2; k++) {
            if (!option_tables_depends(schedule, (uint32_t)i, k))
                continue;
            uint32_t before = schedule->before[i][k];
            double latency_s = erg_schedule_latency_s(schedule, before, (uint32_t)i);
            dependencies[dependency_count++] =
                (struct timecost_arc){before, (uint32_t)i, ticks_of(tables, latency_s)};
        }
    }
    *problem = (struct timecost_problem){.activity_count = count,
                                         .table = table,
                                         .dependency_count = dependency_count,
                                         .dependencies = dependencies};
}

void erg_option_tables_problem_release(struct timecost_problem *problem)
{
    free((void *)(uintptr_t)problem->table);
    free((void *)(uintptr_t)problem->dependencies);
    *problem = (struct timecost_problem){0};
}
