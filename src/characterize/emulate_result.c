/* The result of an emulated point: its metrics, and those of every GPU and stage. */
#include "characterize/emulate_internal.h"
#include "characterize/emulate_kernels.h"
#include "characterize/emulate_recording.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/statistics.h"
#include "layout/time/time.h"
#include "thermal/virtual_sensor.h"
#include "trace/kernel_record.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory on the package is assumed to be warmer than the die, by this many K per W of its own
 * power. */
static const double memory_over_die_k = 6, memory_k_per_w = 0.02;

/* Relative standard deviations of repeats, as on the emulated device (device/emulated). */
static const double run_time_noise = 0.003, run_energy_noise = 0.005;

/* ---- values over time ---- */

/* A value and its duration. */
struct weighted {
    double value, weight;
};

struct weighted_list {
    struct weighted *items;
    size_t count, capacity;
};

static void add(struct weighted_list *list, double value, double weight)
{
    ERG_PUSH(list, items, (struct weighted){value, weight});
}

/* The value that is exceeded for a hundredth of the time. Sorts the list. */
static double hundredth(struct weighted_list *list)
{
    double sum = 0, above = 0;
    size_t i = list->count;
    qsort(list->items, list->count, sizeof *list->items, erg_compare_doubles);
    for (size_t k = 0; k < list->count; k++)
        sum += list->items[k].weight;
    while (i > 1 && above + list->items[i - 1].weight <= 0.01 * sum)
        above += list->items[--i].weight;
    return i ? list->items[i - 1].value : NAN;
}

/* ---- one GPU ---- */

/* Its power and temperature over an iteration, and the readings of its sensors. */
struct gpu_series {
    struct weighted_list power, temperature;
    struct erg_series power_w, temperature_c; /* three iterations; the middle one is evaluated */
};

static void release_series(struct gpu_series *series)
{
    free(series->power.items);
    free(series->temperature.items);
    erg_series_release(&series->power_w);
    erg_series_release(&series->temperature_c);
}

static void list_series(struct gpu_series *series, const struct emulation *emulation,
                        const struct emulated_rank *gpu)
{
    const struct emulated_lane *lane = erg_emulation_lane(emulation, gpu);
    double *ripple_k = erg_xcalloc(lane->count, sizeof *ripple_k);
    *series = (struct gpu_series){0};
    erg_emulation_ripple(emulation, gpu, ripple_k);
    for (int iteration = 0; iteration < 3; iteration++) {
        assert(lane->count > 0);
        double before_s = 0, before_k = ripple_k[lane->count - 1];
        for (size_t i = 0; i < lane->count; i++) {
            const struct emulated_phase *phase = &lane->items[i];
            const double power_w = erg_emulation_phase_w(emulation, gpu, phase);
            const double from_s = (iteration - 1) * emulation->time_s + before_s;
            erg_series_add(&series->power_w, from_s, power_w);
            erg_series_add(&series->temperature_c, from_s, gpu->mean_c + before_k);
            if (iteration == 0) {
                add(&series->power, power_w, phase->end_s - before_s);
                add(&series->temperature, gpu->mean_c + 0.5 * (before_k + ripple_k[i]),
                    phase->end_s - before_s);
            }
            before_s = phase->end_s;
            before_k = ripple_k[i];
        }
    }
    free(ripple_k);
}

static struct erg_result_series extremes(struct weighted_list *list)
{
    struct erg_result_series series = {.p99 = hundredth(list), .sensor_peak = NAN};
    double sum = 0;
    for (size_t i = 0; i < list->count; i++) {
        series.mean += list->items[i].value * list->items[i].weight;
        sum += list->items[i].weight;
    }
    assert(list->count > 0 && sum > 0);
    series.mean /= sum;
    series.least = list->items[0].value;
    series.peak = list->items[list->count - 1].value;
    return series;
}

