/* Speeds of jobs: from profiles, and measured ones, which survive a restart of the controller. */
#include "cluster/live/controller_internal.h"

#include "cluster/profiles_internal.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- arriving workloads ---- */

static const struct erg_live_track *track_of_token(const struct erg_controller *controller,
                                                   const char *token)
{
    const size_t i = erg_controller_find(controller, token);
    return i < controller->count ? &controller->tracks[i] : NULL;
}

static int compare_rows(const void *a, const void *b)
{
    const struct erg_profile_row *x = a, *y = b;
    if (x->shape.type != y->shape.type)
        return x->shape.type - y->shape.type;
    if (x->shape.nodes != y->shape.nodes)
        return x->shape.nodes - y->shape.nodes;
    if (x->shape.gpus_per_node != y->shape.gpus_per_node)
        return x->shape.gpus_per_node - y->shape.gpus_per_node;
    return (x->time_s > y->time_s) - (x->time_s < y->time_s);
}

/* The rows of one shape, starting with `first`, by increasing time. Rows that draw at least as much
 * as a faster one are left out. */
static size_t fill_shape(struct erg_speeds *speeds, int workload, long batch,
                         const struct erg_profile_row *first, size_t left)
{
    struct erg_operating_point *points = erg_xcalloc(left, sizeof *points);
    size_t count = 0, rows = 0;
    const struct erg_gpu_shape *at = &first->shape;
    const int shape = erg_speeds_shape(speeds, at->type, at->nodes, at->gpus_per_node);
    for (; rows < left && memcmp(&first[rows].shape, at, sizeof *at) == 0; rows++) {
        const struct erg_profile_row *row = &first[rows];
        const bool frugal = !isnan(row->power_w) && row->power_w > 0 &&
                            (count == 0 || row->power_w < points[count - 1].power_w);
        if (row->time_s > 0 && frugal)
            points[count++] =
                (struct erg_operating_point){row->time_s / first->time_s, row->power_w};
    }
    if (shape >= 0 && first->time_s > 0) {
        erg_speeds_set(speeds, workload, shape, (double)batch / first->time_s, first->time_s);
        if (count > 0 && points[0].slowdown == 1)
            erg_speeds_set_points(speeds, workload, shape, points, count);
    }
    free(points);
    return rows;
}

static int fill_from_folder(struct erg_controller *controller, struct erg_speeds *speeds,
                            int workload, const struct erg_live_track *track, const char *token,
                            struct erg_error *err)
{
    struct erg_profiles profiles = {0};
    char *text = NULL;
    size_t length;
    int result = -1;
    if (erg_job_folder_profile(&text, &length, controller->setup.file->slurm.spool, token,
                               track->uid, err) == 0 &&
        erg_profiles_parse(&profiles, "profile.csv", text, length, &controller->setup.file->fleet,
                           err) == 0) {
        result = 0;
        qsort(profiles.rows.items, profiles.rows.count, sizeof *profiles.rows.items, compare_rows);
        for (size_t i = 0; i < profiles.rows.count;)
            i += fill_shape(speeds, workload, track->request.batch, &profiles.rows.items[i],
                            profiles.rows.count - i);
    }
    erg_profiles_release(&profiles);
    free(text);
    return result;
}

/* A job with its own profile has its own workload, named by its token: the profile affects no other
 * job. */
int erg_controller_fill_speeds(void *context, struct erg_speeds *speeds, int workload,
                               const struct erg_trace_workload *what, struct erg_error *err)
{
    struct erg_controller *controller = context;
    const struct erg_live_track *track = track_of_token(controller, what->family);
    if (track && track->request.has_profile)
        return fill_from_folder(controller, speeds, workload, track, what->family, err);
    return controller->profiles
               ? erg_profile_source_fill(controller->profiles, speeds, workload, what, err)
               : 0;
}

/* ---- measurements ---- */

