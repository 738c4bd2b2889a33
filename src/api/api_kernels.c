/* ergon/kernels.h: traces of GPUs read for a program. */
#include "ergon/kernels.h"

#include "api/door.h"
#include "api/kernels_print.h"
#include "base/call.h"
#include "base/memory.h"
#include "base/sized.h"
#include "io/json.h"
#include "trace/kernel_import.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct erg_kernels {
    struct erg_arena arena;
    struct erg_kernels_gpu *gpus;
    size_t count;
    char *text, *csv;
    char *json;
};

struct kernels_running {
    struct erg_kernels_options options;
    struct erg_kernels *kernels;
};

static struct erg_kernels_gpu gpu_of(struct erg_kernels *kernels,
                                     const struct erg_kernel_lane *lane)
{
    const struct erg_kernel_time *time = &lane->time;
    struct erg_kernels_gpu gpu = {.file = erg_arena_strdup(&kernels->arena, lane->file),
                                  .rank = lane->rank,
                                  .device = lane->device,
                                  .window_s = (double)(time->end_ns - time->begin_ns) / 1e9,
                                  .compute_s = (double)time->compute_ns / 1e9,
                                  .exposed_s = (double)time->exposed_ns / 1e9,
                                  .idle_s = (double)time->idle_ns / 1e9,
                                  .energy_j = time->energy_j,
                                  .idle_energy_j = time->idle_energy_j};
    for (size_t i = 0; i < ERG_CATEGORIES; i++) {
        const struct erg_kernel_share *share = &time->category[i];
        /* Values of only some kernels of a category do not give a number for the category. */
        bool knows_waits = share->count > 0 && lane->waits[i] == share->count;
        gpu.category[i] = (struct erg_kernels_category){
            .count = (int64_t)share->count,
            .summed_s = share->summed_ns / 1e9,
            .exposed_s = (double)share->exposed_ns / 1e9,
            .wait_s = knows_waits ? lane->wait_ns[i] / 1e9 : NAN,
            .energy_j = share->energy_j,
        };
    }
    return gpu;
}

/* ---- the document ---- */

static json_t *subs_json(const struct erg_kernel_lane *lane, size_t category)
{
    json_t *subs = json_array();
    for (size_t i = 1; i < ERG_SUBS; i++)
        if (lane->sub_count[category][i])
            json_array_append_new(
                subs, erg_json_pack("{s:s, s:I, s:o}", "name", erg_kernel_sub_names[i], "count",
                                    (json_int_t)lane->sub_count[category][i], "summed_s",
                                    erg_json_number(lane->sub_ns[category][i] / 1e9)));
    return subs;
}

static json_t *gpu_json(const struct erg_kernels_gpu *gpu, const struct erg_kernel_lane *lane)
{
    json_t *categories = json_array();
    for (size_t i = 0; i < ERG_CATEGORIES; i++) {
        const struct erg_kernels_category *category = &gpu->category[i];
        json_array_append_new(
            categories,
            erg_json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "name",
                          erg_kernel_category_names[i], "count", (json_int_t)category->count,
                          "summed_s", erg_json_number(category->summed_s), "exposed_s",
                          erg_json_number(category->exposed_s), "wait_s",
                          erg_json_number(category->wait_s), "energy_j",
                          erg_json_number(category->energy_j), "sub", subs_json(lane, i)));
    }
    return erg_json_pack(
        "{s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "file", gpu->file, "rank",
        (int)gpu->rank, "device", (int)gpu->device, "window_s", erg_json_number(gpu->window_s),
        "compute_s", erg_json_number(gpu->compute_s), "exposed_s", erg_json_number(gpu->exposed_s),
        "idle_s", erg_json_number(gpu->idle_s), "energy_j", erg_json_number(gpu->energy_j),
        "idle_energy_j", erg_json_number(gpu->idle_energy_j), "categories", categories);
}