/* The extremes of the temperature are at the ends of phases. */
static void widen(struct erg_result_series *series, const struct erg_series *temperature_c)
{
    for (size_t i = 0; i < temperature_c->count; i++) {
        series->least = fmin(series->least, temperature_c->value[i]);
        series->peak = fmax(series->peak, temperature_c->value[i]);
    }
}

/* ---- windows ---- */

/* The readings of a GPU's sensors in a window. */
struct sensed {
    double energy_j, power_w, peak_w, temperature_c, peak_c;
};

static bool is_exact(const struct emulation *emulation)
{
    return !strcmp(emulation->point->measuring->sensor, "exact");
}

static struct sensed look(const struct emulation *emulation, const struct gpu_series *series,
                          uint64_t key)
{
    const double lag_s = emulation->heated ? emulation->chassis.sensor_lag_s : 0;
    const struct erg_virtual_sensor sensor = erg_virtual_sensor_hopper(key, lag_s);
    const double asked_s = 1e-3 * emulation->point->measuring->record_period_ms;
    const double period_s = fmax(asked_s, emulation->time_s / ERG_EMULATE_READS);
    const size_t reads = (size_t)ceil(emulation->time_s / period_s);
    double *at_s = erg_xcalloc(reads, sizeof *at_s);
    int64_t *shown_c = erg_xcalloc(reads, sizeof *shown_c);
    struct sensed seen = {
        .energy_j =
            1e-3 * (double)(erg_virtual_energy(&sensor, &series->power_w, emulation->time_s) -
                            erg_virtual_energy(&sensor, &series->power_w, 0))};
    for (size_t i = 0; i < reads; i++)
        at_s[i] = (double)i * period_s;
    erg_virtual_temperatures(&sensor, &series->temperature_c, at_s, reads, shown_c);
    for (size_t i = 0; i < reads; i++) {
        const double power_w = erg_virtual_power(&sensor, &series->power_w, at_s[i]);
        const double held_s = fmin(period_s, emulation->time_s - at_s[i]);
        seen.power_w += power_w * held_s / emulation->time_s;
        seen.peak_w = fmax(seen.peak_w, power_w);
        seen.temperature_c += (double)shown_c[i] * held_s / emulation->time_s;
        seen.peak_c = fmax(seen.peak_c, (double)shown_c[i]);
    }
    free(at_s);
    free(shown_c);
    return seen;
}

/* The exact sensor reads the true value. */
static struct sensed look_exactly(const struct emulation *emulation,
                                  const struct erg_result_gpu *gpu)
{
    return (struct sensed){gpu->power_w.mean * emulation->time_s, gpu->power_w.mean,
                           gpu->power_w.peak, gpu->temperature_c.mean, gpu->temperature_c.peak};
}

/* ---- GPUs ---- */

static void fill_shares(struct erg_result_gpu *into, const struct emulation *emulation,
                        const struct emulated_rank *gpu)
{
    const struct emulated_lane *lane = erg_emulation_lane(emulation, gpu);
    double busy_s = 0, clock_mhz_s = 0, cap_s = 0, heat_s = 0, before_s = 0, rest_s = 0;
    for (size_t i = 0; i < lane->count; i++) {
        const struct emulated_phase *phase = &lane->items[i];
        const double time_s = phase->end_s - before_s;
        before_s = phase->end_s;
        if (phase->pass < 0 && phase->kind != EMULATED_OPTIMIZER) {
            rest_s += time_s;
            continue;
        }
        const struct emulated_pass *pass = phase->pass < 0 ? NULL : &gpu->passes[phase->pass];
        const double works_s = time_s - (pass ? pass->wait_s : 0);
        busy_s += works_s;
        rest_s += time_s - works_s;
        clock_mhz_s += works_s * (pass ? pass->clock_mhz : gpu->passes[0].clock_mhz);
        cap_s += pass ? pass->cap_s : 0;
        heat_s += pass ? pass->heat_s : 0;
    }
    const double waiting_mhz = erg_emulation_waiting_mhz(gpu);
    into->busy_share = busy_s / emulation->time_s;
    assert(busy_s > 0); /* each GPU has a pass */
    into->busy_clock_mhz = clock_mhz_s / busy_s;
    into->clock_mhz = (clock_mhz_s + rest_s * waiting_mhz) / emulation->time_s;
    into->cap_share = cap_s / busy_s;
    into->thermal_share = heat_s / busy_s;
}

