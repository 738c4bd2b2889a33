#include "cli/plan_profile.h"

#include "io/csv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define POINTS_MOST 6

/* What all rows about a number of GPUs begin with. */
struct shape {
    const struct erg_model *model;
    const char *gpu;
    long batch, nodes, node_gpus;
};

/* Six digits are more than a time model knows. */
static double rounded(double value)
{
    char digits[32];
    double result = value;
    snprintf(digits, sizeof digits, "%.6g", value);
    erg_parse_double(digits, &result);
    return result;
}

static void add_row(struct erg_text *out, const struct shape *shape, double time_s, double power_w)
{
    double parameters = erg_model_parameters(shape->model);
    const char *slash = strrchr(shape->model->name, '/'); /* after whose model it is */
    char size[32];
    if (parameters >= 1e9)
        snprintf(size, sizeof size, "%.3gB", parameters / 1e9);
    else
        snprintf(size, sizeof size, "%.3gM", parameters / 1e6);
    erg_csv_add(out, slash ? slash + 1 : shape->model->name);
    erg_csv_add(out, size);
    erg_csv_add_long(out, shape->batch);
    erg_csv_add(out, shape->gpu);
    erg_csv_add_long(out, shape->nodes);
    erg_csv_add_long(out, shape->node_gpus);
    erg_csv_add_double(out, time_s);
    erg_csv_add_double(out, power_w);
    erg_csv_end_row(out);
}

/* Points at about equal steps of energy, the ends among them. */
static void add_frontier(struct erg_text *out, const struct shape *shape,
                         const struct erg_frontier *frontier)
{
    const struct erg_point *points = frontier->points;
    double gpus = (double)(shape->nodes * shape->node_gpus), before_s = 0, before_w = INFINITY;
    double most_j = points[0].energy_j, least_j = points[frontier->count - 1].energy_j;
    size_t at = 0;
    for (int i = 0; i < POINTS_MOST; i++) {
        double energy_j = most_j - (most_j - least_j) * i / (POINTS_MOST - 1);
        while (at + 1 < frontier->count && points[at].energy_j > energy_j)
            at++;
        double time_s = rounded(points[at].time_s);
        double power_w = rounded(points[at].energy_j / points[at].time_s / gpus);
        if (time_s <= before_s || power_w >= before_w)
            continue; /* the same again, or so near that its digits are */
        add_row(out, shape, time_s, power_w);
        before_s = time_s;
        before_w = power_w;
    }
}

int erg_plan_profile(struct erg_text *out, const struct erg_layout_choice_request *request,
                     const char *gpu, int gpus_per_node, struct erg_error *err)
{
    erg_text_add(out, "model,param_num,global_batch,gpu_type,num_nodes,gpus_per_node,iter_time_s,"
                      "gpu_power_w\n");
    for (size_t i = 0; i < request->search_count; i++) {
        const struct erg_layout_search *search = &request->searches[i];
        struct erg_layout_choice_request one = *request;
        struct erg_layout_choice choice = {0};
        struct shape shape = {.model = search->time.model,
                              .gpu = gpu,
                              .batch = search->batch_least,
                              .nodes =
                                  search->gpus > gpus_per_node ? search->gpus / gpus_per_node : 1};
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
            add_row(out, &shape, -1, NAN);
        }
        erg_layout_choice_release(&choice);
        if (status != 0 && err->status != ERG_INFEASIBLE)
            return -1;
    }
    return 0;
}
