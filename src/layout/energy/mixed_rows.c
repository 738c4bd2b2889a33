/* Lower bounds of all layouts on given numbers of stages of each kind of GPUs. */
#include "layout/energy/mixed_rows.h"

#include "base/memory.h"
#include "layout/energy/choice_internal.h"

#include <math.h>
#include <stdlib.h>

void erg_mixed_rows_init(struct erg_mixed_rows *rows, const struct erg_layout_search *search)
{
    *rows = (struct erg_mixed_rows){.search = search};
}

/* ---- the cost of a layer ---- */

/* A layer's forward and backward, at two clocks. */
struct layer {
    double time_s, beyond_j; /* beyond waiting */
};

static double beyond_of(const struct erg_clock_table *table, const struct erg_pass_cost *cost)
{
    return cost->total_j - table->request->gpu->blocking_power_w * cost->time_s;
}

static struct erg_pass_cost pass_of(const struct erg_clock_table *table, size_t row, bool dense,
                                    bool backward, enum erg_recompute recompute)
{
    return erg_layout_chunk_cost(table->request, &table->parts, &table->rows[row].costs, 1, dense,
                                 backward, false, recompute, 0);
}

/* Lists all pairs of clocks, for layers of each kind; returns their number. */
static size_t list_layers(struct layer *layers, const struct erg_clock_table *table,
                          enum erg_recompute recompute)
{
    const int kinds = table->request->time.model->experts.dense_layers > 0 ? 2 : 1;
    size_t count = 0;
    for (int dense = 0; dense < kinds; dense++)
        for (size_t i = 0; i < table->count; i++)
            for (size_t k = 0; k < table->count; k++) {
                const struct erg_pass_cost forward = pass_of(table, i, dense, false, recompute);
                const struct erg_pass_cost backward = pass_of(table, k, dense, true, recompute);
                layers[count++] =
                    (struct layer){forward.time_s + backward.time_s,
                                   beyond_of(table, &forward) + beyond_of(table, &backward)};
            }
    return count;
}

/* The most energy that copies of a layer and the head may save compared with waiting, over all
 * clocks, as a negative number; at most 0. */
static double less_than_waiting(const struct erg_clock_table *table, long layers)
{
    double copy_j = 0, head_j = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct erg_layout_costs *costs = &table->rows[i].costs;
        head_j = fmin(head_j, beyond_of(table, &costs->passes[ERG_PASS_HEAD]));
        for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
            const struct erg_pass_cost copy = erg_layout_copy_cost(
                table->request, &table->parts, costs, 1, (enum erg_recompute)recompute, 1);
            copy_j = fmin(copy_j, 2 * beyond_of(table, &copy));
        }
    }
    return (double)layers * copy_j + head_j;
}

/* ---- for all layouts with the same degrees ---- */

/*
 * Chooses prices from the least energy of a layer beyond waiting up to the price at which even the
 * slowest clocks pay off.
 */
static void choose_prices(struct erg_mixed_rows *rows, double least_j, double most_j)
{
    const double beyond = 3;
    const double least = fmax(least_j, 1e-6 * most_j);
    rows->prices_j[0] = least_j;
    for (int i = 1; i < ERG_MIXED_PRICES; i++)
        rows->prices_j[i] =
            least * pow(beyond * most_j / least, (double)i / (ERG_MIXED_PRICES - 1));
}

static void fill_saved(struct erg_mixed_row_kind *kind, const struct erg_mixed_rows *rows,
                       const struct layer *layers, size_t count, enum erg_recompute recompute)
{
    for (int i = 0; i < ERG_MIXED_PRICES; i++) {
        double most_w = 0;
        for (size_t k = 0; k < count; k++)
            most_w = fmax(most_w, (rows->prices_j[i] - layers[k].beyond_j) / layers[k].time_s);
        kind->saved_w[recompute][i] = most_w;
    }
}

