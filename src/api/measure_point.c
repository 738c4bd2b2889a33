/* Points of a study measured on this machine, by `ergon train`, with their emulated twins. */
#define _DEFAULT_SOURCE /* realpath */
#include "api/measure_point.h"

#include "characterize/emulate_point.h"

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "device/clock_group.h"
#include "io/file.h"
#include "io/json.h"
#include "io/subprocess.h"
#include "io/yaml.h"
#include "job/job.h"
#include "layout/time/time.h"
#include "train/log/rank_meter.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROBE_STEPS = 4, LEAST_WARM_STEPS = 4, MOST_STEPS = 1000000 };
static const double train_limit_s = 4 * 3600;
#define CLOCK_TOLERANCE 0.01 /* a mean clock that differs by less is the one asked for */

struct measured_run {
    const struct erg_measure_context *measuring;
    const struct erg_study_point *point;
    struct erg_arena *arena;
    char *folder;      /* of the runs of this point */
    long warm, window; /* steps */
};

/* ---- what cannot be trained ---- */

static bool has_gpus(const struct erg_study_point *point)
{
    return strcmp(point->measuring->device, "host") != 0;
}

static int refuse(const struct erg_study_point *point, bool lock_clocks, struct erg_error *err)
{
    if (point->clock_mhz > 0 && has_gpus(point) && !lock_clocks)
        return erg_fail(err, ERG_FAILED,
                        "the point asks for %.0f MHz, and clocks are not changed unasked; expected "
                        "--lock-clocks",
                        point->clock_mhz);
    const char *what = point->model->experts.count                ? "mixtures of experts"
                       : point->lora_rank                         ? "adapters"
                       : point->fault_node != ERG_STUDY_NO_NODE   ? "faults"
                       : point->clock_mhz > 0 && !has_gpus(point) ? "clocks of CPUs"
                       : point->power_w > 0                       ? "power limits"
                       : point->placement != ERG_STUDY_GIVEN      ? "placements"
                       : point->machine->cluster->nodes > 1       ? "several nodes"
                                                                  : NULL;
    return what ? erg_fail(err, ERG_FAILED,
                           "points are measured on one unchanged machine, without %s", what)
                : 0;
}

/* ---- the job ---- */

static int write_tokens(const struct measured_run *at, struct erg_error *err)
{
    const struct erg_study_point *point = at->point;
    const size_t count = 2 * (size_t)point->batch * (size_t)(point->layout.sequence + 1);
    uint32_t *tokens = erg_xcalloc(count, sizeof *tokens);
    char *path = erg_file_path(at->folder, "tokens.bin");
    struct erg_rng rng;
    erg_rng_seed(&rng, point->measuring->seed);
    for (size_t i = 0; i < count; i++)
        tokens[i] = (uint32_t)erg_rng_below(&rng, (size_t)erg_model_words(point->model));
    int result = erg_file_write(path, tokens, count * sizeof *tokens, err);
    free(path);
    free(tokens);
    return result;
}

static int add_model(struct erg_text *job, const struct erg_model *model, struct erg_error *err)
{
    char *config = realpath(model->path, NULL);
    if (!config)
        return erg_fail(err, ERG_FAILED, "finding '%s': %s", model->path, strerror(errno));
    *strrchr(config, '/') = '\0';
    erg_text_add(job, "model: ");
    erg_yaml_add_string(job, config);
    erg_text_add(job, "\n");
    free(config);
    return 0;
}