static char *document(const struct erg_kernels *kernels, const struct erg_kernel_lanes *lanes,
                      enum erg_kernel_rule rule)
{
    json_t *gpus = json_array();
    for (size_t i = 0; i < kernels->count; i++)
        json_array_append_new(gpus, gpu_json(&kernels->gpus[i], &lanes->items[i]));
    return erg_door_json(erg_json_pack("{s:s, s:i, s:s, s:I, s:o}", "schema", "ergon.kernels",
                                       "schema_version", 1, "rule", erg_kernel_rule_names[rule],
                                       "left_out", (json_int_t)lanes->left_out, "gpus", gpus));
}

/* ---- the call ---- */

/* Written by one of kernels_print.h; NULL: there is no memory. */
static char *written(const struct erg_kernels *kernels,
                     void (*print)(FILE *out, const struct erg_kernels_gpu *gpus, size_t count))
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return NULL;
    print(out, kernels->gpus, kernels->count);
    fclose(out);
    return text;
}

static int run(void *argument, struct erg_error *err)
{
    struct kernels_running *running = argument;
    const struct erg_kernels_options *options = &running->options;
    struct erg_kernel_lanes lanes;
    int rule;
    if (!options->files || options->file_count == 0)
        return erg_fail(err, ERG_USAGE, "kernels come from traces; expected one or more files");
    if (erg_door_choice(&rule, "categories", options->categories, ERG_WORDS_CATEGORIES, err) != 0)
        return -1;
    rule = rule < 0 ? ERG_KERNEL_RULE_ERGON : rule;
    int result = erg_kernel_import(&lanes, options->files, options->file_count,
                                   (enum erg_kernel_rule)rule, options->recording, err);
    if (result == 0) {
        struct erg_kernels *kernels = erg_xcalloc(1, sizeof *kernels);
        kernels->count = lanes.count;
        kernels->gpus = erg_xcalloc(lanes.count, sizeof *kernels->gpus);
        for (size_t i = 0; i < lanes.count; i++)
            kernels->gpus[i] = gpu_of(kernels, &lanes.items[i]);
        kernels->json = document(kernels, &lanes, (enum erg_kernel_rule)rule);
        kernels->text = written(kernels, erg_kernels_print);
        kernels->csv = written(kernels, erg_kernels_print_csv);
        running->kernels = kernels;
    }
    erg_kernel_lanes_release(&lanes);
    return result;
}

int erg_kernels_import(struct erg_kernels **kernels, const struct erg_kernels_options *options,
                       struct erg_error *err)
{
    struct kernels_running running = {0};
    if (erg_sized_take(&running.options, sizeof running.options, options, "erg_kernels_options",
                       err) != 0 ||
        erg_call_run(run, &running, running.options.watch, err) != 0)
        return -1;
    *kernels = running.kernels;
    return 0;
}

void erg_kernels_free(struct erg_kernels *kernels)
{
    if (!kernels)
        return;
    free(kernels->gpus);
    free(kernels->json);
    free(kernels->text);
    free(kernels->csv);
    erg_arena_release(&kernels->arena);
    free(kernels);
}

size_t erg_kernels_gpus(const struct erg_kernels *kernels)
{
    return kernels->count;
}

int erg_kernels_gpu(const struct erg_kernels *kernels, size_t index, struct erg_kernels_gpu *gpu,
                    struct erg_error *err)
{
    if (index >= kernels->count)
        return erg_fail(err, ERG_USAGE, "GPU %zu of %zu; expected one below %zu", index,
                        kernels->count, kernels->count);
    return erg_sized_give(gpu, &kernels->gpus[index], sizeof *kernels->gpus, "erg_kernels_gpu",
                          err);
}

const char *erg_kernels_category_name(int category)
{
    return category >= 0 && category < ERG_CATEGORIES ? erg_kernel_category_names[category] : NULL;
}

const char *erg_kernels_json(const struct erg_kernels *kernels)
{
    return kernels->json;
}

const char *erg_kernels_text(const struct erg_kernels *kernels)
{
    return kernels->text;
}

const char *erg_kernels_csv(const struct erg_kernels *kernels)
{
    return kernels->csv;
}