static void fill(struct erg_mixed_rows *rows, const struct erg_layout *degrees)
{
    enum { ROWS = ERG_LAYOUT_CHOICE_CLOCKS + 2 };
    const struct erg_layout_search *search = rows->search;
    static const size_t most = (size_t)2 * ROWS * ROWS; /* for two kinds of layers */
    struct layer *layers = erg_xcalloc(search->kind_count * ERG_RECOMPUTES * most, sizeof *layers);
    size_t counts[ERG_LAYOUT_MOST_KINDS] = {0};
    double least_j = INFINITY, most_j = 0;
    struct erg_layout one = *degrees;
    rows->degrees = *degrees;
    rows->less_j = 0;
    one.pipeline = one.data = one.virtual_stages = 1;
    one.sequence = search->sequence;
    for (size_t k = 0; k < search->kind_count; k++) {
        const struct erg_layout_kind *kind = &search->kinds[k];
        const struct erg_layout_energy_request request = {
            .time = {search->model, kind->engine, &kind->machine}, .gpu = kind->gpu};
        struct erg_clock_table table;
        erg_clock_table_init(&table, &request, &one, ERG_LAYOUT_CHOICE_CLOCKS);
        rows->kinds[k].fastest_s = INFINITY;
        rows->less_j = fmin(rows->less_j, less_than_waiting(&table, search->model->layers));
        for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
            struct layer *own = &layers[(k * ERG_RECOMPUTES + (size_t)recompute) * most];
            counts[k] = list_layers(own, &table, (enum erg_recompute)recompute);
            for (size_t i = 0; i < counts[k]; i++) {
                rows->kinds[k].fastest_s = fmin(rows->kinds[k].fastest_s, own[i].time_s);
                least_j = fmin(least_j, own[i].beyond_j);
                most_j =
                    fmax(most_j, own[i].beyond_j + kind->gpu->blocking_power_w * own[i].time_s);
            }
        }
        erg_clock_table_release(&table);
    }
    choose_prices(rows, least_j, most_j);
    for (size_t k = 0; k < search->kind_count; k++)
        for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++)
            fill_saved(&rows->kinds[k], rows,
                       &layers[(k * ERG_RECOMPUTES + (size_t)recompute) * most], counts[k],
                       (enum erg_recompute)recompute);
    free(layers);
}

/* ---- for one row of blocks ---- */

struct price_line {
    double at_0_j, slope_w;
};

static double value_at(const struct price_line *line, double time_s)
{
    return line->at_0_j + line->slope_w * time_s;
}

/* The highest of the lines from a time on: their slopes rise. */
static void add_envelope(struct erg_layout_bound *bound, const struct price_line *lines,
                         double from_s)
{
    int at = 0;
    for (int i = 1; i < ERG_MIXED_PRICES; i++) {
        double more_j = value_at(&lines[i], from_s) - value_at(&lines[at], from_s);
        if (more_j > 0 || (more_j == 0 && lines[i].slope_w > lines[at].slope_w))
            at = i;
    }
    for (double time_s = from_s;;) {
        int next = -1;
        double next_s = INFINITY;
        bound->points[bound->count++] =
            (struct erg_bound_point){time_s, value_at(&lines[at], time_s)};
        for (int i = 0; i < ERG_MIXED_PRICES; i++) {
            double crossing_s =
                (lines[at].at_0_j - lines[i].at_0_j) / (lines[i].slope_w - lines[at].slope_w);
            if (lines[i].slope_w > lines[at].slope_w && crossing_s < next_s) {
                next = i;
                next_s = crossing_s;
            }
        }
        if (next < 0)
            break;
        at = next;
        time_s = fmax(time_s, next_s);
    }
    bound->waiting_w = lines[at].slope_w;
}

void erg_mixed_rows_bound(struct erg_layout_bound *bound, struct erg_mixed_rows *rows,
                          const struct erg_layout *degrees, const struct erg_layout_block *blocks,
                          size_t count, unsigned recomputes)
{
    const struct erg_layout_search *search = rows->search;
    const struct erg_layout *old = &rows->degrees;
    if (old->tensor != degrees->tensor || old->context != degrees->context ||
        old->microbatch != degrees->microbatch ||
        erg_layout_experts(old) != erg_layout_experts(degrees))
        fill(rows, degrees);
    const double replicas = (double)(degrees->tensor * degrees->context * degrees->data);
    const long least = search->batch_least / (degrees->data * degrees->microbatch);
    const double microbatches = fmax(1, (double)least);
    const double passes = microbatches * (double)search->model->layers;
    struct price_line lines[ERG_MIXED_PRICES];
    double layers_per_s = 0;
    for (int i = 0; i < ERG_MIXED_PRICES; i++)
        lines[i] = (struct price_line){
            replicas * (passes * rows->prices_j[i] + microbatches * rows->less_j), 0};
    for (size_t b = 0; b < count; b++) {
        const struct erg_mixed_row_kind *kind = &rows->kinds[blocks[b].kind];
        const double gpus = replicas * (double)blocks[b].stages;
        const double waiting_w = search->kinds[blocks[b].kind].gpu->blocking_power_w;
        layers_per_s += (double)blocks[b].stages / kind->fastest_s;
        for (int i = 0; i < ERG_MIXED_PRICES; i++) {
            double saved_w = 0;
            for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++)
                if (recomputes & 1u << recompute)
                    saved_w = fmax(saved_w, kind->saved_w[recompute][i]);
            lines[i].slope_w += gpus * (waiting_w - saved_w);
        }
    }
    *bound = (struct erg_layout_bound){
        .points = erg_xcalloc(ERG_MIXED_PRICES + 1, sizeof *bound->points), .slowest_s = INFINITY};
    add_envelope(bound, lines, passes / layers_per_s);
}