/* A cell of the table by names, which identify it in another table. */
static json_t *measured_json(const struct erg_scheduler *scheduler,
                             const struct erg_measured_speed *measured)
{
    const struct erg_trace_workload *what = &scheduler->trace->workloads[measured->workload];
    const struct erg_gpu_shape *shape = &scheduler->speeds->shapes[measured->shape];
    return erg_json_pack("{s:s, s:s, s:I, s:s, s:i, s:i, s:i, s:f, s:f}", "family", what->family,
                         "size", what->size, "batch", (json_int_t)what->batch, "type",
                         scheduler->fleet->types[shape->type].name, "nodes", shape->nodes,
                         "gpus_per_node", shape->gpus_per_node, "point", measured->point,
                         "iteration_s", measured->iteration_s, "count", measured->count);
}

/* Returns true if a family is the token of an unknown or forgotten job. */
static bool is_forgotten(const struct erg_controller *controller, const char *family)
{
    return family && strlen(family) == ERG_TOKEN_LENGTH &&
           strspn(family, "0123456789abcdef") == ERG_TOKEN_LENGTH &&
           !track_of_token(controller, family);
}

void erg_controller_forget_speeds(struct erg_controller *controller)
{
    for (size_t k = json_array_size(controller->recalled_speeds); k-- > 0;) {
        const json_t *row = json_array_get(controller->recalled_speeds, k);
        if (is_forgotten(controller, json_string_value(json_object_get(row, "family"))))
            json_array_remove(controller->recalled_speeds, k);
    }
}

json_t *erg_controller_measured(const struct erg_controller *controller)
{
    const struct erg_speeds *speeds = controller->speeds;
    const struct erg_trace_workload *workloads = controller->scheduler->trace->workloads;
    json_t *rows = json_array(), *row;
    size_t k;
    for (size_t i = 0; i < speeds->measured.count; i++) {
        const struct erg_measured_speed *measured = &speeds->measured.items[i];
        if (!is_forgotten(controller, workloads[measured->workload].family))
            json_array_append_new(rows, measured_json(controller->scheduler, measured));
    }
    /* Speeds of workloads that have not returned yet. */
    json_array_foreach(controller->recalled_speeds, k, row) json_array_append(rows, row);
    return rows;
}

/* Returns true if a row belongs to a workload; adds it to the table if so. */
static bool take_row(struct erg_controller *controller, int workload, const json_t *row)
{
    const struct erg_scheduler *scheduler = controller->scheduler;
    const struct erg_trace_workload *what = &scheduler->trace->workloads[workload];
    const char *family = json_string_value(json_object_get(row, "family"));
    const char *size = json_string_value(json_object_get(row, "size"));
    const char *type = json_string_value(json_object_get(row, "type"));
    if (!family || !size || !type || strcmp(family, what->family) != 0 ||
        strcmp(size, what->size) != 0 ||
        json_integer_value(json_object_get(row, "batch")) != what->batch)
        return false;
    const int of = erg_fleet_type(scheduler->fleet, type);
    const int shape =
        of < 0 ? -1
               : erg_speeds_shape(controller->speeds, of,
                                  (int)json_integer_value(json_object_get(row, "nodes")),
                                  (int)json_integer_value(json_object_get(row, "gpus_per_node")));
    const int point = (int)json_integer_value(json_object_get(row, "point"));
    const double iteration_s = json_number_value(json_object_get(row, "iteration_s"));
    const double count = json_number_value(json_object_get(row, "count"));
    if (shape >= 0 && point >= 0 && iteration_s > 0 && count > 0 &&
        erg_speed_feasible(erg_speed_at(controller->speeds, workload, shape)) &&
        point < erg_speed_at(controller->speeds, workload, shape)->points_count)
        erg_scheduler_measured(controller->scheduler, workload, shape, point, iteration_s, count);
    return true;
}

void erg_controller_recall_speeds(struct erg_controller *controller, int job)
{
    const int workload = controller->scheduler->jobs[job].request->workload;
    for (size_t k = json_array_size(controller->recalled_speeds); k-- > 0;)
        if (take_row(controller, workload, json_array_get(controller->recalled_speeds, k)))
            json_array_remove(controller->recalled_speeds, k);
}