static void fill_bytes(struct erg_result_bytes *into, const struct erg_link_bytes *bytes,
                       double host_bytes)
{
    const struct erg_link_bytes sum = erg_links_sum(bytes);
    *into = (struct erg_result_bytes){sum.nvlink, sum.network + host_bytes, sum.network};
}

/* Bytes of activations copied to host memory in an iteration; as many are copied back. */
static double host_bytes(const struct emulation *emulation, const struct emulated_rank *gpu)
{
    const struct erg_layout *layout = &emulation->layout;
    const double offload = erg_layout_offload(layout, gpu->stage);
    const enum erg_recompute recompute = erg_layout_recompute(layout, gpu->stage);
    const long layers = erg_layout_stage_layers(layout, emulation->model.layers, gpu->stage);
    return offload > 0 ? offload * emulation->parts.copy_s[recompute] *
                             erg_time_copy_rate(&emulation->request.time) *
                             (double)(layers * layout->microbatches)
                       : 0;
}

static const char *slot_of(const struct emulation *emulation, const struct emulated_rank *gpu)
{
    if (!emulation->heated)
        return NULL;
    return emulation->chassis.slots[gpu->local].position == ERG_SLOT_FRONT ? "front" : "rear";
}

static void fill_gpu(struct erg_result_gpu *into, const struct emulation *emulation, long rank,
                     const struct erg_links *links, struct gpu_series *series)
{
    const struct emulated_rank *gpu = &emulation->gpu_at[rank];
    const double host = host_bytes(emulation, gpu);
    erg_result_gpu_init(into);
    assert(gpu->stage < emulation->layout.pipeline && gpu->data < emulation->layout.data);
    into->rank = rank;
    into->node = gpu->node;
    into->local = gpu->local;
    into->slot = slot_of(emulation, gpu);
    into->tensor = gpu->tensor;
    into->context = gpu->context;
    into->data = gpu->data;
    into->expert = gpu->data % erg_layout_experts(&emulation->layout);
    into->stage = gpu->stage;
    list_series(series, emulation, gpu);
    into->power_w = extremes(&series->power);
    into->temperature_c = extremes(&series->temperature);
    widen(&into->temperature_c, &series->temperature_c);
    const double memory_k = memory_over_die_k + memory_k_per_w * gpu->hbm_w;
    into->memory_temperature_c.mean = into->temperature_c.mean + memory_k;
    into->memory_temperature_c.least = into->temperature_c.least + memory_k;
    into->memory_temperature_c.peak = into->temperature_c.peak + memory_k;
    into->energy_j = gpu->power_w * emulation->time_s;
    fill_shares(into, emulation, gpu);
    fill_bytes(&into->sent, links->gpu[rank].sent, host);
    fill_bytes(&into->received, links->gpu[rank].received, host);
}

/* ---- the cluster ---- */

static void fold_series(struct erg_result_series *all, const struct erg_result_series *own,
                        size_t gpus)
{
    all->mean += own->mean / (double)gpus;
    all->least = fmin(all->least, own->least);
    all->peak = fmax(all->peak, own->peak);
    all->sensor_peak = fmax(all->sensor_peak, own->sensor_peak);
}

static double imbalance(double most, double mean)
{
    return mean > 0 ? most / mean : NAN;
}

