/*
 * Prices of one pipeline's planned frontier as bounds of another's: weak duality for any tables and
 * latencies, strong duality for its own.
 */
#include "base/memory.h"
#include "base/random.h"
#include "check.h"
#include "iteration/iteration.h"

static struct erg_rng rng;

/* Options of an instruction at falling clocks, of the magnitude `scale`. */
static void fill_table(struct erg_frontier *table, double scale)
{
    size_t options = 1 + (size_t)erg_rng_below(&rng, 6);
    double time_s = scale * (0.02 + 0.02 * erg_rng_uniform(&rng)), energy_j = 400 * time_s;
    for (size_t i = 0; i < options; i++) {
        erg_frontier_add(table, time_s, energy_j, (int64_t)i);
        double step_s = time_s * (0.02 + 0.1 * erg_rng_uniform(&rng));
        energy_j += step_s * (80 - 200 * erg_rng_uniform(&rng));
        time_s += step_s;
    }
}

struct job {
    struct erg_pipeline pipeline;
    struct erg_frontier *tables;
    double hops_s[8];
};

static void fill_job(struct job *job, const struct erg_pipeline *like)
{
    *job = (struct job){.pipeline = *like};
    job->pipeline.blocking_power_w = 60 + 40 * erg_rng_uniform(&rng);
    job->pipeline.hop_latency_s = erg_rng_below(&rng, 4) ? job->hops_s : NULL;
    for (size_t s = 0; s < like->stages; s++)
        job->hops_s[s] = 0.004 * erg_rng_uniform(&rng);
    size_t count = 2 * like->stages * like->chunks;
    job->tables = erg_xcalloc(count, sizeof *job->tables);
    for (size_t t = 0; t < count; t++)
        fill_table(&job->tables[t], t % 2 ? 2 : 1);
}

static void free_job(struct job *job)
{
    for (size_t t = 0; t < 2 * job->pipeline.stages * job->pipeline.chunks; t++)
        erg_frontier_release(&job->tables[t]);
    free(job->tables);
}

struct curve {
    size_t most; /* pieces */
    struct {
        struct erg_breakpoint *items;
        size_t count, capacity;
    } at;
};

static bool go_on(void *context, struct erg_breakpoint at, double slope_w)
{
    struct curve *curve = context;
    (void)slope_w;
    ERG_PUSH(&curve->at, items, at);
    return curve->at.count <= curve->most;
}

static void sweep(struct curve *curve, struct erg_prices *prices, const struct job *job,
                  size_t pieces)
{
    struct erg_error err;
    *curve = (struct curve){.most = pieces};
    assert_ok(erg_iteration_sweep(&job->pipeline, job->tables, go_on, curve, prices, &err), &err);
    assert_true(erg_prices_suit(prices, &job->pipeline));
}

/* Nowhere above what is planned for a pipeline; returns how near the bound comes to it, in J. */
static double check_below(const struct erg_prices *prices, const struct job *job,
                          const struct curve *planned)
{
    double cost_j = erg_prices_cost(prices, &job->pipeline, job->tables), nearest_j = INFINITY;
    for (size_t i = 0; i < planned->at.count; i++) {
        const struct erg_breakpoint *at = &planned->at.items[i];
        double bound_j = cost_j - prices->total_w * at->time_s;
        if (at->cost_j < bound_j - 1e-6 * fabs(cost_j))
            fail_msg("at %g s: optimum %.9g J, bound %.9g J", at->time_s, at->cost_j, bound_j);
        nearest_j = fmin(nearest_j, at->cost_j - bound_j);
    }
    return nearest_j;
}

/* Prices of where a sweep stopped tell what it found there. */
static double check_prices(const struct job *one, const struct curve *planned,
                           const struct job *other, const struct curve *other_planned,
                           size_t pieces)
{
    struct erg_prices prices;
    struct curve until;
    sweep(&until, &prices, one, pieces);
    const struct erg_breakpoint *last = &until.at.items[until.at.count - 1];
    double bound_j =
        erg_prices_cost(&prices, &one->pipeline, one->tables) - prices.total_w * last->time_s;
    assert_true(fabs(bound_j - last->cost_j) < 0.01); /* times of the sweep are whole ticks */
    check_below(&prices, one, planned);
    check_below(&prices, other, other_planned);
    free(until.at.items);
    double total_w = prices.total_w;
    erg_prices_release(&prices);
    return total_w;
}

static void test_bounds(void **state)
{
    (void)state;
    enum { ROUNDS = 60 };
    size_t stopped = 0, ended = 0;
    erg_rng_seed(&rng, 11);
    for (int round = 0; round < ROUNDS; round++) {
        struct erg_pipeline like = {.stages = 1 + (size_t)erg_rng_below(&rng, 4), .chunks = 1};
        if (round % 2)
            like.chunks = 2 + (size_t)erg_rng_below(&rng, 2);
        like.microbatches = like.stages * (1 + (size_t)erg_rng_below(&rng, 4));
        struct job one, other;
        fill_job(&one, &like);
        fill_job(&other, &like);
        struct curve planned, other_planned;
        struct erg_prices prices;
        double last_w = -1;
        sweep(&planned, &prices, &one, SIZE_MAX - 1);
        ended += prices.total_w > 0;
        assert_true(check_below(&prices, &one, &planned) < 0.01);
        erg_prices_release(&prices);
        sweep(&other_planned, &prices, &other, SIZE_MAX - 1);
        erg_prices_release(&prices);
        for (size_t pieces = 0; pieces < planned.at.count; pieces = 1 + 2 * pieces) {
            double total_w = check_prices(&one, &planned, &other, &other_planned, pieces);
            assert_true(total_w >= last_w);
            stopped += total_w > last_w;
            last_w = total_w;
        }
        free(planned.at.items);
        free(other_planned.at.items);
        free_job(&one);
        free_job(&other);
    }
    assert_true(stopped > 3 * ROUNDS && ended > ROUNDS / 2);
}

static void test_suit(void **state)
{
    (void)state;
    const struct erg_pipeline base = {.stages = 2, .microbatches = 4, .chunks = 1};
    struct erg_pipeline others[] = {base, base, base};
    others[0].stages = 4;
    others[1].microbatches = 8;
    others[2].chunks = 2;
    struct job job;
    erg_rng_seed(&rng, 5);
    fill_job(&job, &base);
    struct erg_prices prices;
    struct curve curve;
    sweep(&curve, &prices, &job, 4);
    free(curve.at.items);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(erg_prices_suit(&prices, &others[i]));
    erg_prices_release(&prices);
    free_job(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_suit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