/* A job with the given steps and interval of log lines, and then one traced step. */
static int write_job(const struct measured_run *at, const char *name, long steps, long every,
                     bool traced, struct erg_error *err)
{
    const struct erg_study_point *point = at->point;
    struct erg_text job = {0};
    char *path = erg_file_path(at->folder, name);
    int result = add_model(&job, point->model, err);
    if (result == 0) {
        erg_text_printf(&job, "cluster: {nodes: 1, gpus_per_node: %d, gpu: ",
                        point->machine->cluster->gpus_per_node);
        erg_yaml_add_string(&job, point->machine->cluster->gpu);
        erg_text_printf(&job, ", gpus_used: %ld}\n", erg_layout_gpus(&point->layout));
        erg_job_write_layout(&job, &point->layout);
        erg_text_printf(&job,
                        "train:\n  data: [{file: tokens.bin, type: uint32}]\n  updates: %ld\n"
                        "  learning_rate: 0.0001\n  log_every: %ld\n  sequence_parallel: %s\n"
                        "  checkpoint: {keep: 0}\n",
                        traced ? steps + 1 : steps, every,
                        point->layout.tensor > 1 && point->machine->engine->sequence_parallel
                            ? "true"
                            : "false");
        if (traced)
            erg_text_printf(&job, "  trace_every: %ld\n  trace_kernels: %s\n", steps + 1,
                            has_gpus(point) ? "true" : "false");
        result = erg_file_write(path, job.data, job.count, err);
    }
    free(path);
    erg_text_release(&job);
    return result;
}

/* ---- runs ---- */

/* Runs the job into FOLDER/run, which is gone before. */
static int train(const struct measured_run *at, const char *job, const char *recording,
                 struct erg_error *err)
{
    const struct erg_study_point *point = at->point;
    const char *program = at->measuring->program, *words[32];
    char ranks[24], *run = erg_file_path(at->folder, "run"), *file = erg_file_path(at->folder, job);
    struct erg_subprocess process = {0};
    size_t count = 0;
    snprintf(ranks, sizeof ranks, "%ld", erg_layout_gpus(&point->layout));
    if (recording) {
        const char *const record[] = {program, "record", "--quiet", "-o", recording, "--"};
        for (size_t i = 0; i < sizeof record / sizeof *record; i++)
            words[count++] = record[i];
    }
    if (erg_layout_gpus(&point->layout) > 1) {
        const char *const several[] = {program, "run", "-n", ranks, "--"};
        for (size_t i = 0; i < sizeof several / sizeof *several; i++)
            words[count++] = several[i];
    }
    assert(count + 8 <= sizeof words / sizeof *words); /* with those below */
    const char *const trained[] = {
        program, "train", file, "--output", run, "--device", point->measuring->device, NULL};
    for (size_t i = 0; i < sizeof trained / sizeof *trained; i++)
        words[count++] = trained[i];
    erg_subprocess_remove(run);
    if (recording)
        unlink(recording);
    int result = erg_subprocess_run(&process, words, NULL, train_limit_s, err);
    if (result == 0 && erg_interrupted())
        result = erg_interrupt_check(err);
    if (result == 0 && (process.status != 0 || process.late))
        result = erg_fail(err, ERG_FAILED, "training it: %.700s", erg_subprocess_reason(&process));
    erg_subprocess_release(&process);
    free(run);
    free(file);
    return result;
}

/* ---- the log ---- */

/* A line of it: a window of steps. */
struct measured_window {
    long step, steps;
    double step_s, energy_j, bubble_s, exposed_s;
    const json_t *power_w, *clock_mhz, *temperature_c, *reasons; /* by rank */
    json_t *line;
};
struct measured_windows {
    struct measured_window *items;
    size_t count, capacity;
};

static void read_window(struct measured_windows *windows, json_t *line)
{
    const json_t *part;
    const char *key;
    struct measured_window window = {
        .step = (long)erg_json_number_or(line, "step", NAN),
        .steps = (long)erg_json_number_or(line, "window_steps", NAN),
        .step_s = erg_json_number_or(json_object_get(line, "step_ms"), "mean", NAN) / 1e3,
        .energy_j = erg_json_number_or(line, "energy_j", NAN),
        .bubble_s = erg_json_number_or(line, "bubble_ms", NAN) / 1e3,
        .power_w = json_object_get(line, "power_w"),
        .clock_mhz = json_object_get(line, "clock_mhz"),
        .temperature_c = json_object_get(line, "temperature_c"),
        .reasons = json_object_get(line, "throttle_reasons"),
        .line = line,
    };
    json_object_foreach((json_t *)json_object_get(line, "exposed_ms"), key, part)
        window.exposed_s += json_number_value(part) / 1e3;
    ERG_PUSH(windows, items, window);
}