static void fold_gpus(struct erg_study_result *result)
{
    struct erg_result_metrics *metrics = &result->metrics;
    const struct erg_result_series none = {0, INFINITY, -INFINITY, -INFINITY, NAN};
    struct erg_result_series power = none, temperature = none;
    double most_w = 0, most_c = 0, most_busy = 0, busy = 0, clock = 0, busy_clock = 0, cap = 0;
    double heat = 0, memory_c = 0, memory_peak_c = 0;
    struct erg_result_bytes sent = {0};
    for (size_t i = 0; i < result->gpu_count; i++) {
        const struct erg_result_gpu *gpu = &result->gpu[i];
        const double share = 1 / (double)result->gpu_count;
        fold_series(&power, &gpu->power_w, result->gpu_count);
        fold_series(&temperature, &gpu->temperature_c, result->gpu_count);
        most_w = fmax(most_w, gpu->power_w.mean);
        most_c = fmax(most_c, gpu->temperature_c.mean);
        most_busy = fmax(most_busy, gpu->busy_share);
        busy += share * gpu->busy_share;
        clock += share * gpu->clock_mhz;
        busy_clock += gpu->busy_share * gpu->busy_clock_mhz * share;
        cap += gpu->busy_share * gpu->cap_share * share;
        heat += gpu->busy_share * gpu->thermal_share * share;
        memory_c += share * gpu->memory_temperature_c.mean;
        memory_peak_c = fmax(memory_peak_c, gpu->memory_temperature_c.peak);
        sent.nvlink += gpu->sent.nvlink;
        sent.pcie += gpu->sent.pcie;
        sent.network += gpu->sent.network;
    }
    power.p99 = metrics->power_w.p99;
    temperature.p99 = metrics->temperature_c.p99;
    metrics->power_w = power;
    metrics->temperature_c = temperature;
    metrics->memory_temperature_c.mean = memory_c;
    metrics->memory_temperature_c.peak = memory_peak_c;
    metrics->clock_mhz = clock;
    assert(busy > 0 && busy < 1 + 1e-9);
    metrics->busy_clock_mhz = busy_clock / busy;
    metrics->cap_share = cap / busy;
    metrics->thermal_share = heat / busy;
    metrics->bytes = sent;
    metrics->power_imbalance = imbalance(most_w, power.mean);
    metrics->temperature_imbalance = imbalance(most_c, temperature.mean);
    metrics->busy_imbalance = imbalance(most_busy, busy);
}

static void fill_network_use(const struct emulation *emulation, struct erg_study_result *result)
{
    const double bandwidth = emulation->point->machine->cluster->inter_node_bandwidth;
    if (bandwidth > 0)
        result->metrics.network_use = result->metrics.bytes.network / (double)emulation->nodes /
                                      (bandwidth * emulation->time_s);
}

static void fill_rates(const struct emulation *emulation, struct erg_study_result *result)
{
    struct erg_result_metrics *metrics = &result->metrics;
    const struct erg_layout *layout = &emulation->layout;
    const double samples = (double)erg_layout_batch(layout);
    const double tokens = samples * (double)layout->sequence;
    assert(result->gpu_count == (size_t)emulation->gpus);
    const double peak = emulation->gpu.stated_flops > 0 ? emulation->gpu.stated_flops
                                                        : erg_gpu_peak_flops(&emulation->gpu);
    double energy_j = 0;
    for (size_t i = 0; i < result->gpu_count; i++)
        energy_j += result->gpu[i].energy_j;
    metrics->time_s = emulation->time_s;
    metrics->samples_per_s = samples / emulation->time_s;
    metrics->tokens_per_s_gpu = tokens / emulation->time_s / (double)emulation->gpus;
    metrics->mfu =
        erg_time_mfu(&emulation->model, layout->sequence, metrics->tokens_per_s_gpu, peak);
    metrics->energy_j = energy_j;
    metrics->j_per_token = energy_j / tokens;
    metrics->tokens_per_j = tokens / energy_j;
    metrics->eff_edp = metrics->samples_per_s / (1e-6 * energy_j);
}

/* ---- stages ---- */

