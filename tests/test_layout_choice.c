/* Bounds of layouts' frontiers against the solver, and choices against all layouts solved. */
#include "check.h"

#include "base/memory.h"
#include "layout/energy/bound.h"
#include "layout/energy/choice.h"
#include "llama.h"

struct world {
    struct erg_model *model;
    struct erg_engine *engine;
    struct erg_gpu *gpu;
    struct erg_time_machine machine;
    struct erg_layout_energy_request request;
};

static void world_open(struct world *world, int layers)
{
    static const struct erg_cluster cluster = {.nodes = 8,
                                               .gpus_per_node = 8,
                                               .intra_node_bandwidth = 200e9,
                                               .inter_node_bandwidth = 100e9};
    struct erg_error err;
    world->model = llama("llama", 32000, layers, 4096, 11008, 32, 8);
    assert_ok(erg_engine_load(&world->engine, "megatron-kwai-h800", &err), &err);
    assert_ok(erg_gpu_load(&world->gpu, "h800-sxm-80gb", &err), &err);
    erg_time_machine_init(&world->machine, world->gpu, &cluster);
    world->request = (struct erg_layout_energy_request){
        .time = {world->model, world->engine, &world->machine}, .gpu = world->gpu};
}

static void world_close(struct world *world)
{
    erg_model_free(world->model);
    erg_engine_free(world->engine);
    erg_gpu_free(world->gpu);
}

/* ---- bounds ---- */

enum { CLOCKS = 6 };

static void solve(struct erg_layout_frontier *frontier, const struct world *world,
                  const struct erg_layout *layout)
{
    struct erg_error err;
    const struct erg_layout_frontier_request request = {.energy = &world->request,
                                                        .layout = layout,
                                                        .points = 6,
                                                        .slower_points = 2,
                                                        .clocks = CLOCKS};
    assert_ok(erg_layout_frontier_init(frontier, &request, &err), &err);
}

/* Nowhere above the optimum; where it says that it is the optimum, not below either. */
static void check_below(const struct erg_layout_bound *raised,
                        const struct erg_layout_frontier *frontier)
{
    for (size_t k = 1; k < raised->count; k++)
        assert_true(raised->points[k].time_s > raised->points[k - 1].time_s);
    for (size_t k = 0; k < frontier->points.count; k++) {
        double time_s = frontier->points.points[k].time_s;
        const struct erg_goal within = {.objective = ERG_LEAST_ENERGY, .deadline_s = time_s};
        double optimum_j = erg_layout_frontier_optimum(frontier, time_s);
        double raised_j = erg_layout_bound_objective(raised, &within);
        if (!(raised_j <= optimum_j * (1 + 1e-5)) ||
            (erg_layout_bound_is_optimum(raised, &within) && !(raised_j >= optimum_j * (1 - 1e-5))))
            fail_msg("within %g s: %.8g J, optimum %.8g J", time_s, raised_j, optimum_j);
    }
}

/* Raised for a deadline a bound is the solver's optimum from there on, and never above it. One that
 * needs to be no more than it was stays below; to the fastest time it is the optimum everywhere. */
static void check_raised(const struct erg_layout_bound *bound,
                         const struct erg_clocked_layout *clocked,
                         const struct erg_layout_frontier *frontier)
{
    struct erg_error err;
    const double ends_s[] = {frontier->points.points[0].time_s,
                             frontier->points.points[frontier->points.count - 1].time_s};
    for (int i = 0; i < 3; i++) {
        const struct erg_goal query = {.objective = ERG_LEAST_ENERGY,
                                       .deadline_s = ends_s[0] + 0.5 * i * (ends_s[1] - ends_s[0])};
        double was_j = erg_layout_bound_objective(bound, &query);
        for (int enough = 0; enough < 2; enough++) {
            struct erg_layout_bound raised;
            erg_layout_bound_init(&raised, clocked, true);
            assert_ok(
                erg_layout_bound_raise(&raised, clocked, &query, enough ? was_j : INFINITY, &err),
                &err);
            assert_true(erg_layout_bound_objective(&raised, &query) >= was_j * (1 - 1e-9));
            assert_true(enough || erg_layout_bound_is_optimum(&raised, &query));
            assert_close(raised.points[0].time_s, bound->points[0].time_s, 1e-9);
            check_below(&raised, frontier);
            erg_layout_bound_release(&raised);
        }
    }
}

