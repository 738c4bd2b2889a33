/* Counts the parts of a controller's status. */
#include "cluster/live/schedule_counts.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const erg_gpu_use_names[ERG_GPU_USES] = {"managed", "foreign", "free", "unavailable"};

const char *erg_schedule_string(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

bool erg_schedule_flag(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

bool erg_schedule_has_gpus(const json_t *job)
{
    return erg_json_number_or(job, "gpus", NAN) > 0 ||
           erg_json_number_or(job, "gpus_intended", NAN) > 0;
}

bool erg_schedule_is_over(const json_t *job)
{
    const char *phase = erg_schedule_string(job, "phase");
    return !erg_schedule_has_gpus(job) &&
           (strcmp(phase, "ended") == 0 || strcmp(phase, "cancelled") == 0 ||
            strcmp(phase, "gone") == 0);
}

/* ---- sorted ids of managed jobs; an ended job's id may belong to another job ---- */

struct managed_ids {
    json_int_t *items;
    size_t count, capacity;
};

static int compare_ids(const void *a, const void *b)
{
    const json_int_t x = *(const json_int_t *)a, y = *(const json_int_t *)b;
    return (x > y) - (x < y);
}

static struct managed_ids ids_of_jobs(const json_t *status)
{
    struct managed_ids ids = {0};
    const json_t *job;
    size_t i;
    json_array_foreach(json_object_get(status, "jobs"), i, job)
    {
        if (!erg_schedule_is_over(job))
            ERG_PUSH(&ids, items, json_integer_value(json_object_get(job, "id")));
    }
    if (ids.count > 0)
        qsort(ids.items, ids.count, sizeof *ids.items, compare_ids);
    return ids;
}

static enum erg_schedule_use use_of(const json_t *gpu, bool up, const struct managed_ids *ids)
{
    const json_int_t id = json_integer_value(gpu);
    if (!json_is_integer(gpu))
        return up ? ERG_GPU_FREE : ERG_GPU_UNAVAILABLE;
    return ids->count > 0 && bsearch(&id, ids->items, ids->count, sizeof id, compare_ids)
               ? ERG_GPU_MANAGED
               : ERG_GPU_FOREIGN;
}

/* ---- nodes ---- */

static struct erg_schedule_type *find_type(struct erg_schedule_counts *counts, const char *name)
{
    for (size_t t = 0; t < counts->count; t++)
        if (strcmp(counts->types[t].name, name) == 0)
            return &counts->types[t];
    ERG_PUSH(counts, types, (struct erg_schedule_type){.name = name});
    return &counts->types[counts->count - 1];
}

void erg_schedule_count(struct erg_schedule_counts *counts, const json_t *status)
{
    struct managed_ids ids = ids_of_jobs(status);
    const json_t *node, *gpu;
    size_t n, g;
    *counts = (struct erg_schedule_counts){0};
    json_array_foreach(json_object_get(status, "nodes"), n, node)
    {
        struct erg_schedule_type *type = find_type(counts, erg_schedule_string(node, "type"));
        const bool up = strcmp(erg_schedule_string(node, "state"), "up") == 0;
        counts->nodes++;
        json_array_foreach(json_object_get(node, "gpus"), g, gpu)
        {
            const enum erg_schedule_use use = use_of(gpu, up, &ids);
            type->gpus[use]++;
            counts->gpus[use]++;
        }
    }
    free(ids.items);
}

void erg_schedule_counts_release(struct erg_schedule_counts *counts)
{
    free(counts->types);
    *counts = (struct erg_schedule_counts){0};
}