static void fill_stage(struct erg_result_stage *into, const struct emulation *emulation, long stage,
                       double *exposed_s)
{
    const struct erg_layout *layout = &emulation->layout;
    const double share = 1 / (double)emulation->ranks;
    *into = (struct erg_result_stage){
        .stage = stage,
        .layers = erg_layout_stage_layers(layout, emulation->model.layers, stage),
    };
    for (long rank = stage * emulation->ranks; rank < (stage + 1) * emulation->ranks; rank++) {
        const struct emulated_rank *gpu = &emulation->gpu_at[rank];
        const struct emulated_lane *lane = erg_emulation_lane(emulation, gpu);
        double before_s = 0;
        for (size_t i = 0; i < lane->count; i++) {
            const struct emulated_phase *phase = &lane->items[i];
            const double time_s = share * (phase->end_s - before_s);
            before_s = phase->end_s;
            if (phase->pass >= 0) {
                const struct emulated_pass *pass = &gpu->passes[phase->pass];
                double *own = phase->pass % 2 ? &into->backward_s : &into->forward_s;
                *own += share * (pass->own_s - pass->head_s);
                into->head_s += share * pass->head_s;
                into->spin_s += share * pass->spin_s;
                *exposed_s += share * pass->exposed_s;
            } else if (phase->kind == EMULATED_WAIT) {
                into->message_s += share * phase->message_s;
                into->wait_s += time_s - share * phase->message_s;
            } else {
                *(phase->kind == EMULATED_GRADIENTS ? &into->gradient_s : &into->optimizer_s) +=
                    time_s;
            }
        }
    }
    into->total_s = emulation->time_s;
    *exposed_s += into->message_s + into->gradient_s;
}

static void fill_stages(const struct emulation *emulation, struct erg_study_result *result)
{
    const long stages = emulation->layout.pipeline;
    double exposed_s = 0, wait_s = 0;
    result->stages = erg_arena_alloc(emulation->arena, (size_t)stages * sizeof *result->stages);
    result->stage_count = (size_t)stages;
    for (long stage = 0; stage < stages; stage++) {
        fill_stage(&result->stages[stage], emulation, stage, &exposed_s);
        wait_s += result->stages[stage].wait_s;
    }
    result->metrics.bubble = wait_s / (double)stages / emulation->time_s;
    result->metrics.exposed_share = exposed_s / (double)stages / emulation->time_s;
}

/* ---- lists ---- */

static void fill_links(const struct emulation *emulation, const struct erg_links *links,
                       struct erg_study_result *result)
{
    result->links = erg_arena_alloc(emulation->arena, ERG_LINK_KINDS * sizeof *result->links);
    for (int kind = 0; kind < ERG_LINK_KINDS; kind++) {
        struct erg_result_link link = {.kind = erg_link_kind_name((enum erg_link_kind)kind)};
        for (long rank = 0; rank < links->gpus; rank++) {
            link.nvlink += links->gpu[rank].sent[kind].nvlink;
            link.network += links->gpu[rank].sent[kind].network;
        }
        if (link.nvlink > 0 || link.network > 0)
            result->links[result->link_count++] = link;
    }
}

/* One entry per stage, of its first GPU. */
static void fill_kernels(const struct emulation *emulation, struct erg_study_result *result)
{
    const long stages = emulation->layout.pipeline;
    result->kernels = erg_arena_alloc(emulation->arena, (size_t)stages * sizeof *result->kernels);
    for (long stage = 0; stage < stages; stage++) {
        const long rank = stage * emulation->ranks;
        struct erg_result_kernels *into = &result->kernels[result->kernels_count++];
        struct erg_emulated_kernels kernels;
        erg_emulation_kernels(&kernels, emulation, &emulation->gpu_at[rank]);
        *into = (struct erg_result_kernels){
            .rank = rank, .stage = stage, .idle_s = kernels.idle_s, .idle_j = kernels.idle_j};
        into->categories =
            erg_arena_alloc(emulation->arena, ERG_CATEGORIES * sizeof *into->categories);
        for (int i = 0; i < ERG_CATEGORIES; i++) {
            const struct erg_emulated_kernel *own = &kernels.category[i];
            into->categories[into->category_count++] = (struct erg_result_category){
                .name = erg_kernel_category_names[i],
                .summed_s = own->summed_s,
                .exposed_s = own->exposed_s,
                .wait_s = own->wait_s,
                .count = own->count,
                .energy_j = own->energy_j,
            };
        }
    }
}