static void release_windows(struct measured_windows *windows)
{
    for (size_t i = 0; i < windows->count; i++)
        json_decref(windows->items[i].line);
    free(windows->items);
}

static int read_log(const struct measured_run *at, struct measured_windows *windows,
                    struct erg_error *err)
{
    char *run = erg_file_path(at->folder, "run"), *path = erg_file_path(run, "metrics.jsonl"),
         *text;
    int result = erg_file_read(path, 0, &text, NULL, err);
    *windows = (struct measured_windows){0};
    for (char *rest = result == 0 ? text : NULL; rest && *rest && result == 0;) {
        size_t length = strcspn(rest, "\n");
        json_t *line;
        result = erg_json_parse(&line, path, rest, length, err);
        if (result == 0)
            read_window(windows, line);
        rest += length + (rest[length] == '\n');
    }
    if (result == 0)
        free(text);
    free(path);
    free(run);
    return result;
}

/* Seconds of a step, by a short run. */
static int time_step(const struct measured_run *at, double *step_s, struct erg_error *err)
{
    struct measured_windows windows;
    if (write_job(at, "probe.yaml", PROBE_STEPS, 1, false, err) != 0 ||
        train(at, "probe.yaml", NULL, err) != 0 || read_log(at, &windows, err) != 0)
        return -1;
    *step_s = INFINITY; /* the first steps choose their kernels */
    for (size_t i = 0; i < windows.count; i++)
        *step_s = fmin(*step_s, windows.items[i].step_s);
    release_windows(&windows);
    return isfinite(*step_s) && *step_s > 0
               ? 0
               : erg_fail(err, ERG_FAILED, "training it: the log lacks the time of a step");
}

/* ---- what windows say ---- */