/* The solver's optimum of the continuous problem is the least that plans can have. */
static void a_bound_is_below_the_optimum(void **state)
{
    (void)state;
    static const long uneven[] = {9, 9, 8, 6};
    static const struct {
        struct erg_layout layout;
        double tight; /* at the least energy */
    } cases[] = {
        {{2, 1, 1, 4, 1, 1, 6, 4096, .recompute = ERG_RECOMPUTE_NONE}, 0.999999},
        {{2, 1, 4, 1, 1, 1, 32, 4096, .recompute = ERG_RECOMPUTE_BALANCED}, 0.99},
        {{2, 1, 4, 1, 1, 1, 32, 4096, .recompute = ERG_RECOMPUTE_FULL, .chunk_layers = uneven},
         0.98},
        {{2, 1, 4, 1, 1, 1, 3, 4096, .recompute = ERG_RECOMPUTE_NONE}, 0.9},
        {{1, 2, 8, 1, 1, 1, 9, 4096, .recompute = ERG_RECOMPUTE_NONE, .offload = 0.5}, 0.92},
        {{2, 1, 4, 1, 4, 1, 16, 4096, .recompute = ERG_RECOMPUTE_NONE}, 0.98},
        {{2, 1, 4, 1, 2, 1, 4, 4096, .recompute = ERG_RECOMPUTE_NONE}, 0.97},
    };
    struct world world;
    world_open(&world, 32);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct erg_layout *layout = &cases[i].layout;
        struct erg_layout_frontier frontier;
        struct erg_clocked_layout clocked;
        struct erg_layout_bound bounds[2];
        solve(&frontier, &world, layout);
        erg_clocked_layout_init(&clocked, &(struct erg_layout_frontier_request){
                                              &world.request, layout, .clocks = CLOCKS});
        double pipeline_s = frontier.iteration.plans[0].planned_time_s;
        double replicas = (double)(erg_layout_gpus(layout) / layout->pipeline);
        for (int known = 0; known < 2; known++) {
            struct erg_layout_bound *bound = &bounds[known];
            double least_j = INFINITY, least_bound_j = INFINITY;
            erg_layout_bound_init(bound, &clocked, known);
            for (size_t k = 1; k < bound->count; k++)
                assert_true(bound->points[k].time_s > bound->points[k - 1].time_s);
            assert_close(
                bound->points[0].time_s,
                fmax(clocked.closed_s, pipeline_s + frontier.tail.time_s - frontier.drift_s), 1e-3);
            for (size_t k = 0; k < frontier.points.count; k++) {
                const struct erg_iteration_plan *plan =
                    &frontier.iteration.plans[frontier.points.points[k].recipe];
                double time_s = plan->planned_time_s + frontier.tail.time_s;
                double optimum_j = replicas * plan->planned_energy_j + frontier.tail.total_j;
                double bound_j =
                    erg_layout_bound_energy(bound, fmin(time_s * (1 + 1e-6), bound->slowest_s));
                if (!(bound_j <= optimum_j * (1 + 1e-6) && bound_j > 0.85 * optimum_j))
                    fail_msg("layout %zu at %g s: bound %.8g J, optimum %.8g J", i, time_s, bound_j,
                             optimum_j);
                least_j = fmin(least_j, optimum_j);
                least_bound_j = fmin(least_bound_j, bound_j);
            }
            if (least_bound_j < cases[i].tight * least_j)
                fail_msg("layout %zu: least %.8g J, bound %.8g J", i, least_j, least_bound_j);
        }
        /* What is known of the pipeline only raises it. */
        for (size_t k = 0; k < bounds[0].count; k++) {
            double time_s = bounds[0].points[k].time_s;
            if (time_s >= bounds[1].slowest_s)
                break;
            assert_true(erg_layout_bound_energy(&bounds[1], time_s * (1 + 1e-9)) >=
                        erg_layout_bound_energy(&bounds[0], time_s) * (1 - 1e-6));
        }
        check_raised(&bounds[1], &clocked, &frontier);
        erg_layout_bound_release(&bounds[0]);
        erg_layout_bound_release(&bounds[1]);
        erg_clocked_layout_release(&clocked);
        erg_layout_frontier_release(&frontier);
    }
    world_close(&world);
}