static void fill_items(const struct emulation *emulation, struct erg_study_result *result)
{
    struct erg_time time;
    struct erg_layout_energy energy;
    struct erg_arena *arena = emulation->arena;
    struct erg_layout_energy_request request = emulation->request;
    request.gpu = emulation->point->machine->gpu; /* without the point's power limit */
    erg_time_layout(&time, &request.time, &emulation->layout);
    erg_layout_energy_whole(&energy, &request, &emulation->layout);
    result->time_s.items = erg_arena_alloc(arena, ERG_TIME_ITEMS * sizeof *result->time_s.items);
    for (int i = 0; i < ERG_TIME_ITEMS; i++)
        result->time_s.items[result->time_s.count++] =
            (struct erg_result_item){erg_time_item_name((enum erg_time_item)i), time.items[i]};
    result->energy_j.items =
        erg_arena_alloc(arena, ERG_LAYOUT_ENERGY_ITEMS * sizeof *result->energy_j.items);
    for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++)
        result->energy_j.items[result->energy_j.count++] = (struct erg_result_item){
            erg_layout_energy_item_name((enum erg_layout_energy_item)i), energy.items[i]};
}

static void fill_course(const struct emulation *emulation, struct erg_study_result *result)
{
    const size_t bytes = emulation->course.count * sizeof *result->course;
    if (emulation->course.count == 0)
        return;
    result->course = erg_arena_alloc(emulation->arena, bytes);
    memcpy(result->course, emulation->course.items, bytes);
    result->course_count = emulation->course.count;
}

static void add_flag(struct erg_study_result *result, const char *flag)
{
    assert(result->flag_count < 4); /* within the allocated length */
    result->flags[result->flag_count++] = flag;
}

static void fill_flags(const struct emulation *emulation, struct erg_study_result *result)
{
    result->flags = erg_arena_alloc(emulation->arena, 4 * sizeof *result->flags);
    if (emulation->course.count > 0)
        add_flag(result, "not steady: the last iteration after a cold start");
    else if (!emulation->settled)
        add_flag(result,
                 erg_arena_printf(
                     emulation->arena,
                     "not steady: temperatures and times were still changing after %u rounds",
                     emulation->rounds));
    if (!emulation->heated)
        add_flag(result, "no chassis: the temperature of a GPU depends only on its own power");
}

/* ---- repeats ---- */

static void add_repeat(struct erg_result_repeat *repeat, const struct sensed *seen, size_t gpus)
{
    repeat->sensor_energy_j += seen->energy_j;
    repeat->mean_power_w += seen->power_w / (double)gpus;
    repeat->sensor_peak_power_w = fmax(repeat->sensor_peak_power_w, seen->peak_w);
    repeat->mean_temperature_c += seen->temperature_c / (double)gpus;
    repeat->sensor_peak_temperature_c = fmax(repeat->sensor_peak_temperature_c, seen->peak_c);
}

/* Time and energy vary a little between runs; the exact sensor omits this variation. */
static void take_noise(const struct emulation *emulation, struct erg_result_repeat *repeat,
                       uint64_t key)
{
    const bool exact = is_exact(emulation);
    const double time = exact ? 1 : exp(run_time_noise * erg_hash_normal(erg_hash_at(key, 0)));
    const double energy = exact ? 1 : exp(run_energy_noise * erg_hash_normal(erg_hash_at(key, 1)));
    repeat->time_s *= time;
    repeat->energy_j *= energy;
    repeat->sensor_energy_j *= energy;
    repeat->mean_power_w *= energy / time;
}