/* An item of a list by rank; NaN: not known. */
static double of_rank(const json_t *list, size_t rank)
{
    const json_t *value = json_array_get(list, rank);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double mean_of_ranks(const json_t *list, size_t ranks)
{
    double sum = 0;
    for (size_t i = 0; i < ranks; i++)
        sum += of_rank(list, i);
    return sum / (double)ranks;
}

static double most_of_ranks(const json_t *list, size_t ranks)
{
    double most = NAN;
    for (size_t i = 0; i < ranks; i++)
        most = fmax(most, of_rank(list, i));
    return most;
}

/* The share of windows in which a rank was held down for that reason; NaN: not known. */
static double held_share(const struct measured_windows *windows, size_t first, size_t rank,
                         const char *reason)
{
    double held = 0;
    for (size_t w = first; w < windows->count; w++) {
        const json_t *reasons = json_array_get(windows->items[w].reasons, rank), *one;
        size_t i;
        if (!json_is_array(reasons))
            return NAN;
        json_array_foreach(reasons, i, one) if (!strcmp(json_string_value(one), reason)) held +=
            1 / (double)(windows->count - first);
    }
    return held;
}

/* A quantity of a rank over the windows. */
static struct erg_result_series series_of(const struct measured_windows *windows, size_t first,
                                          const json_t *(*of)(const struct measured_window *window),
                                          size_t rank)
{
    struct erg_result_series series = {NAN, NAN, NAN, NAN, NAN};
    double sum = 0;
    for (size_t w = first; w < windows->count; w++) {
        const double value = of_rank(of(&windows->items[w]), rank);
        sum += value / (double)(windows->count - first);
        series.least = fmin(series.least, value);
        series.sensor_peak = fmax(series.sensor_peak, value);
    }
    series.mean = sum;
    return series;
}

static const json_t *power_of(const struct measured_window *window)
{
    return window->power_w;
}

static const json_t *temperature_of(const struct measured_window *window)
{
    return window->temperature_c;
}

static const json_t *clock_of(const struct measured_window *window)
{
    return window->clock_mhz;
}

static void fill_gpus(const struct measured_run *at, const struct measured_windows *windows,
                      size_t first, struct erg_study_result *result)
{
    const struct erg_layout *layout = &at->point->layout;
    const size_t gpus = (size_t)erg_layout_gpus(layout);
    result->gpu = erg_arena_alloc(at->arena, gpus * sizeof *result->gpu);
    result->gpu_count = gpus;
    for (size_t i = 0; i < gpus; i++) {
        const long rank = (long)i, inner = layout->tensor * layout->context;
        result->gpu[i] = (struct erg_result_gpu){
            .rank = rank,
            .local = rank,
            .tensor = rank % layout->tensor,
            .context = rank / layout->tensor % layout->context,
            .data = rank / inner % layout->data,
            .stage = rank / (inner * layout->data),
            .power_w = series_of(windows, first, power_of, i),
            .temperature_c = series_of(windows, first, temperature_of, i),
            .memory_temperature_c = {NAN, NAN, NAN, NAN, NAN},
            .energy_j = NAN,
            .busy_share = NAN,
            .clock_mhz = series_of(windows, first, clock_of, i).mean,
            .busy_clock_mhz = NAN,
            .cap_share = held_share(windows, first, i, "power"),
            .thermal_share = held_share(windows, first, i, "heat"),
            .sent = {NAN, NAN, NAN},
            .received = {NAN, NAN, NAN},
        };
    }
}

static struct erg_result_series over_gpus(const struct erg_study_result *result, size_t offset)
{
    struct erg_result_series all = {0, NAN, NAN, NAN, NAN};
    for (size_t i = 0; i < result->gpu_count; i++) {
        struct erg_result_series own;
        memcpy(&own, (const char *)&result->gpu[i] + offset, sizeof own);
        all.mean += own.mean / (double)result->gpu_count;
        all.least = fmin(all.least, own.least);
        all.sensor_peak = fmax(all.sensor_peak, own.sensor_peak);
    }
    return all;
}

static void fill_metrics(const struct measured_run *at, const struct measured_windows *windows,
                         size_t first, struct erg_study_result *result)
{
    const struct erg_study_point *point = at->point;
    struct erg_result_metrics *m = &result->metrics;
    const double count = (double)(windows->count - first), gpus = (double)result->gpu_count;
    assert(first < windows->count && result->gpu_count > 0);
    const double tokens = (double)point->batch * (double)point->layout.sequence;
    double shortest = INFINITY, longest = 0;
    m->time_s = m->energy_j = m->bubble = m->exposed_share = m->clock_mhz = 0;
    for (size_t i = first; i < windows->count; i++) {
        const struct measured_window *window = &windows->items[i];
        assert(window->steps > 0);
        m->time_s += window->step_s / count;
        m->energy_j += window->energy_j / (double)window->steps / count;
        m->bubble += window->bubble_s / window->step_s / count;
        m->exposed_share += window->exposed_s / window->step_s / count;
        shortest = fmin(shortest, window->step_s);
        longest = fmax(longest, window->step_s);
    }
    for (size_t i = 0; i < result->gpu_count; i++)
        m->clock_mhz += result->gpu[i].clock_mhz / gpus;
    m->sensor_energy_j = m->energy_j;
    m->energy_j = m->sensor_energy_j; /* the only source */
    m->samples_per_s = (double)point->batch / m->time_s;
    m->tokens_per_s_gpu = tokens / m->time_s / gpus;
    if (has_gpus(point))
        m->mfu = erg_time_mfu(point->model, point->layout.sequence, m->tokens_per_s_gpu,
                              point->machine->engine->peak_flops);
    m->tokens_per_j = tokens / m->energy_j;
    m->j_per_token = m->energy_j / tokens;
    m->eff_edp = m->samples_per_s / (m->energy_j / 1e6);
    m->power_w = over_gpus(result, offsetof(struct erg_result_gpu, power_w));
    m->temperature_c = over_gpus(result, offsetof(struct erg_result_gpu, temperature_c));
    if (windows->count - first > 1)
        m->noise = longest / shortest - 1;
}

static void fill_repeats(const struct measured_run *at, const struct measured_windows *windows,
                         size_t first, struct erg_study_result *result)
{
    const size_t gpus = result->gpu_count;
    result->repeat_count = windows->count - first;
    result->repeats = erg_arena_alloc(at->arena, result->repeat_count * sizeof *result->repeats);
    for (size_t i = 0; i < result->repeat_count; i++) {
        const struct measured_window *window = &windows->items[first + i];
        const double energy = window->energy_j / (double)window->steps;
        result->repeats[i] = (struct erg_result_repeat){
            .time_s = window->step_s,
            .energy_j = energy,
            .sensor_energy_j = energy,
            .mean_power_w = mean_of_ranks(window->power_w, gpus),
            .sensor_peak_power_w = most_of_ranks(window->power_w, gpus),
            .mean_temperature_c = mean_of_ranks(window->temperature_c, gpus),
            .sensor_peak_temperature_c = most_of_ranks(window->temperature_c, gpus),
        };
    }
}

/* How fast the hottest GPU warms up over the windows, K a minute; NaN: not known. */
static double slope_of(const struct measured_windows *windows, size_t first, size_t gpus)
{
    const struct measured_window *a = &windows->items[first],
                                 *b = &windows->items[windows->count - 1];
    const double minutes = (erg_json_number_or(b->line, "time_unix_s", NAN) -
                            erg_json_number_or(a->line, "time_unix_s", NAN)) /
                           60;
    return minutes > 0
               ? (most_of_ranks(b->temperature_c, gpus) - most_of_ranks(a->temperature_c, gpus)) /
                     minutes
               : (double)NAN;
}

static void add_flag(const struct measured_run *at, struct erg_study_result *result,
                     const char *flag)
{
    const char **flags =
        erg_arena_alloc(at->arena, (result->flag_count + 1) * sizeof(const char *));
    for (size_t i = 0; i < result->flag_count; i++)
        flags[i] = result->flags[i];
    flags[result->flag_count++] = flag;
    result->flags = flags;
}

static int fill_result(const struct measured_run *at, const struct measured_windows *windows,
                       struct erg_study_result *result, struct erg_error *err)
{
    size_t first = 0;
    while (first < windows->count &&
           (windows->items[first].step <= at->warm || windows->items[first].steps != at->window))
        first++;
    if (first == windows->count)
        return erg_fail(err, ERG_FAILED, "training it: the log has no window of %ld steps",
                        at->window);
    result->source = ERG_RESULT_MEASURED;
    result->status = ERG_RESULT_OK;
    fill_gpus(at, windows, first, result);
    fill_metrics(at, windows, first, result);
    fill_repeats(at, windows, first, result);
    const double slope = slope_of(windows, first, result->gpu_count);
    if (fabs(slope) > at->point->measuring->settle_k_per_min)
        add_flag(at, result,
                 erg_arena_printf(at->arena,
                                  "not steady: the hottest GPU changes by %.1f K a minute, %g are "
                                  "taken for steady",
                                  slope, at->point->measuring->settle_k_per_min));
    if (at->point->overlap)
        add_flag(
            at, result,
            "ergon train always overlaps as much as it can: the point's overlap has no effect");
    return 0;
}

/* ---- clocks ---- */

/* The GPUs of the ranks, locked at a point's clock. */
struct held_clock {
    struct erg_gpus *gpus;
    struct erg_clock_group *group;
};

static int hold_clock(struct held_clock *held, const struct erg_study_point *point,
                      struct erg_error *err)
{
    const size_t ranks = (size_t)erg_layout_gpus(&point->layout);
    size_t *members;
    *held = (struct held_clock){0};
    if (!(point->clock_mhz > 0))
        return 0;
    if (erg_gpus_open(&held->gpus, NULL, err) != 0)
        return -1;
    members = erg_xcalloc(ranks, sizeof *members);
    int status = 0;
    for (size_t i = 0; i < ranks && status == 0; i++)
        status = erg_rank_find_gpu(held->gpus, NULL, (int)i, &members[i], err);
    if (status == 0)
        status = erg_clock_group_open(&held->group, held->gpus, members, ranks, err);
    if (status == 0)
        status = erg_clock_group_set(held->group, (int)point->clock_mhz, err);
    free(members);
    return status;
}

/* The GPUs get their own clocks again; fails if one may still be locked. */
static int give_clock_back(struct held_clock *held, struct erg_error *err)
{
    const int status = erg_clock_group_close(held->group, err);
    erg_gpus_close(held->gpus);
    *held = (struct held_clock){0};
    return status;
}

/* Says where GPUs did not run at the clock that they were locked at. */
static void compare_clock(const struct measured_run *at, struct erg_study_result *result)
{
    const double asked_mhz = at->point->clock_mhz, had_mhz = result->metrics.clock_mhz;
    if (asked_mhz > 0 && !(fabs(had_mhz - asked_mhz) <= CLOCK_TOLERANCE * asked_mhz))
        add_flag(at, result,
                 erg_arena_printf(at->arena, "locked at %.0f MHz, the GPUs ran at %.0f MHz",
                                  asked_mhz, had_mhz));
}

/* ---- a point ---- */

static long round_up(double steps)
{
    return (long)fmin(MOST_STEPS, ceil(steps));
}

static int measure(struct measured_run *at, struct erg_study_result *result, struct erg_error *err)
{
    const struct erg_study_measurement *measuring = at->point->measuring;
    struct measured_windows windows;
    double step_s;
    if (erg_dir_make(at->folder, err) != 0 || write_tokens(at, err) != 0 ||
        time_step(at, &step_s, err) != 0)
        return -1;
    at->window = round_up(fmax(1, measuring->window_s / step_s));
    at->warm = round_up(fmin((double)measuring->settle_most_iterations,
                             fmax(LEAST_WARM_STEPS, measuring->settle_s / step_s)));
    at->warm = (at->warm + at->window - 1) / at->window * at->window;
    assert(at->window > 0 && at->warm % at->window == 0);
    const long steps = at->warm + measuring->repeats * at->window;
    char *recording =
        erg_arena_printf(at->arena, "%s/points/%s.rec", at->measuring->folder, at->point->id);
    if (write_job(at, "job.yaml", steps, at->window, measuring->trace_stages, err) != 0 ||
        train(at, "job.yaml", has_gpus(at->point) ? recording : NULL, err) != 0 ||
        read_log(at, &windows, err) != 0)
        return -1;
    while (windows.count > 0 && windows.items[windows.count - 1].step > steps)
        json_decref(windows.items[--windows.count].line); /* of the traced step */
    int result_status = fill_result(at, &windows, result, err);
    release_windows(&windows);
    return result_status;
}

/* The same point on an emulated cluster, for a comparison. An impossible point is not a failure. */
static int emulate_twin(const struct measured_run *at, struct erg_error *err)
{
    struct erg_study_result twin;
    struct erg_error reason;
    char *folder = erg_file_path(at->measuring->folder, "twins"), name[32], *path;
    json_t *keys = erg_study_keys(at->point);
    erg_study_result_init(&twin);
    if (erg_emulate_point(NULL, at->point, &twin, at->arena, &reason) != 0) {
        erg_study_result_init(&twin);
        twin.status = ERG_RESULT_FAILED;
        twin.message = erg_arena_strdup(at->arena, reason.message);
    }
    snprintf(name, sizeof name, "%s.json", at->point->id);
    path = erg_file_path(folder, name);
    twin.id = at->point->id;
    twin.point = keys;
    int result = erg_dir_make(folder, err);
    if (result == 0)
        result = erg_study_result_write(&twin, path, err);
    json_decref(keys);
    free(folder);
    free(path);
    return result;
}

int erg_measure_point(void *context, const struct erg_study_point *point,
                      struct erg_study_result *result, struct erg_arena *arena,
                      struct erg_error *err)
{
    const struct erg_measure_context *measuring = context;
    struct measured_run at = {.measuring = measuring, .point = point, .arena = arena};
    struct erg_text folder = {0};
    if (refuse(point, measuring->lock_clocks, err) != 0)
        return -1;
    erg_text_printf(&folder, "%s/runs/%s", measuring->folder, point->id);
    at.folder = folder.data;
    struct held_clock held;
    struct erg_error later = {0};
    int status = hold_clock(&held, point, err) || measure(&at, result, err) ? -1 : 0;
    const int given = give_clock_back(&held, status == 0 ? err : &later);
    status = status == 0 ? given : status;
    if (status == 0)
        compare_clock(&at, result);
    if (status == 0)
        status = emulate_twin(&at, err);
    erg_text_release(&folder);
    return status;
}
