/*
 * Search quality over the 88 partitions of the ten published workloads on the emulated A100-40.
 *
 *   bench_search [SEEDS [PART-OF-A-ROW'S-NAME]]   (one seed otherwise; targets are of ten)
 *
 * HV: true hypervolume of the chosen configs / that of the exhaustive frontier, in (t, E - 85 W t),
 * reference = worst of the exhaustive frontier + 10% of its range; median / 5th percentile /
 * minimum over partitions x seeds, in %. Loss: what a planner loses that trusts the estimates:
 * partitions of one direction share a clock; for 26 prices of time each takes the config that
 * looks best, the clock is the best by true cost; (cost - exhaustive cost) / energy, mean over the
 * prices; median / 95th percentile / maximum over workload x direction x seed, in %.
 *
 * Noise: lognormal per measurement, time 0.3%, energy 1%, swept times 0.6%. Smooth truth: the
 * emulated device. Rough truth: ln t plus N(0, 1%) per (slot, SMs), common to all clocks, plus
 * N(0, 0.5%) per config; ln E plus 0.5 times the former and N(0, 0.7%) per (slot, SMs), plus
 * N(0, 0.5%) per config.
 *
 * What limits the search on rough truth (24 measurements, sweep 1, 5 seeds): with the true energies
 * in place of the estimated ones its fronts reach 99.65/98.88/98.34, with the true
 * times 98.8/97.2/95.3; telling it the roughness (98.5/96.2/93.5) or the smooth part (calibrated
 * prior and sweep 3: 98.5/96.4/93.7) gains almost nothing. Two dozen energy readings of 1% noise
 * are the limit, not the model.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/thread.h"
#include "device/emulated/emulated.h"
#include "hardware/hardware.h"
#include "model/model.h"
#include "partition/partition.h"
#include "search/boost_internal.h"
#include "search/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKLOADS = 10, MAX_PARTITIONS = 16, PRICES = 26 };

enum truth { SMOOTH, ROUGH };
enum prior_kind { NO_PRIOR, OFF_BY_15, CALIBRATED, CALIBRATED_WRONG_STRUCTURE };

struct row {
    const char *name;
    enum erg_search_method method;
    double share;  /* of the published budget (random, trees); 0 = absolute budget */
    size_t budget; /* GP */
    size_t start;  /* GP; 0 = default */
    size_t sweep;
    double stop;
    bool raw, noiseless;
    enum prior_kind prior;
    const char *target_smooth, *target_rough; /* what must be reached; NULL = no target */
};

#define GP(budget_, sweep_) .method = ERG_SEARCH_GP, .budget = (budget_), .sweep = (sweep_)

