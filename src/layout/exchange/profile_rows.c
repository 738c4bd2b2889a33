/* Rows of the profiles that ergon simulate reads. */
#include "layout/exchange/profile_rows.h"

#include "io/csv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Six digits exceed the accuracy of the time model. */
static double rounded(double value)
{
    char digits[32];
    double result = value;
    snprintf(digits, sizeof digits, "%.6g", value);
    erg_parse_double(digits, &result);
    return result;
}

void erg_profile_rows_family(const struct erg_model *model, char family[80])
{
    static const char file[] = "/config.json";
    size_t length = strlen(model->name), begin;
    if (length >= sizeof file && strcmp(model->name + length - (sizeof file - 1), file) == 0)
        length -= sizeof file - 1;
    for (begin = length; begin > 0 && model->name[begin - 1] != '/';)
        begin--;
    snprintf(family, 80, "%.*s", (int)(length - begin), model->name + begin);
}

void erg_profile_rows_size(const struct erg_model *model, char size[32])
{
    double parameters = erg_model_parameters(model);
    if (parameters >= 1e9)
        snprintf(size, 32, "%.3gB", parameters / 1e9);
    else
        snprintf(size, 32, "%.3gM", parameters / 1e6);
}

void erg_profile_rows_header(struct erg_text *out)
{
    erg_text_add(out, "model,param_num,global_batch,gpu_type,num_nodes,gpus_per_node,iter_time_s,"
                      "gpu_power_w\n");
}

void erg_profile_rows_row(struct erg_text *out, const struct erg_profile_shape *shape,
                          double time_s, double power_w)
{
    char family[80], size[32];
    erg_profile_rows_family(shape->model, family);
    erg_profile_rows_size(shape->model, size);
    erg_csv_add(out, family);
    erg_csv_add(out, size);
    erg_csv_add_long(out, shape->batch);
    erg_csv_add(out, shape->gpu);
    erg_csv_add_long(out, shape->nodes);
    erg_csv_add_long(out, shape->node_gpus);
    erg_csv_add_double(out, rounded(time_s));
    erg_csv_add_double(out, power_w);
    erg_csv_end_row(out);
}

/* The slowest point that is at most one step slower than this one, otherwise the next point. */
static size_t next_point(const struct erg_frontier *frontier, size_t at)
{
    const double step = 0.03, most_s = (1 + step) * frontier->points[at].time_s;
    size_t next = at + 1;
    while (next + 1 < frontier->count && frontier->points[next + 1].time_s <= most_s)
        next++;
    return next;
}

static void add_frontier(struct erg_text *out, const struct erg_profile_shape *shape,
                         const struct erg_frontier *frontier)
{
    double gpus = (double)(shape->nodes * shape->node_gpus), before_s = 0, before_w = INFINITY;
    for (size_t at = 0; at < frontier->count; at = next_point(frontier, at)) {
        const struct erg_point *point = &frontier->points[at];
        double time_s = rounded(point->time_s);
        double power_w = rounded(point->energy_j / point->time_s / gpus);
        if (time_s <= before_s || power_w >= before_w)
            continue; /* so near that its digits are equal */
        erg_profile_rows_row(out, shape, time_s, power_w);
        before_s = time_s;
        before_w = power_w;
    }
}

int erg_profile_rows(struct erg_text *out, const struct erg_layout_choice_request *request,
                     const char *gpu, int gpus_per_node, struct erg_error *err)
{
    erg_profile_rows_header(out);
    for (size_t i = 0; i < request->search_count; i++) {
        const struct erg_layout_search *search = &request->searches[i];
        struct erg_layout_choice_request one = *request;
        struct erg_layout_choice choice = {0};
        struct erg_profile_shape shape = {
            .model = search->model,
            .gpu = gpu,
            .batch = search->batch_least,
            .nodes = search->gpus > gpus_per_node ? search->gpus / gpus_per_node : 1};
        shape.node_gpus = search->gpus / shape.nodes;
        one.searches = search;
        one.search_count = 1;
        one.whole_union = true;
        int status = erg_layout_choose(&choice, &one, err);
        if (status == 0) {
            struct erg_frontier frontier = {0};
            erg_layout_union(&frontier, choice.options, choice.count);
            add_frontier(out, &shape, &frontier);
            erg_frontier_release(&frontier);
        } else if (err->status == ERG_INFEASIBLE) {
            erg_profile_rows_row(out, &shape, -1, NAN);
        }
        erg_layout_choice_release(&choice);
        if (status != 0 && err->status != ERG_INFEASIBLE)
            return -1;
    }
    return 0;
}