static void finish_repeats(const struct emulation *emulation, struct erg_study_result *result)
{
    struct erg_result_metrics *metrics = &result->metrics;
    double least_s = INFINITY, most_s = 0, sensor_j = 0;
    for (size_t i = 0; i < result->repeat_count; i++) {
        struct erg_result_repeat *repeat = &result->repeats[i];
        sensor_j += repeat->sensor_energy_j / (double)result->repeat_count;
        repeat->time_s = metrics->time_s;
        repeat->energy_j = metrics->energy_j;
        take_noise(emulation, repeat,
                   erg_hash_at(erg_hash_at(emulation->point->measuring->seed, 0), i));
        least_s = fmin(least_s, repeat->time_s);
        most_s = fmax(most_s, repeat->time_s);
    }
    metrics->sensor_energy_j = sensor_j;
    if (result->repeat_count > 1)
        metrics->noise = most_s / least_s - 1;
}

/* ---- the whole result ---- */

uint64_t erg_emulation_sensor_key(const struct emulation *emulation, size_t repeat, long rank)
{
    return erg_hash_at(erg_hash_at(emulation->point->measuring->seed, 1 + repeat), (uint64_t)rank);
}

static void fill_gpus(const struct emulation *emulation, const struct erg_links *links,
                      struct erg_study_result *result)
{
    struct weighted_list power = {0}, temperature = {0};
    const size_t gpus = (size_t)emulation->gpus;
    const long repeats = emulation->point->measuring->repeats;
    result->gpu = erg_arena_alloc(emulation->arena, gpus * sizeof *result->gpu);
    result->gpu_count = gpus;
    result->repeat_count = (size_t)(repeats > 1 ? repeats : 1);
    result->repeats =
        erg_arena_alloc(emulation->arena, result->repeat_count * sizeof *result->repeats);
    memset(result->repeats, 0, result->repeat_count * sizeof *result->repeats);
    for (long rank = 0; rank < emulation->gpus; rank++) {
        struct erg_result_gpu *gpu = &result->gpu[rank];
        struct gpu_series series;
        fill_gpu(gpu, emulation, rank, links, &series);
        for (size_t i = 0; i < result->repeat_count; i++) {
            const struct sensed seen =
                is_exact(emulation)
                    ? look_exactly(emulation, gpu)
                    : look(emulation, &series, erg_emulation_sensor_key(emulation, i, rank));
            add_repeat(&result->repeats[i], &seen, gpus);
            gpu->power_w.sensor_peak =
                i ? fmax(gpu->power_w.sensor_peak, seen.peak_w) : seen.peak_w;
            gpu->temperature_c.sensor_peak =
                i ? fmax(gpu->temperature_c.sensor_peak, seen.peak_c) : seen.peak_c;
        }
        for (size_t i = 0; i < series.power.count; i++)
            add(&power, series.power.items[i].value, series.power.items[i].weight);
        for (size_t i = 0; i < series.temperature.count; i++)
            add(&temperature, series.temperature.items[i].value,
                series.temperature.items[i].weight);
        release_series(&series);
    }
    result->metrics.power_w.p99 = hundredth(&power);
    result->metrics.temperature_c.p99 = hundredth(&temperature);
    free(power.items);
    free(temperature.items);
}

void erg_emulation_fill_result(const struct emulation *emulation, struct erg_study_result *result)
{
    const struct erg_links_request request = erg_emulation_links(emulation);
    struct erg_links links;
    erg_links_init(&links, &request);
    result->status = ERG_RESULT_OK;
    result->source = ERG_RESULT_EMULATED;
    fill_gpus(emulation, &links, result);
    fill_rates(emulation, result);
    fold_gpus(result);
    fill_network_use(emulation, result);
    fill_stages(emulation, result);
    fill_kernels(emulation, result);
    fill_links(emulation, &links, result);
    fill_items(emulation, result);
    finish_repeats(emulation, result);
    fill_course(emulation, result);
    fill_flags(emulation, result);
    erg_links_release(&links);
}