static const struct row rows[] = {
    {"exhaustive, noise off", ERG_SEARCH_EXHAUSTIVE, .noiseless = true, .target_smooth = "100"},
    {"exhaustive, one noisy pass", ERG_SEARCH_EXHAUSTIVE, .target_smooth = "99.4 +- 0.2, min 97.5"},
    {"random 25%", ERG_SEARCH_RANDOM, .share = 0.25, .target_smooth = "95.3 +- 0.5"},
    {"random 50%", ERG_SEARCH_RANDOM, .share = 0.50, .target_smooth = "97.3 +- 0.5"},
    {"random 100%", ERG_SEARCH_RANDOM, .share = 1.0, .target_smooth = "98.4 +- 0.5"},
    {"trees raw 25%", ERG_SEARCH_TREES, .share = 0.25, .raw = true, .target_smooth = "93.5 +- 0.7"},
    {"trees raw 50%", ERG_SEARCH_TREES, .share = 0.50, .raw = true, .target_smooth = "97.1 +- 0.7"},
    {"trees raw 100%", ERG_SEARCH_TREES, .share = 1.0, .raw = true, .target_smooth = "98.3 +- 0.7"},
    {"gp sweep 1, 12", GP(12, 1), .target_smooth = "99.5 97.5; loss 0.5"},
    {"gp sweep 1, 16", GP(16, 1), .target_smooth = "99.6 98 95; loss 0.35, p95 1"},
    {"gp sweep 1, 24", GP(24, 1), .target_smooth = "99.7 98.5 96.5; loss 0.3",
     .target_rough = "98 95.5; loss 0.9"},
    {"gp no sweep, 24", GP(24, 0), .target_smooth = "99.4 96.5"},
    {"gp sweep 1, stop 0.01", GP(28, 1), .stop = 0.01,
     .target_smooth = "99.6, evaluations 18 at most 28"},
    {"gp sweep 3, 15% prior, 6", GP(6, 3), .start = 6, .prior = OFF_BY_15,
     .target_smooth = "99.2 96"},
    {"gp sweep 3, calibrated prior, 10", GP(10, 3), .start = 6, .prior = CALIBRATED,
     .target_smooth = "99.7 99"},
    {"gp sweep 3, calibrated wrong structure, 10", GP(10, 3), .start = 6,
     .prior = CALIBRATED_WRONG_STRUCTURE, .target_smooth = "99.4 97"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static const struct {
    const char *model;
    int tensor, context, microbatch_size, sequence;
} published[WORKLOADS] = {
    {"llama-3.2-3b", 8, 1, 8, 4096}, {"llama-3.2-3b", 4, 2, 8, 4096},
    {"llama-3.2-3b", 4, 2, 8, 8192}, {"llama-3.2-3b", 4, 2, 16, 4096},
    {"qwen3-1.7b", 8, 1, 8, 4096},   {"qwen3-1.7b", 8, 1, 8, 8192},
    {"qwen3-1.7b", 8, 1, 16, 4096},  {"qwen3-1.7b", 4, 2, 8, 4096},
    {"qwen3-1.7b", 4, 2, 8, 8192},   {"qwen3-1.7b", 4, 2, 16, 4096},
};

/* One partition with its grid and exact behaviour; shared by all runs, never changed. */
struct problem {
    const struct erg_partition *partition;
    struct erg_space space;
    size_t size;
    double *time_s, *energy_j; /* [size] */
};

static struct erg_workload workloads[WORKLOADS];
static struct problem problems[WORKLOADS][MAX_PARTITIONS];
static struct erg_gpu *gpu;
static struct erg_stack *stack;
static int *clocks_mhz;
static size_t clock_count;

static size_t partition_count(size_t workload)
{
    return workloads[workload].forward_count + workloads[workload].backward_count;
}

static int predict(const struct problem *p, const struct erg_gpu *on, const struct erg_stack *with,
                   const size_t *configs, size_t count, double *time_s, double *energy_j,
                   struct erg_error *err)
{
    for (size_t i = 0; i < count; i++) {
        struct erg_choice c = erg_space_choice(&p->space, configs[i]);
        struct erg_step step = erg_partition_step(p->partition, c.slot, p->space.sms[c.sm]);
        struct erg_emulated_result out;
        if (erg_emulated_run(on, with, &step, 1, clocks_mhz[c.clock], &out, err))
            return -1;
        time_s[i] = out.time_s;
        energy_j[i] = out.energy_j;
    }
    return 0;
}

static int make_problem(struct problem *p, const struct erg_partition *partition,
                        struct erg_error *err)
{
    p->partition = partition;
    p->space = (struct erg_space){clocks_mhz, clock_count, partition->sms, partition->sms_count,
                                  partition->slot_count};
    p->size = erg_space_size(&p->space);
    p->time_s = erg_xcalloc(p->size, sizeof(double));
    p->energy_j = erg_xcalloc(p->size, sizeof(double));
    size_t *all = erg_xcalloc(p->size, sizeof *all);
    for (size_t i = 0; i < p->size; i++)
        all[i] = i;
    int status = predict(p, gpu, stack, all, p->size, p->time_s, p->energy_j, err);
    free(all);
    return status;
}

/* A problem with its truth for one seed, as an oracle. */
struct world {
    const struct problem *problem;
    double *time_s, *energy_j;
    uint64_t key;
    bool noiseless;
    size_t asked; /* measurements so far: part of each draw's key */
    /* The prior's device, where a row uses one. */
    struct erg_gpu prior_gpu;
    struct erg_stack prior_stack;
};

static void make_world(struct world *w, const struct problem *p, enum truth truth, uint64_t key)
{
    *w = (struct world){.problem = p, .key = key};
    w->time_s = erg_xcalloc(2 * p->size, sizeof(double));
    w->energy_j = w->time_s + p->size;
    for (size_t i = 0; i < p->size; i++) {
        struct erg_choice c = erg_space_choice(&p->space, i);
        uint64_t launch = erg_hash_u64(key, 1000000 + c.slot * 1000 + c.sm);
        uint64_t config = erg_hash_u64(key, 2000000 + i);
        double shared = erg_hash_normal(launch);
        double t = 0.010 * shared + 0.005 * erg_hash_normal(config);
        double e = 0.005 * shared + 0.007 * erg_hash_normal(erg_hash_u64(launch, 7)) +
                   0.005 * erg_hash_normal(erg_hash_u64(config, 7));
        w->time_s[i] = p->time_s[i] * (truth == ROUGH ? exp(t) : 1.0);
        w->energy_j[i] = p->energy_j[i] * (truth == ROUGH ? exp(e) : 1.0);
    }
}

static double noisy(struct world *w, double value, double sd, uint64_t kind)
{
    uint64_t key = erg_hash_u64(erg_hash_u64(w->key, kind), w->asked);
    return w->noiseless ? value : value * exp(sd * erg_hash_normal(key));
}

static int measure(void *context, size_t config, struct erg_measurement *out, struct erg_error *err)
{
    (void)err;
    struct world *w = context;
    w->asked++;
    out->time_s = noisy(w, w->time_s[config], 0.003, 11);
    out->energy_j = noisy(w, w->energy_j[config], 0.010, 12);
    return 0;
}

static int measure_time(void *context, size_t config, struct erg_measurement *out,
                        struct erg_error *err)
{
    (void)err;
    struct world *w = context;
    w->asked++;
    out->time_s = noisy(w, w->time_s[config], 0.006, 13);
    return 0;
}

/* The wrong structure: no contention, no wave quantisation, no join, no cap, no slope below the
 * voltage knee. */
static void make_prior_device(struct world *w, enum prior_kind kind)
{
    w->prior_gpu = *gpu;
    w->prior_stack = *stack;
    if (kind == CALIBRATED_WRONG_STRUCTURE) {
        w->prior_gpu.comm_contention = 0;
        w->prior_gpu.wave_weight = 0;
        w->prior_stack.join_grid_s = 0;
        w->prior_gpu.power_cap_w = 1e6;
        w->prior_gpu.voltage_slope_low_per_ghz = 0;
    }
    size_t count;
    const struct erg_calibratable *constants = erg_emulated_calibratables(&count);
    double off[64] = {0}; /* the truth is a draw of the constants around what we believe */
    for (size_t k = 0; k < count; k++)
        off[k] = constants[k].log_sd * erg_hash_normal(erg_hash_u64(w->key, 3000000 + k));
    struct erg_gpu gpu_out;
    struct erg_stack stack_out;
    erg_emulated_calibrate(&w->prior_gpu, &w->prior_stack, off, &gpu_out, &stack_out);
    w->prior_gpu = gpu_out;
    w->prior_stack = stack_out;
}

static int predict_prior(void *context, const double *log_factors, const size_t *configs,
                         size_t count, double *time_s, double *energy_j, struct erg_error *err)
{
    struct world *w = context;
    struct erg_gpu gpu_out;
    struct erg_stack stack_out;
    erg_emulated_calibrate(&w->prior_gpu, &w->prior_stack, log_factors, &gpu_out, &stack_out);
    return predict(w->problem, &gpu_out, &stack_out, configs, count, time_s, energy_j, err);
}

static int predict_fixed(void *context, const double *log_factors, const size_t *configs,
                         size_t count, double *time_s, double *energy_j, struct erg_error *err)
{
    (void)log_factors;
    struct world *w = context;
    return predict(w->problem, &w->prior_gpu, &w->prior_stack, configs, count, time_s, energy_j,
                   err);
}

static double dynamic_j(double time_s, double energy_j)
{
    return energy_j - gpu->blocking_power_w * time_s;
}

static double hypervolume_percent(const struct world *w, const struct erg_search_result *result)
{
    struct erg_frontier all = {0}, chosen = {0}, estimated = {0};
    for (size_t i = 0; i < w->problem->size; i++)
        erg_frontier_add(&all, w->time_s[i], dynamic_j(w->time_s[i], w->energy_j[i]), (int64_t)i);
    erg_frontier_filter(&all);
    const struct erg_point *first = &all.points[0], *last = &all.points[all.count - 1];
    double t = last->time_s + 0.1 * (last->time_s - first->time_s);
    double e = first->energy_j + 0.1 * (first->energy_j - last->energy_j);
    erg_search_front(result, gpu->blocking_power_w, &estimated);
    for (size_t i = 0; i < estimated.count; i++) {
        size_t c = (size_t)estimated.points[i].recipe;
        erg_frontier_add(&chosen, w->time_s[c], dynamic_j(w->time_s[c], w->energy_j[c]),
                         (int64_t)c);
    }
    double share = erg_frontier_hypervolume(&chosen, t, e) / erg_frontier_hypervolume(&all, t, e);
    erg_frontier_release(&all);
    erg_frontier_release(&chosen);
    erg_frontier_release(&estimated);
    return 100.0 * share;
}

/* Time and energy of the config of a clock that looks best at a price of time. */
struct pick {
    double time_s, energy_j;
};

static bool pick_at_clock(const struct world *w, const struct erg_search_result *result,
                          size_t clock, double price_w, struct pick *pick)
{
    double best = INFINITY;
    size_t per_clock = w->problem->size / clock_count;
    for (size_t i = clock * per_clock; i < (clock + 1) * per_clock; i++) {
        double t = w->time_s[i], e = w->energy_j[i];
        if (result) {
            if (result->table[i].knowledge == ERG_UNKNOWN)
                continue;
            t = result->table[i].time_s;
            e = result->table[i].energy_j;
        }
        if (e + price_w * t < best) {
            best = e + price_w * t;
            *pick = (struct pick){w->time_s[i], w->energy_j[i]};
        }
    }
    return best < INFINITY;
}

/* The composed microbatch of least true cost; NULL results = by the truth itself. */
static struct pick compose(struct world *const *worlds, struct erg_search_result *const *results,
                           size_t count, double price_w)
{
    struct pick best = {0, 0};
    double best_cost = INFINITY;
    for (size_t clock = 0; clock < clock_count; clock++) {
        struct pick sum = {0, 0}, one = {0, 0};
        bool complete = true;
        for (size_t i = 0; i < count && complete; i++) {
            complete = pick_at_clock(worlds[i], results ? results[i] : NULL, clock, price_w, &one);
            sum.time_s += worlds[i]->problem->partition->occurrences * one.time_s;
            sum.energy_j += worlds[i]->problem->partition->occurrences * one.energy_j;
        }
        double cost = sum.energy_j + price_w * sum.time_s;
        if (complete && cost < best_cost) {
            best_cost = cost;
            best = sum;
        }
    }
    return best;
}

static double composed_loss_percent(struct world *const *worlds,
                                    struct erg_search_result *const *results, size_t count)
{
    double loss = 0.0;
    for (int k = 0; k < PRICES; k++) {
        double price = k ? 15.0 * pow(100.0, (k - 1) / (PRICES - 2.0)) : 0.0;
        struct pick ours = compose(worlds, results, count, price);
        struct pick best = compose(worlds, NULL, count, price);
        loss += (ours.energy_j + price * ours.time_s - best.energy_j - price * best.time_s) /
                best.energy_j / PRICES;
    }
    return 100.0 * loss;
}

/* One workload under one seed: the unit of parallel work. */
struct outcome {
    double hv[MAX_PARTITIONS], own_s[MAX_PARTITIONS], evaluations[MAX_PARTITIONS];
    double loss[2]; /* forward, backward */
};

struct study {
    const struct row *row;
    enum truth truth;
    size_t seeds;
    struct outcome *outcomes; /* [WORKLOADS * seeds] */
};

/* Sizes of the published tree search: large for runs of the MLP or of all attention. */
static void published_sizes(const struct erg_partition *p, size_t *start, size_t *batches,
                            size_t *batch)
{
    bool large = strstr(p->key, "_mlp") || strstr(p->key, "_attn");
    bool medium = strstr(p->key, "_qkv");
    *start = large ? 96 : medium ? 48 : 36;
    *batches = large || medium ? 4 : 3;
    *batch = large ? 32 : 16;
}

static void set_options(struct erg_search_options *options, const struct row *row,
                        const struct erg_partition *p, uint64_t seed)
{
    erg_search_defaults(options, row->method, p->run_ops);
    options->seed = seed;
    options->blocking_power_w = gpu->blocking_power_w;
    options->stop_ratio = row->stop;
    options->raw_units = row->raw;
    if (row->method == ERG_SEARCH_GP) {
        options->budget = row->budget;
        options->sweep_clocks = row->sweep;
        if (row->start)
            options->start = row->start;
    } else {
        size_t start, batches, batch;
        published_sizes(p, &start, &batches, &batch);
        options->start = (size_t)lround(row->share * (double)start);
        options->batch = (size_t)lround(row->share * (double)batch);
        options->budget = options->start + batches * options->batch;
    }
}

static int search_one(const struct study *study, struct world *w, uint64_t seed,
                      struct erg_search_result **result, double *own_s, struct erg_error *err)
{
    const struct row *row = study->row;
    w->noiseless = row->noiseless;
    struct erg_oracle oracle = {measure, measure_time, w};
    struct erg_search_options options;
    set_options(&options, row, w->problem->partition, seed);
    double sd[64];
    struct erg_prior prior = {.predict = predict_fixed, .context = w};
    if (row->prior != NO_PRIOR) {
        make_prior_device(w, row->prior);
        options.prior = &prior;
        if (row->prior != OFF_BY_15) {
            const struct erg_calibratable *constants =
                erg_emulated_calibratables(&prior.parameter_count);
            for (size_t k = 0; k < prior.parameter_count; k++)
                sd[k] = constants[k].log_sd;
            prior.predict = predict_prior;
            prior.parameter_sd = sd;
        }
    }
    double start = erg_cpu_seconds();
    int status = erg_search_run(result, &w->problem->space, &options, &oracle, err);
    *own_s = erg_cpu_seconds() - start;
    return status;
}

static int run_unit(void *context, size_t unit, struct erg_error *err)
{
    const struct study *study = context;
    size_t workload = unit / study->seeds, count = partition_count(workload);
    uint64_t seed = unit % study->seeds + 1;
    struct outcome *out = &study->outcomes[unit];
    struct world *worlds[MAX_PARTITIONS] = {0};
    struct erg_search_result *results[MAX_PARTITIONS] = {0};
    int status = 0;
    for (size_t i = 0; i < count && !status; i++) {
        worlds[i] = erg_xmalloc(sizeof *worlds[i]);
        uint64_t key = erg_hash_u64(erg_hash_u64(seed, workload), i);
        make_world(worlds[i], &problems[workload][i], study->truth, key);
        status = search_one(study, worlds[i], key, &results[i], &out->own_s[i], err);
        if (status)
            break;
        out->hv[i] = hypervolume_percent(worlds[i], results[i]);
        out->evaluations[i] = (double)results[i]->evaluation_count;
    }
    size_t forward = workloads[workload].forward_count;
    if (!status) {
        out->loss[0] = composed_loss_percent(worlds, results, forward);
        out->loss[1] = composed_loss_percent(worlds + forward, results + forward, count - forward);
    }
    for (size_t i = 0; i < count; i++) {
        erg_search_free(results[i]);
        if (worlds[i])
            free(worlds[i]->time_s);
        free(worlds[i]);
    }
    return status;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t count, double share)
{
    double at = share * (double)(count - 1);
    size_t low = (size_t)at;
    if (low + 1 >= count)
        return sorted[count - 1];
    return sorted[low] + (at - (double)low) * (sorted[low + 1] - sorted[low]);
}

static int run_study(const struct study *study, struct erg_error *err)
{
    size_t units = WORKLOADS * study->seeds, partitions = 0, losses = 0;
    if (erg_parallel_for(units, 0, run_unit, (void *)(uintptr_t)study, err))
        return -1;
    double *hv = erg_xcalloc(4 * units * MAX_PARTITIONS, sizeof *hv);
    double *own = hv + units * MAX_PARTITIONS, *evaluations = own + units * MAX_PARTITIONS,
           *loss = evaluations + units * MAX_PARTITIONS, own_sum = 0.0;
    for (size_t u = 0; u < units; u++) {
        const struct outcome *o = &study->outcomes[u];
        for (size_t i = 0; i < partition_count(u / study->seeds); i++) {
            hv[partitions] = o->hv[i];
            evaluations[partitions] = o->evaluations[i];
            own_sum += own[partitions++] = o->own_s[i];
        }
        loss[losses++] = o->loss[0];
        loss[losses++] = o->loss[1];
    }
    qsort(hv, partitions, sizeof *hv, ascending);
    qsort(own, partitions, sizeof *own, ascending);
    qsort(evaluations, partitions, sizeof *evaluations, ascending);
    qsort(loss, losses, sizeof *loss, ascending);
    const char *target =
        study->truth == SMOOTH ? study->row->target_smooth : study->row->target_rough;
    printf("%-43s %-6s | %6.2f %6.2f %6.2f | %5.2f %5.2f %5.2f | %4.0f %4.0f %4.0f | %6.1f %6.1f "
           "| %s\n",
           study->row->name, study->truth == SMOOTH ? "smooth" : "rough",
           quantile(hv, partitions, 0.5), quantile(hv, partitions, 0.05), hv[0],
           quantile(loss, losses, 0.5), quantile(loss, losses, 0.95), loss[losses - 1],
           quantile(evaluations, partitions, 0.5), quantile(evaluations, partitions, 0.95),
           evaluations[partitions - 1], 1e3 * own_sum / (double)partitions,
           1e3 * own[partitions - 1], target ? target : "");
    fflush(stdout);
    free(hv);
    return 0;
}

static int make_workload(size_t w, struct erg_error *err)
{
    struct erg_model *model = NULL;
    if (erg_model_load(&model, published[w].model, err))
        return -1;
    struct erg_workload_request request = {.model = model,
                                           .gpu = gpu,
                                           .stack = stack,
                                           .tensor = published[w].tensor,
                                           .context = published[w].context,
                                           .microbatch_size = published[w].microbatch_size,
                                           .sequence = published[w].sequence,
                                           .recompute = true};
    int status = erg_workload_build(&workloads[w], &request, err);
    erg_model_free(model);
    for (size_t i = 0; !status && i < partition_count(w); i++)
        status = make_problem(&problems[w][i], &workloads[w].partitions[i], err);
    return status;
}

static int make_all(struct erg_error *err)
{
    if (erg_gpu_load(&gpu, "A100-SXM4-40GB", err) ||
        erg_stack_load(&stack, "published-python", err))
        return -1;
    clock_count = (size_t)((gpu->search_max_mhz - gpu->search_min_mhz) / gpu->search_step_mhz) + 1;
    clocks_mhz = erg_xcalloc(clock_count, sizeof *clocks_mhz);
    for (size_t i = 0; i < clock_count; i++)
        clocks_mhz[i] = gpu->search_min_mhz + (int)i * gpu->search_step_mhz;
    for (size_t w = 0; w < WORKLOADS; w++)
        if (make_workload(w, err))
            return -1;
    return 0;
}

static int run_all(size_t seeds, const char *part, struct erg_error *err)
{
    if (make_all(err))
        return -1;
    size_t partitions = 0;
    for (size_t w = 0; w < WORKLOADS; w++)
        partitions += partition_count(w);
    printf("%zu seeds x %zu partitions\n%-50s | HV %%: med p5 min    | loss %%: med p95 max | "
           "evaluations    | own ms mean, max | target\n",
           seeds, partitions, "");
    struct outcome *outcomes = erg_xcalloc(WORKLOADS * seeds, sizeof *outcomes);
    int status = 0;
    struct erg_boost boost;
    const bool trees = erg_boost_open(&boost, err) == 0;
    if (!trees)
        printf("(without the rows of trees: %s)\n", err->message);
    for (size_t r = 0; r < ROWS && !status; r++) {
        if ((part && !strstr(rows[r].name, part)) || (!trees && rows[r].method == ERG_SEARCH_TREES))
            continue;
        for (int truth = SMOOTH; truth <= ROUGH && !status; truth++) {
            struct study study = {&rows[r], (enum truth)truth, seeds, outcomes};
            status = run_study(&study, err);
        }
    }
    free(outcomes);
    return status;
}

int main(int argc, char **argv)
{
    struct erg_error err;
    long seeds = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
    if (seeds < 1 || run_all((size_t)seeds, argc > 2 ? argv[2] : NULL, &err)) {
        fprintf(stderr, "bench_search: %s\n", seeds < 1 ? "seeds must be positive" : err.message);
        return 1;
    }
    return 0;
}
