/*
 * The iteration solver: CPU seconds for the whole frontier, its growth with stages, microbatches
 * and options, memory, and what rounding to measured options costs.
 *
 * Peers (recorded on the same models, CPU seconds, whole frontier): lowtime 0.2.0 in Python and a
 * cold-started C++ Phillips-Dessouky. Tables of the growth cases are curves of an A100-like GPU,
 * every (stage, direction) distorted so that no two are equal, which is the hardest case.
 *
 * Loss is against the continuous plan at the same deadline, which options with gaps between them
 * cannot reach. Lower bounds proved by branch and bound on one binary variable per instruction and
 * option, those left out whose reduced cost exceeds the gap (HiGHS, 4 x 12: CP-SAT; 100 to 150 s),
 * in % of the continuous plan, with the best assignment known:
 *   measured A100 tables, distorted, 2 x 8, T = 1.312 s   at least 0.069, known 0.129
 *   the same, 4 x 8, T = 1.578 s                          at least 0.017, known 0.155
 *   the same, 4 x 16, shortest time                       at least 0.041, known 0.154
 *   Bloom on A40, 4 of the stages x 12, T = 5.786 s       at least 0.006, known 0.137
 *   Bloom on A40, 8 x 12, T = 7.230 s                     at least 0.022, known 0.228
 *   Bloom on A40, 8 x 48, T = 21.425 s                    at least 0.023, known 0.196
 * So a loss of zero is out of reach; what lies between the two numbers is open. How much is depends
 * on how many instructions there are to share what is left over: of one forward and one backward of
 * the measured A100 table, all 38 clocks, the best pair of all loses up to 0.875 %.
 *
 * In the steady state of 1F1B the pair of stages s and s + 1 takes, in each cycle, as long as the
 * slower of the two. So both together cost at least the hull, over times of a cycle, of the
 * cheapest options of both within that time. For 8 stages this bound, summed over disjoint pairs,
 * is on average over the useful times 0.227 % above the continuous cost where A40 clocks are 3 %
 * apart, and 0.345 % with 1 % of noise. The cycles of the rounding use one hull of all stages:
 * 0.408 and 0.705 %. The rounding itself lost 0.449 and 0.639 % of 8 x 96. What lies between the
 * bound and the rounding is open; of patterns over two cycles, 8 x 10 clocks gained 0.02 %.
 *
 * Bloom's forwards on A40 have a gap of 15 ms between two clocks, a tenth of their time. Within it
 * stages that choose an end each microbatch by itself wait for each other; two neighbours mixed at
 * a phase (erg_rounding_mix) change together.
 *
 * What each part of the rounding gains, over 22 profiles (those below, gaps, few points, short and
 * interleaved pipelines), with up to 2 x 24 looks a plan: mean loss in %, and the largest of Bloom
 * on A40, 60 clocks with 1 % of noise, 12 x 48:
 *   all                             0.207  1.33
 *   without mixtures of neighbours  0.214  1.51   of cycles: long pipelines with gaps 0.69, not
 * 0.36 without the beam                0.211  1.29   with gaps 0.52, not 0.36 without copies of
 * microbatches  0.210  1.38 without trades in slices        0.212  1.35 None gains 0.1 % in the
 * mean; they stay for their worst cases. Looking eight times as often gains 0.01 to 0.03 %, a beam
 * of 256 states 0.01 % at four times the CPU time, and so does moving the events of a whole
 * microbatch at once by dynamic programming; annealing of event times nothing. The beam within
 * cycles gains 0.01 %, and up to 0.05 % in the worst cases of wide gaps.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "iteration/rounding_internal.h"
#include "iteration/tables_internal.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const double power_w = 83.64;

struct counts {
    size_t pieces;
    double seconds;
};

static void count_piece(struct timecost_visitor *visitor, int32_t from, int32_t to, int64_t slope)
{
    struct counts *counts = visitor->context;
    (void)from, (void)to, (void)slope;
    counts->pieces++;
}

static double resident_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

/* Of all threads: plans are rounded on all cores. */
static double process_cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* The sweep alone, best of a few runs. */
static struct counts solve(const struct erg_pipeline *pipeline, const struct erg_frontier *given,
                           double tick_s)
{
    struct erg_schedule schedule;
    struct option_tables tables;
    struct timecost_problem problem;
    struct erg_error err;
    if (erg_schedule_init(&schedule, pipeline, &err) != 0 ||
        erg_option_tables_init(&tables, &schedule, given, tick_s, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    erg_option_tables_problem(&tables, &schedule, &problem);
    struct counts best = {.seconds = INFINITY};
    double spent = 0;
    for (int run = 0; run < 3 && spent < 2; run++) {
        struct counts counts = {0};
        struct timecost_visitor visitor = {
            .context = &counts, .deadline = -1, .piece = count_piece};
        double start = erg_cpu_seconds();
        if (erg_timecost_sweep(&problem, &visitor, &err) != 0)
            exit(1);
        counts.seconds = erg_cpu_seconds() - start;
        spent += counts.seconds;
        best = counts.seconds < best.seconds ? counts : best;
    }
    erg_option_tables_problem_release(&problem);
    erg_option_tables_release(&tables);
    erg_schedule_release(&schedule);
    return best;
}

/* --- recorded exponential cases, one option per unit of time --- */

static json_t *load(const char *name, const char *suffix)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/data/perseus_cases/%s%s", ERGON_TEST_SOURCE_DIR, name,
             suffix);
    return json_load_file(path, 0, NULL);
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void recorded(const char *name, double target_s)
{
    json_t *input = load(name, ".json"), *lowtime = load(name, ".lowtime.json");
    json_t *cross = load(name, ".cross.json");
    if (!input || !lowtime || !cross) {
        fprintf(stderr, "the recorded case %s is missing\n", name);
        exit(1);
    }
    struct erg_pipeline pipeline = {.stages = (size_t)number(input, "num_stages"),
                                    .microbatches = (size_t)number(input, "num_microbatches"),
                                    .chunks = 1};
    double unit_s = number(input, "unit_time_s");
    struct erg_frontier *tables = erg_xcalloc(2 * pipeline.stages, sizeof *tables);
    for (size_t t = 0; t < 2 * pipeline.stages; t++) {
        char key[32];
        snprintf(key, sizeof key, "%s_%zu", t % 2 ? "backward" : "forward", t / 2);
        json_t *model = json_object_get(json_object_get(lowtime, "models"), key), *candidate;
        double fast = INFINITY, slow = 0;
        size_t i;
        json_array_foreach(json_object_get(model, "candidates"), i, candidate)
        {
            fast = fmin(fast, number(candidate, "quant_time"));
            slow = fmax(slow, number(candidate, "quant_time"));
        }
        for (double units = fast; units <= slow; units++)
            erg_frontier_add(
                &tables[t], units * unit_s,
                number(model, "a") * exp(number(model, "b") * units) + number(model, "c"), 0);
    }
    struct counts counts = solve(&pipeline, tables, unit_s);
    double peer = number(lowtime, "solve_cpu_seconds");
    printf("%-8s %7zu %9.4f %9.3f %10.1f %10.2f %10.0fx\n", name, counts.pieces, counts.seconds,
           target_s, peer, number(cross, "solve_seconds"), peer / counts.seconds);
    for (size_t t = 0; t < 2 * pipeline.stages; t++)
        erg_frontier_release(&tables[t]);
    free(tables);
    json_decref(input);
    json_decref(lowtime);
    json_decref(cross);
}

/* --- growth --- */

static struct erg_frontier *smooth_tables(size_t count, size_t options)
{
    struct erg_rng rng;
    erg_rng_seed(&rng, 1);
    struct erg_frontier *tables = erg_xcalloc(count, sizeof *tables);
    for (size_t t = 0; t < count; t++) {
        double work = (t % 2 ? 0.093 : 0.050) * (0.97 + 0.06 * erg_rng_uniform(&rng));
        double memory = 0.25 + 0.1 * erg_rng_uniform(&rng);
        for (size_t o = 0; o < options; o++) {
            double f = 1 - 555.0 / 1410 * (double)o / (double)(options - 1);
            double volts = f > 0.65 ? 0.72 + 0.8 * (f - 0.65) : 0.72;
            double time = work * (memory + (1 - memory) / f) * (1 + 0.001 * erg_rng_uniform(&rng));
            double watts = 95 + 390 * f * volts * volts / (memory * f + 1 - memory);
            erg_frontier_add(&tables[t], time, time * watts * (1 + 0.002 * erg_rng_uniform(&rng)),
                             (int64_t)(1410 * f));
        }
    }
    return tables;
}

static int rising(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

enum { POINTS = 25 };

struct losses {
    double mean, p90, most; /* percent of the convex bound at the same deadline */
    double plan_ms;
    double planned_s[2]; /* the range of times that has any plans */
};

static struct losses losses_of(const struct erg_iteration_request *request, double sweep_s)
{
    const struct erg_pipeline *pipeline = &request->pipeline;
    struct erg_iteration iteration;
    struct erg_error err;
    double start = process_cpu_s();
    if (erg_iteration_solve(&iteration, request, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    double seconds = process_cpu_s() - start, mean = 0;
    size_t count = iteration.plan_count;
    double *loss = erg_xcalloc(count, sizeof *loss);
    for (size_t i = 0; i < count; i++) {
        const struct erg_iteration_plan *plan = &iteration.plans[i];
        double held = plan->energy_j + pipeline->blocking_power_w * (double)pipeline->stages *
                                           (plan->planned_time_s - plan->time_s);
        loss[i] = 100 * (held / plan->planned_energy_j - 1);
        mean += loss[i] / (double)count;
    }
    qsort(loss, count, sizeof *loss, rising);
    struct losses losses = {.mean = mean,
                            .p90 = loss[count * 9 / 10],
                            .most = loss[count - 1],
                            .plan_ms = 1e3 * (seconds - sweep_s) / (double)count,
                            .planned_s = {iteration.planned[0].time_s,
                                          iteration.planned[iteration.planned_count - 1].time_s}};
    free(loss);
    erg_iteration_release(&iteration);
    return losses;
}

/*
 * Loss of realised plans over the useful range, as a frontier has them, and over all times up to
 * the slowest, each asked for by its deadline and so searched harder.
 */
static void print_losses(const struct erg_pipeline *pipeline, const struct erg_frontier *tables,
                         double sweep_s)
{
    struct erg_iteration_request request = {
        .pipeline = *pipeline, .tables = tables, .points = POINTS};
    struct losses useful = losses_of(&request, sweep_s);
    double deadlines[POINTS], from = useful.planned_s[0], to = useful.planned_s[1];
    for (size_t i = 0; i < POINTS; i++) /* denser towards the shortest, which comes by itself */
        deadlines[i] = from + (to - from) * pow((double)(i + 1) / POINTS, 1.5);
    request.points = 0;
    request.deadlines_s = deadlines;
    request.deadline_count = POINTS;
    struct losses whole = losses_of(&request, sweep_s);
    printf(" %7.3f %7.3f %7.3f %9.2f %7.3f %7.3f %9.2f\n", useful.mean, useful.p90, useful.most,
           useful.plan_ms, whole.mean, whole.most, whole.plan_ms);
}

static int load_measured(struct erg_profile *profile, const char *name)
{
    char path[4096];
    const char *root = getenv("ERGON_SHARED_DATA");
    snprintf(path, sizeof path, "%s/perseus/stage_profile/%s.csv",
             root ? root : ERGON_TEST_SHARED_DATA, name);
    return erg_profile_load(profile, path, NULL);
}

/* A measured 8-stage profile spread over the stages, every table distorted by up to 3%. */
static struct erg_frontier *distorted_tables(size_t count)
{
    struct erg_profile profile;
    struct erg_rng rng;
    if (load_measured(&profile, "gpt3-175b_a100-sxm_bf16") != 0)
        return NULL;
    erg_rng_seed(&rng, 1);
    struct erg_frontier *tables = erg_xcalloc(count, sizeof *tables);
    for (size_t t = 0; t < count; t++) {
        size_t stage = t / 2 * profile.virtual_stages / (count / 2);
        erg_frontier_copy(&tables[t], &profile.tables[2 * stage + t % 2]);
        double time = 0.97 + 0.06 * erg_rng_uniform(&rng);
        for (size_t o = 0; o < tables[t].count; o++) {
            tables[t].points[o].time_s *= time;
            tables[t].points[o].energy_j *= 0.97 + 0.06 * erg_hash_uniform(t);
        }
    }
    erg_profile_release(&profile);
    return tables;
}

/* options 0: the distorted measured profile (38 clocks), where it is at hand. */
static void grow(size_t stages, size_t microbatches, size_t chunks, size_t options, double target_s)
{
    struct erg_pipeline pipeline = {.stages = stages,
                                    .microbatches = microbatches,
                                    .chunks = chunks,
                                    .blocking_power_w = power_w};
    size_t count = 2 * stages * chunks;
    struct erg_frontier *tables = options ? smooth_tables(count, options) : distorted_tables(count);
    if (!tables)
        return;
    struct counts counts = solve(&pipeline, tables, 0);
    char target[32] = "-";
    if (target_s > 0)
        snprintf(target, sizeof target, "%.3f", target_s);
    printf("%3zu x %-4zu %2zu %8zu %7zu %7zu %9.4f %8s %8.1f", stages, microbatches, chunks,
           tables[0].count, count * microbatches, counts.pieces, counts.seconds, target,
           resident_mb());
    fflush(stdout);
    print_losses(&pipeline, tables, counts.seconds);
    for (size_t t = 0; t < count; t++)
        erg_frontier_release(&tables[t]);
    free(tables);
}

/* Measured stage profiles, where they are at hand. */
static void measured(const char *name, size_t microbatches, double blocking_power_w)
{
    struct erg_profile profile;
    if (load_measured(&profile, name) != 0)
        return;
    struct erg_pipeline pipeline = {.stages = profile.virtual_stages,
                                    .microbatches = microbatches,
                                    .chunks = 1,
                                    .blocking_power_w = blocking_power_w};
    struct counts counts = solve(&pipeline, profile.tables, 0);
    printf("%-24s %5zu %7zu %9.4f", name, microbatches, counts.pieces, counts.seconds);
    fflush(stdout);
    print_losses(&pipeline, profile.tables, counts.seconds);
    erg_profile_release(&profile);
}

/* --- profiles like the measured ones, but harder to round --- */

/* A measured profile at so many clocks, spread over the stages, times and energies up to `noise`
 * off, and of options less than `gap` apart in time only the first. */
static const struct like {
    const char *profile;
    size_t stages, microbatches, clocks;
    double blocking_power_w, noise, gap;
} likes[] = {{"gpt3-175b_a100-sxm_bf16", 8, 96, 110, 83.64, 0.003, 0},
             {"bloom-176b_a40_bf16", 8, 96, 110, 70.38, 0, 0},
             {"gpt3-175b_a100-sxm_bf16", 8, 96, 110, 83.64, 0.003, 0.03},
             {"bloom-176b_a40_bf16", 8, 96, 110, 70.38, 0, 0.03},
             {"gpt3-175b_a100-sxm_bf16", 8, 96, 110, 83.64, 0.01, 0},
             {"bloom-176b_a40_bf16", 8, 96, 110, 70.38, 0.01, 0},
             {"gpt3-175b_a100-sxm_bf16", 12, 48, 60, 83.64, 0.01, 0},
             {"bloom-176b_a40_bf16", 12, 48, 60, 70.38, 0.01, 0},
             {"gpt3-175b_a100-sxm_bf16", 8, 32, 10, 83.64, 0.003, 0}};

static struct erg_frontier like_table(const struct like *like, const struct erg_frontier *measured,
                                      struct erg_rng *rng)
{
    struct erg_frontier all = {0}, table = {0};
    for (size_t o = 0; o < like->clocks; o++) {
        double at = (double)o * (double)(measured->count - 1) / (double)(like->clocks - 1), whole;
        double part = modf(at, &whole);
        const struct erg_point *a = &measured->points[(size_t)whole];
        const struct erg_point *b = part > 0 ? a + 1 : a;
        double time_off = like->noise * (2 * erg_rng_uniform(rng) - 1);
        double energy_off = like->noise * (2 * erg_rng_uniform(rng) - 1);
        erg_frontier_add(&all, (a->time_s + part * (b->time_s - a->time_s)) * (1 + time_off),
                         (a->energy_j + part * (b->energy_j - a->energy_j)) * (1 + energy_off),
                         (int64_t)o);
    }
    erg_frontier_filter(&all);
    for (size_t i = 0; i < all.count; i++)
        if (!table.count ||
            all.points[i].time_s >= table.points[table.count - 1].time_s * (1 + like->gap))
            erg_frontier_add(&table, all.points[i].time_s, all.points[i].energy_j,
                             all.points[i].recipe);
    erg_frontier_release(&all);
    return table;
}

static void print_like(const struct like *like)
{
    struct erg_profile profile;
    struct erg_rng rng;
    if (load_measured(&profile, like->profile) != 0)
        return;
    erg_rng_seed(&rng, 1);
    struct erg_frontier *tables = erg_xcalloc(2 * like->stages, sizeof *tables);
    for (size_t t = 0; t < 2 * like->stages; t++)
        tables[t] = like_table(
            like, &profile.tables[2 * (t / 2 * profile.virtual_stages / like->stages) + t % 2],
            &rng);
    struct erg_iteration_request request = {
        .pipeline = {.stages = like->stages,
                     .microbatches = like->microbatches,
                     .chunks = 1,
                     .blocking_power_w = like->blocking_power_w},
        .tables = tables,
        .points = 100};
    double start = process_cpu_s();
    struct losses losses = losses_of(&request, 0);
    printf("%-24s %2zu x %-3zu %6zu %6.1f %6.1f %7.3f %7.3f %7.3f %7.2f\n", like->profile,
           like->stages, like->microbatches, like->clocks, 100 * like->noise, 100 * like->gap,
           losses.mean, losses.p90, losses.most, process_cpu_s() - start);
    for (size_t t = 0; t < 2 * like->stages; t++)
        erg_frontier_release(&tables[t]);
    free(tables);
    erg_profile_release(&profile);
}

static void print_growth_header(const char *title)
{
    printf("\n%s; CPU s for the whole frontier; loss of realised plans\n", title);
    printf("%-10s %2s %8s %7s %7s %9s %8s %8s %7s %7s %7s %9s %7s %7s %9s\n", "S x M", "V",
           "options", "instr.", "pieces", "CPU s", "target", "RSS MB", "mean%", "p90%", "max%",
           "ms/plan", "all%", "max%", "ms/plan");
}

int main(void)
{
    puts("Recorded cases, one option per ms; CPU s for the whole frontier");
    printf("%-8s %7s %9s %9s %10s %10s %11s\n", "case", "pieces", "ergon", "target", "lowtime",
           "C++ cold", "vs lowtime");
    recorded("s2_m8", 0.001);
    recorded("s4_m16", 0.015);

    print_growth_header("Measured A100 tables, all different");
    grow(4, 16, 1, 0, 0.003);
    grow(8, 32, 1, 0, 0.04);
    grow(8, 32, 2, 0, 0.1);
    grow(10, 16, 1, 0, 0);
    grow(10, 32, 1, 0, 0);
    grow(10, 64, 1, 0, 0);
    grow(10, 128, 1, 0, 0.25);
    grow(16, 128, 2, 0, 4);
    grow(16, 512, 1, 0, 5);

    print_growth_header("Smooth tables (every option on the hull), all different");
    grow(2, 8, 1, 38, 0);
    grow(4, 16, 1, 38, 0);
    grow(8, 32, 1, 10, 0);
    grow(8, 32, 1, 20, 0);
    grow(8, 32, 1, 38, 0);
    grow(8, 32, 1, 100, 0);
    grow(10, 128, 1, 38, 0);

    puts("\nMeasured stage profiles");
    printf("%-24s %5s %7s %9s %7s %7s %7s %9s %7s %7s %9s\n", "profile", "M", "pieces", "CPU s",
           "mean%", "p90%", "max%", "ms/plan", "all%", "max%", "ms/plan");
    measured("gpt3-175b_a100-sxm_bf16", 12, 83.64);
    measured("gpt3-175b_a100-sxm_bf16", 48, 83.64);
    measured("gpt3-175b_a100-sxm_bf16", 96, 83.64);
    measured("bloom-176b_a40_bf16", 12, 70.38);
    measured("bloom-176b_a40_bf16", 48, 70.38);

    puts("\nProfiles like the measured ones: 100 plans");
    printf("%-24s %8s %6s %6s %6s %7s %7s %7s %7s\n", "profile", "S x M", "clocks", "noise%",
           "gap%", "mean%", "p90%", "max%", "CPU s");
    for (size_t i = 0; i < sizeof likes / sizeof *likes; i++)
        print_like(&likes[i]);
    return 0;
}