/* 10 s at 1000 J, falling by 50 and by 10 W, rising by 20 W from 30 s on. */
static void bounds_answer_queries(void **state)
{
    (void)state;
    struct erg_bound_point points[] = {{10, 1000}, {20, 500}, {30, 400}};
    const struct erg_layout_bound bound = {
        .points = points, .count = 3, .waiting_w = 20, .slowest_s = 50};
    static const struct {
        struct erg_goal query;
        double expected;
    } cases[] = {
        {{.objective = ERG_FASTEST}, 10},
        {{.objective = ERG_LEAST_ENERGY}, 400},
        {{.objective = ERG_LEAST_ENERGY, .deadline_s = 15}, 750},
        {{.deadline_s = 9.9}, INFINITY},
        {{.energy_j = 450}, 25},
        {{.energy_j = 399}, INFINITY},
        {{.power_w = 50}, 15},
        {{.power_w = 15}, 28},
        {{.power_w = 13}, INFINITY}, /* at least 13.3 W, at 30 s */
        {{.objective = ERG_LEAST_ENERGY, .power_w = 15}, 400},
        {{.objective = ERG_LEAST_ENERGY, .power_w = 50, .deadline_s = 16}, 700},
        {{.deadline_s = 14, .power_w = 50}, INFINITY},
        {{.objective = ERG_LEAST_POWER}, 40. / 3},
        {{.objective = ERG_LEAST_POWER, .deadline_s = 25}, 18},
        {{.objective = ERG_LEAST_POWER, .energy_j = 450}, 40. / 3},
        {{.objective = ERG_LEAST_POWER, .deadline_s = 9}, INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double objective = erg_layout_bound_objective(&bound, &cases[i].query);
        if (isinf(cases[i].expected) ? !isinf(objective)
                                     : !(fabs(objective / cases[i].expected - 1) < 1e-8))
            fail_msg("query %zu: %.12g, expected %.12g", i, objective, cases[i].expected);
    }
    assert_true(isinf(erg_layout_bound_energy(&bound, 9)));
    assert_near(erg_layout_bound_energy(&bound, 15), 750, 1e-9);
    assert_near(erg_layout_bound_energy(&bound, 40), 600, 1e-9);
    assert_true(isinf(erg_layout_bound_energy(&bound, 51)));
}

/* ---- choices ---- */

struct all {
    struct {
        struct erg_layout_candidate *items;
        size_t count, capacity;
    } found;
    struct erg_layout_frontier *frontiers;
    struct erg_layout_option *options;
};

static void note(void *context, const struct erg_layout_candidate *candidate)
{
    struct all *all = context;
    struct erg_layout_candidate own = *candidate;
    if (own.layout.chunk_layers) {
        size_t count = (size_t)(own.layout.pipeline * own.layout.virtual_stages);
        own.chunk_layers = erg_xcalloc(count, sizeof(long));
        memcpy(own.chunk_layers, own.layout.chunk_layers, count * sizeof(long));
        own.layout.chunk_layers = own.chunk_layers;
    }
    ERG_PUSH(&all->found, items, own);
}

static struct erg_layout_search search_of(const struct world *world, long gpus)
{
    return (struct erg_layout_search){
        .model = world->model,
        .kinds = {{.gpu = world->gpu,
                   .engine = world->engine,
                   .machine = world->machine,
                   .gpus = gpus,
                   .memory_bytes = 0.9 * world->gpu->memory_bytes}},
        .kind_count = 1,
        .gpus = gpus,
        .sequence = 4096,
        .batch_least = 8,
        .batch_most = 8,
        .recomputes = 1u << ERG_RECOMPUTE_NONE | 1u << ERG_RECOMPUTE_FULL,
        .microbatch_most = 2,
        .top = 1,
    };
}

/* Every layout that fits, solved as a choice would, at the deadlines that are asked for. */
static void solve_all(struct all *all, const struct world *world, const long *gpus, size_t count,
                      const double *deadlines_s, size_t deadline_count)
{
    struct erg_error err;
    for (size_t i = 0; i < count; i++) {
        struct erg_layout_search search = search_of(world, gpus[i]);
        struct erg_layout_results found;
        search.each = note;
        search.context = all;
        assert_ok(erg_layout_search(&found, &search, &err), &err);
        erg_layout_results_release(&found);
    }
    all->frontiers = erg_xcalloc(all->found.count, sizeof *all->frontiers);
    all->options = erg_xcalloc(all->found.count, sizeof *all->options);
    for (size_t i = 0; i < all->found.count; i++) {
        const struct erg_layout_frontier_request request = {.energy = &world->request,
                                                            .layout = &all->found.items[i].layout,
                                                            .points = 12,
                                                            .slower_points = 6,
                                                            .clocks = CLOCKS,
                                                            .deadlines_s = deadlines_s,
                                                            .deadline_count = deadline_count};
        assert_ok(erg_layout_frontier_init(&all->frontiers[i], &request, &err), &err);
        all->options[i] = (struct erg_layout_option){
            &all->found.items[i].layout, &all->frontiers[i], all->found.items[i].peak_bytes};
    }
}

static void release_all(struct all *all)
{
    for (size_t i = 0; i < all->found.count; i++) {
        erg_layout_frontier_release(&all->frontiers[i]);
        erg_layout_candidate_release(&all->found.items[i]);
    }
    free(all->frontiers);
    free(all->options);
    free(all->found.items);
}

/* No plan of any layout is below its bound. */
static void no_plan_beats_its_bound(const struct world *world, const struct all *all)
{
    for (size_t i = 0; i < all->found.count; i++) {
        const struct erg_layout *layout = &all->found.items[i].layout;
        const struct erg_frontier *points = &all->frontiers[i].points;
        struct erg_clocked_layout clocked;
        struct erg_layout_bound bound;
        erg_clocked_layout_init(&clocked, &(struct erg_layout_frontier_request){
                                              &world->request, layout, .clocks = CLOCKS});
        erg_layout_bound_init(&bound, &clocked, true);
        for (size_t k = 0; k < points->count; k++) {
            double bound_j = erg_layout_bound_energy(
                &bound, fmin(points->points[k].time_s * (1 + 1e-6), bound.slowest_s));
            if (!(bound_j <= points->points[k].energy_j * (1 + 1e-6)))
                fail_msg("t=%ld,c=%ld,p=%ld,v=%ld,b=%ld%s, %ld microbatches: %g s, %g J, bound "
                         "%g J",
                         layout->tensor, layout->context, layout->pipeline, layout->virtual_stages,
                         layout->microbatch, layout->chunk_layers ? " uneven" : "",
                         layout->microbatches, points->points[k].time_s, points->points[k].energy_j,
                         bound_j);
        }
        erg_layout_bound_release(&bound);
        erg_clocked_layout_release(&clocked);
    }
}

static struct erg_layout_choice_request asked(const struct erg_layout_search *searches,
                                              const struct erg_goal *query)
{
    return (struct erg_layout_choice_request){
        .searches = searches, .search_count = 2, .query = *query, .most = 40, .tolerance = 0.002};
}

/* The answer's layout, solved as hard as can be, has a plan that is better by less than a tenth of
 * the tolerance, whether or not the choice took the time for that. */
static void check_answer(const struct all *all, const struct erg_layout_choice *choice,
                         const struct erg_goal *query)
{
    const struct erg_layout *answer = &choice->layouts[choice->picks[0].option].candidate.layout;
    size_t compared = 0;
    if (query->energy_j > 0 || query->power_w > 0)
        return;
    for (size_t i = 0; i < all->found.count; i++) {
        const struct erg_layout *own = &all->found.items[i].layout;
        struct erg_layout_pick pick;
        if (own->tensor != answer->tensor || own->context != answer->context ||
            own->pipeline != answer->pipeline || own->data != answer->data ||
            own->virtual_stages != answer->virtual_stages ||
            own->microbatch != answer->microbatch || own->recompute != answer->recompute ||
            !own->chunk_layers != !answer->chunk_layers)
            continue;
        assert_int_equal(erg_layout_pick(&pick, &all->options[i], 1, query, NULL), 0);
        assert_true(choice->picks[0].energy_j <= pick.energy_j * (1 + 0.0002 + 1e-6));
        compared++;
    }
    assert_true(compared > 0);
}

/* As good as the best of all layouts solved, though few are. */
static void check_choice(const struct all *all, const struct erg_layout_search *searches,
                         const struct erg_goal *query)
{
    const struct erg_layout_choice_request request = asked(searches, query);
    struct erg_layout_choice choice;
    struct erg_layout_pick best;
    struct erg_error err;
    assert_ok(erg_layout_choose(&choice, &request, &err), &err);
    assert_ok(erg_layout_pick(&best, all->options, all->found.count, query, &err), &err);
    double got = erg_layout_pick_value(&choice.picks[0], query->objective);
    double expected = erg_layout_pick_value(&best, query->objective);
    assert_int_equal(choice.fitting, all->found.count);
    if (!(choice.count < all->found.count / 2 && choice.gap <= 0.002))
        fail_msg("%zu of %zu layouts solved, gap %g", choice.count, all->found.count, choice.gap);
    /* Deadlines near a budget make it faster than the twelve points of all. */
    if (!(got <= expected * 1.002 && got >= expected * 0.96))
        fail_msg("%.8g, of all layouts %.8g", got, expected);
    for (size_t k = 1; k < choice.pick_count; k++)
        assert_true(erg_layout_pick_value(&choice.picks[k], query->objective) >=
                    erg_layout_pick_value(&choice.picks[k - 1], query->objective));
    check_answer(all, &choice, query);
    erg_layout_choice_release(&choice);
}

/* The least that a point of all layouts within the query's bounds has, whatever the query's goal.
 */
static double least_of_all(const struct all *all, const struct erg_goal *query,
                           enum erg_objective goal)
{
    struct erg_goal other = *query;
    struct erg_layout_pick pick;
    struct erg_error err;
    other.objective = goal;
    assert_ok(erg_layout_pick(&pick, all->options, all->found.count, &other, &err), &err);
    return erg_layout_pick_value(&pick, goal);
}

/* Of all layouts none is nearer to the bound that the refusal names. */
static void check_refusal(const struct all *all, const struct erg_layout_search *searches,
                          const struct erg_goal *query, const char *bound, double nearest)
{
    const struct erg_layout_choice_request request = asked(searches, query);
    struct erg_layout_choice choice;
    struct erg_error err;
    assert_fails(erg_layout_choose(&choice, &request, &err), &err, bound);
    assert_int_equal(err.status, ERG_INFEASIBLE);
    assert_true(choice.count < all->found.count / 2);
    const char *needs = strstr(err.message, "needs ");
    assert_non_null(needs);
    double said = strtod(needs + strlen("needs "), NULL);
    /* Deadlines near another bound may find what the points of all miss. */
    if (!(said <= nearest * 1.002 && said >= nearest * 0.95))
        fail_msg("%s: of all layouts one needs %g", err.message, nearest);
    erg_layout_choice_release(&choice);
}

static void check_refusals(const struct all *all, const struct erg_layout_search *searches)
{
    const struct erg_goal none = {0};
    double power_w = least_of_all(all, &none, ERG_LEAST_POWER);
    double energy_j = least_of_all(all, &none, ERG_LEAST_ENERGY);
    const struct erg_goal dim = {.power_w = 0.6 * power_w};
    check_refusal(all, searches, &dim, "a mean power", power_w);
    const struct erg_goal frugal = {.energy_j = 0.6 * energy_j};
    check_refusal(all, searches, &frugal, "an energy", energy_j);
    const struct erg_goal within = {.energy_j = 1.05 * energy_j};
    const struct erg_goal both = {.energy_j = 1.05 * energy_j, .power_w = 0.9 * power_w};
    check_refusal(all, searches, &both, "with the other bounds",
                  least_of_all(all, &within, ERG_LEAST_POWER));
}

/* Every layout that is listed, solved alone for the query, is hardly better. */
static void check_picks(const struct world *world, const struct erg_layout_choice *choice,
                        const struct erg_goal *query)
{
    struct erg_error err;
    for (size_t i = 0; i < choice->pick_count; i++) {
        const struct erg_layout_option *listed = &choice->options[choice->picks[i].option];
        const struct erg_layout_frontier_request request = {.energy = &world->request,
                                                            .layout = listed->layout,
                                                            .points = 12,
                                                            .clocks = CLOCKS,
                                                            .deadlines_s = &query->deadline_s,
                                                            .deadline_count =
                                                                query->deadline_s > 0};
        struct erg_layout_frontier own;
        struct erg_layout_pick pick;
        assert_ok(erg_layout_frontier_init(&own, &request, &err), &err);
        const struct erg_layout_option alone = {listed->layout, &own, listed->peak_bytes};
        assert_ok(erg_layout_pick(&pick, &alone, 1, query, &err), &err);
        double value = erg_layout_pick_value(&choice->picks[i], query->objective);
        if (value > 1.003 * erg_layout_pick_value(&pick, query->objective))
            fail_msg("layout %zu is listed with %.8g, alone it has %.8g", i, value,
                     erg_layout_pick_value(&pick, query->objective));
        erg_layout_frontier_release(&own);
    }
}

/*
 * None of the layouts, solved for the time of a point that is shown, needs less by more than .3 %;
 * and from each point to the next it is at most 3 % of time, unless none could do better between.
 */
static void check_shown(const struct world *world, const struct erg_layout_choice *choice,
                        const struct erg_frontier *shown)
{
    const size_t count = shown->count;
    struct erg_error err;
    double *times_s = erg_xcalloc(2 * count, sizeof *times_s), *between_s = times_s + count;
    for (size_t k = 0; k < count; k++) {
        times_s[k] = shown->points[k].time_s;
        between_s[k] = shown->points[k + 1 < count ? k + 1 : k].time_s / 1.0151;
    }
    for (size_t i = 0; i < choice->count; i++) {
        struct erg_layout_frontier own;
        const struct erg_layout_frontier_request request = {
            .energy = &world->request,
            .layout = &choice->layouts[i].candidate.layout,
            .clocks = CLOCKS,
            .deadlines_s = times_s,
            .deadline_count = 2 * count};
        assert_ok(erg_layout_frontier_init(&own, &request, &err), &err);
        for (size_t k = 0; k < count; k++) {
            const struct erg_point *point = &shown->points[k];
            ptrdiff_t at = erg_frontier_pick_deadline(&own.frontier, times_s[k] * (1 + 1e-9));
            if (at >= 0 && point->energy_j > 1.003 * own.frontier.points[at].energy_j)
                fail_msg("%g J are shown at %g s, layout %zu needs %g J", point->energy_j,
                         point->time_s, i, own.frontier.points[at].energy_j);
            if (k + 1 == count || times_s[k + 1] <= 1.0301 * point->time_s)
                continue;
            at = erg_frontier_pick_deadline(&own.frontier, between_s[k]);
            if (at >= 0 && own.frontier.points[at].energy_j < 0.997 * point->energy_j)
                fail_msg("from %g s, %g J to %g s nothing is shown, though layout %zu needs %g J "
                         "at %g s",
                         point->time_s, point->energy_j, times_s[k + 1], i,
                         own.frontier.points[at].energy_j, between_s[k]);
        }
        erg_layout_frontier_release(&own);
    }
    free(times_s);
}

/* The union has what matters of every layout; counts say which numbers of GPUs are on it. */
static void check_union(const struct world *world, const struct all *all,
                        const struct erg_layout_search *searches, const struct erg_goal *query)
{
    const struct erg_layout_choice_request request = {.searches = searches,
                                                      .search_count = 2,
                                                      .query = *query,
                                                      .whole_union = true,
                                                      .most = 60,
                                                      .tolerance = 0.002};
    struct erg_layout_choice choice;
    struct erg_layout_count counts[2];
    struct erg_frontier whole = {0}, few = {0};
    struct erg_error err;
    assert_ok(erg_layout_choose(&choice, &request, &err), &err);
    erg_layout_union(&whole, all->options, all->found.count);
    erg_layout_union(&few, choice.options, choice.count);
    assert_true(choice.union_gap <= 0.002 && choice.count < all->found.count / 2);
    check_picks(world, &choice, query);
    check_shown(world, &choice, &few);
    /* Between deadlines another layout may be a little better. */
    for (size_t i = 0; i < whole.count; i++) {
        ptrdiff_t at = erg_frontier_pick_deadline(&few, whole.points[i].time_s * 1.01);
        if (at < 0 || few.points[at].energy_j > 1.02 * whole.points[i].energy_j)
            fail_msg("at %g s %g J are possible, the union has %g J", whole.points[i].time_s,
                     whole.points[i].energy_j, at < 0 ? -1 : few.points[at].energy_j);
    }
    assert_ok(erg_layout_counts_init(counts, &request, &choice, &err), &err);
    assert_true(counts[0].fits && counts[1].fits && counts[1].on_frontier);
    assert_close(counts[1].fastest.time.total, few.points[0].time_s, 1e-6);
    bool four = false;
    for (size_t i = 0; i < whole.count; i++)
        four |= erg_layout_gpus(all->options[whole.points[i].recipe >> 32].layout) == 4;
    assert_int_equal(counts[0].on_frontier, four);
    erg_layout_counts_release(counts, 2);
    erg_frontier_release(&whole);
    erg_frontier_release(&few);
    erg_layout_choice_release(&choice);
}

static void choices_are_the_best_of_all_layouts(void **state)
{
    (void)state;
    static const long gpus[] = {4, 8};
    struct world world;
    struct all all = {0};
    struct erg_error err;
    world_open(&world, 4);
    const struct erg_layout_search searches[] = {search_of(&world, 4), search_of(&world, 8)};
    struct erg_layout_results found;
    assert_ok(erg_layout_search(&found, &searches[1], &err), &err);
    double fastest_s = found.items[0].time.total, deadline_s = 1.15 * fastest_s;
    erg_layout_results_release(&found);
    solve_all(&all, &world, gpus, 2, &deadline_s, 1);
    no_plan_beats_its_bound(&world, &all);
    struct erg_layout_pick fastest, least;
    assert_ok(erg_layout_pick(&fastest, all.options, all.found.count,
                              &(struct erg_goal){.objective = ERG_FASTEST}, &err),
              &err);
    assert_ok(erg_layout_pick(&least, all.options, all.found.count,
                              &(struct erg_goal){.objective = ERG_LEAST_ENERGY}, &err),
              &err);
    assert_close(fastest.time_s, fastest_s, 1e-6);
    const struct erg_goal queries[] = {
        {.objective = ERG_FASTEST},
        {.objective = ERG_LEAST_ENERGY},
        {.objective = ERG_LEAST_ENERGY, .deadline_s = deadline_s},
        {.energy_j = 0.5 * (fastest.energy_j + least.energy_j)},
        {.power_w = 0.7 * fastest.power_w},
    };
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
        check_choice(&all, searches, &queries[i]);
    check_refusals(&all, searches);
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
        check_union(&world, &all, searches, &queries[i]);
    release_all(&all);
    world_close(&world);
}

static void impossible_requests_name_the_nearest(void **state)
{
    (void)state;
    struct world world;
    struct erg_error err;
    world_open(&world, 4);
    struct erg_layout_search search = search_of(&world, 8);
    struct erg_layout_results found;
    assert_ok(erg_layout_search(&found, &search, &err), &err);
    char nearest[64];
    const double step_s = pow(10, floor(log10(found.items[0].time.total)) - 5);
    snprintf(nearest, sizeof nearest, "needs %.6g",
             ceil(found.items[0].time.total / step_s) * step_s);
    struct erg_layout_choice_request request = {
        .searches = &search,
        .search_count = 1,
        .query = {.deadline_s = 0.5 * found.items[0].time.total, .objective = ERG_LEAST_ENERGY},
        .most = 24,
        .tolerance = 0.002};
    struct erg_layout_choice choice;
    assert_fails(erg_layout_choose(&choice, &request, &err), &err, nearest);
    assert_int_equal(err.status, ERG_INFEASIBLE);
    erg_layout_choice_release(&choice);
    erg_layout_results_release(&found);

    request.query = (struct erg_goal){.energy_j = 1, .power_w = 1};
    assert_fails(erg_layout_choose(&choice, &request, &err), &err,
                 "raising any one of them alone is not enough; ");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    assert_int_equal(choice.count, 1);
    erg_layout_choice_release(&choice);

    search.kinds[0].memory_bytes = 1e9;
    assert_fails(erg_layout_choose(&choice, &request, &err), &err, "GiB more");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    erg_layout_choice_release(&choice);
    world_close(&world);
}

/* The query is proven whatever is left for the union. */
static void the_query_comes_first(void **state)
{
    (void)state;
    struct world world;
    struct erg_error err;
    world_open(&world, 4);
    const struct erg_layout_search searches[] = {search_of(&world, 4), search_of(&world, 8)};
    struct erg_layout_choice_request request = {.searches = searches,
                                                .search_count = 2,
                                                .query = {.objective = ERG_LEAST_ENERGY},
                                                .whole_union = true,
                                                .most = 1,
                                                .tolerance = 0.002};
    struct erg_layout_choice few, more;
    struct erg_layout_results found;
    assert_ok(erg_layout_search(&found, &searches[1], &err), &err);
    request.query.deadline_s = 1.15 * found.items[0].time.total;
    assert_ok(erg_layout_choose(&few, &request, &err), &err);
    request.most = 40;
    assert_ok(erg_layout_choose(&more, &request, &err), &err);
    assert_true(few.count == 1 && few.gap <= request.tolerance);
    assert_true(few.union_gap > request.tolerance);
    assert_true(more.count > 1 && more.count < 20);
    assert_true(more.gap <= request.tolerance && more.union_gap <= request.tolerance);
    erg_layout_choice_release(&few);
    request.query.deadline_s = 0.5 * found.items[0].time.total;
    assert_fails(erg_layout_choose(&few, &request, &err), &err, "needs");
    assert_int_equal(few.count, 1); /* nothing for a union that nobody sees */
    erg_layout_choice_release(&few);
    erg_layout_choice_release(&more);
    erg_layout_results_release(&found);
    world_close(&world);
}

/* Within a budget of energy or power: whoever has two thousandths less time cannot keep it. */
static void budgets_are_kept_as_fast_as_can_be(void **state)
{
    (void)state;
    struct world world;
    struct erg_error err;
    world_open(&world, 4);
    struct erg_layout_search searches[] = {search_of(&world, 4), search_of(&world, 8)};
    for (size_t i = 0; i < 2; i++)
        searches[i].batch_least = searches[i].batch_most = 96;
    const struct erg_goal fastest = {.objective = ERG_FASTEST};
    const struct erg_layout_choice_request request = asked(searches, &fastest);
    struct erg_layout_choice choice;
    assert_ok(erg_layout_choose(&choice, &request, &err), &err);
    const struct erg_goal budgets[] = {
        {.energy_j = 0.9 * choice.picks[0].energy_j},
        {.energy_j = 0.8 * choice.picks[0].energy_j},
        {.power_w = 0.8 * choice.picks[0].power_w},
        {.power_w = 0.6 * choice.picks[0].power_w},
    };
    erg_layout_choice_release(&choice);
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        struct erg_layout_choice_request asks = asked(searches, &budgets[i]);
        assert_ok(erg_layout_choose(&choice, &asks, &err), &err);
        const struct erg_layout_pick got = choice.picks[0];
        erg_layout_choice_release(&choice);
        asks.query = (struct erg_goal){ERG_LEAST_ENERGY, .deadline_s = 0.998 * got.time_s};
        assert_ok(erg_layout_choose(&choice, &asks, &err), &err);
        const struct erg_layout_pick *sooner = &choice.picks[0];
        bool keeps_it = budgets[i].energy_j > 0 ? sooner->energy_j <= budgets[i].energy_j
                                                : sooner->power_w <= budgets[i].power_w;
        if (keeps_it)
            fail_msg("budget %zu: %.6g s, but %.6g s keep it, too", i, got.time_s, sooner->time_s);
        erg_layout_choice_release(&choice);
    }
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bound_is_below_the_optimum),
        cmocka_unit_test(bounds_answer_queries),
        cmocka_unit_test(choices_are_the_best_of_all_layouts),
        cmocka_unit_test(the_query_comes_first),
        cmocka_unit_test(budgets_are_kept_as_fast_as_can_be),
        cmocka_unit_test(impossible_requests_name_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
