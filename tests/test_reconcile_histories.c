/*
 * The reconciler of live jobs on random histories of the fake resource manager, in which a policy
 * without sense changes its mind while everything fails that can. The fake judges each call by what
 * the last snapshot allowed, and keeps the records by which the invariants are checked: I1 no GPU
 * with two jobs, I2 no incarnation commits after a newer one began, I3 work goes back by one
 * checkpoint's interval a fault and never without one, I4 every job ends once, cancelled ones never
 * run again, I5 foreign jobs are untouched.
 *
 * $ERGON_TEST_HISTORIES: how many, 400 by default; $ERGON_TEST_SEED: of the first one.
 */
#include "base/random.h"
#include "live/fake_engine.h"
#include "reconcile_scene.h"

enum { MANAGED_MOST = 6, POINTS = 3 };
static const double point_w[POINTS] = {300, 200, 100}; /* of one GPU */

struct world {
    uint64_t seed;
    struct erg_rng rng;
    struct erg_gpu_type types[1];
    struct erg_fleet fleet;
    struct fake_engine *fake;
    struct erg_managed_job jobs[MANAGED_MOST];
    size_t count;
    struct erg_reconcile_limits limits;
    struct erg_live_snapshot snapshot;
    struct erg_actions actions;
    double chaos;    /* 0: nothing goes wrong any more */
    bool crashed;    /* the manager, uncleanly: what it forgot may draw power */
    bool fresh;      /* records are as of a controller without a journal */
    char wrong[240]; /* first thing that must not be */
    long placements, moves, kills, paces, attention;
};

static bool chance(struct world *world, double share)
{
    return erg_rng_uniform(&world->rng) < share;
}

static int below(struct world *world, int limit)
{
    return (int)erg_rng_below(&world->rng, (size_t)limit);
}

#define NOTE(world, ...)                                                                           \
    do {                                                                                           \
        if (!(world)->wrong[0])                                                                    \
            snprintf((world)->wrong, sizeof(world)->wrong, __VA_ARGS__);                           \
    } while (0)

static void watch_power(void *context, struct fake_engine *fake)
{
    struct world *world = context;
    double room_w = world->limits.cap_w - world->limits.idle_w;
    if (!world->crashed && fake_engine_watts(fake) > room_w + 1e-6)
        NOTE(world, "power: %.0f W of %.0f W at %.1f s", fake_engine_watts(fake), room_w,
             fake->now_s);
}

static struct world *world_of(uint64_t seed)
{
    static struct world world;
    world = (struct world){.seed = seed, .chaos = 1};
    erg_rng_seed(&world.rng, seed);
    world.types[0] = (struct erg_gpu_type){.name = type_names[0],
                                           .nodes = 1 + below(&world, 4),
                                           .gpus_per_node = 1 + below(&world, 4)};
    world.fleet = (struct erg_fleet){.types = world.types,
                                     .types_count = 1,
                                     .nodes = world.types[0].nodes,
                                     .gpus = world.types[0].nodes * world.types[0].gpus_per_node};
    struct fake_settings settings;
    fake_settings_init(&settings);
    settings.seed = seed ^ 0x5eed;
    settings.start_most_s = chance(&world, 0.2) ? 40 : 3;
    settings.complete_s = chance(&world, 0.2) ? 10 : 0.3;
    settings.requeue_s = chance(&world, 0.5) ? 6 : 121;
    settings.state_s = chance(&world, 0.3) ? 5 : INFINITY;
    settings.forget_s = chance(&world, 0.3) ? 20 : 300;
    settings.obey_s = chance(&world, 0.5) ? 120 : 5;
    settings.other_gpus = chance(&world, 0.5);
    settings.after = watch_power;
    settings.context = &world;
    world.fake = fake_engine_new(&world.fleet, &settings);
    erg_reconcile_limits_init(&world.limits);
    world.limits.attention_s = 100;
    if (chance(&world, 0.5))
        world.limits.silence_s = 60;
    world.limits.idle_w = 50 * world.fleet.gpus;
    if (chance(&world, 0.7))
        world.limits.cap_w = world.limits.idle_w + 100 * (1 + below(&world, 3 * world.fleet.gpus));
    world.count = 1 + (size_t)below(&world, MANAGED_MOST);
    for (size_t i = 0; i < world.count; i++) {
        struct fake_trainer trainer = {
            .iterations = 100 + below(&world, 2000),
            .iteration_s = 1,
            .boot_s = 0.5 + 5 * erg_rng_uniform(&world.rng),
            .load_s = 10 * erg_rng_uniform(&world.rng),
            .save_s = 20 * erg_rng_uniform(&world.rng),
            .checkpoint_s = 20 + below(&world, 60),
            .bad_starts = chance(&world, 0.1) ? below(&world, 4) : 0,
            .dies_at = chance(&world, 0.05) ? 1 + below(&world, 300) : 0,
        };
        fake_engine_submit(world.fake, token_of((int)i), &trainer, 0, 0);
        erg_managed_job_init(&world.jobs[i], (uint32_t)i + 1, token_of((int)i));
    }
    return &world;
}

static void end_world(struct world *world)
{
    for (size_t i = 0; i < world->count; i++)
        erg_managed_job_release(&world->jobs[i]);
    free(world->actions.items);
    erg_live_snapshot_release(&world->snapshot);
    fake_engine_free(world->fake);
}

static bool is_over(const struct erg_managed_job *job)
{
    return job->given_up || job->phase == ERG_PHASE_ENDED || job->phase == ERG_PHASE_CANCELLED ||
           job->phase == ERG_PHASE_GONE;
}

/* A policy without sense but for what no policy may do: promise GPUs or watts twice. */
static void change_intent(struct world *world, size_t index)
{
    struct erg_managed_job *job = &world->jobs[index];
    int free_gpus[4] = {0};
    double room_w = world->limits.cap_w - world->limits.idle_w;
    bool same = job->intended.count > 0 && chance(world, 0.3);
    for (int node = 0; node < world->fleet.nodes; node++)
        free_gpus[node] = world->types[0].gpus_per_node;
    for (size_t i = 0; i < world->count; i++) {
        const struct erg_managed_job *other = &world->jobs[i];
        if (i == index || is_over(other) || other->intended.count == 0)
            continue;
        room_w -= other->intended_w;
        for (int s = 0; s < other->intended.count; s++)
            free_gpus[other->intended.slices[s].node] -=
                __builtin_popcountll(other->intended.slices[s].gpus);
    }
    if (!same) {
        job->intended.count = 0;
        int gpus = 1 + below(world, world->types[0].gpus_per_node);
        int nodes = 1 + below(world, world->fleet.nodes), first = below(world, world->fleet.nodes);
        for (int i = 0; i < world->fleet.nodes && job->intended.count < nodes; i++) {
            int node = (first + i) % world->fleet.nodes;
            if (free_gpus[node] >= gpus)
                erg_placement_add(&job->intended, node, (1ull << gpus) - 1);
        }
    }
    job->order = below(world, 3);
    int gpus = erg_placement_gpus(&job->intended);
    for (int point = below(world, POINTS); point < POINTS; point++) {
        if (point_w[point] * gpus > room_w)
            continue;
        job->point = point;
        job->intended_w = point_w[point] * gpus;
        return;
    }
    job->intended.count = 0;
    job->intended_w = 0;
}

static void drop_intents(struct world *world, double share)
{
    for (size_t i = 0; i < world->count; i++)
        if (is_over(&world->jobs[i]) || chance(world, share)) {
            world->jobs[i].intended.count = 0;
            world->jobs[i].intended_w = 0;
        }
}

/* What an earlier controller has written, and the most that the job may draw. */
static void find_plan(struct world *world, size_t index)
{
    struct erg_managed_job *job = &world->jobs[index];
    const struct fake_job *truth = fake_engine_job(world->fake, job->token);
    erg_reconcile_found_plan(job, truth->plan, truth->plan_point, truth->plan_w,
                             point_w[0] * world->fleet.gpus);
}

/* A controller that has lost its journal, and looks at what there is. */
static void forget_records(struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        struct erg_managed_job *job = &world->jobs[i];
        uint32_t id = job->id;
        erg_managed_job_release(job);
        erg_managed_job_init(job, id, token_of((int)i));
        struct fake_job *truth = fake_engine_job(world->fake, job->token);
        job->point = POINTS - 1;
        find_plan(world, i);
        truth->unread = true;
        truth->stopped_run = -1; /* it may be signalled again, which does no harm */
    }
    world->fresh = true;
}

/* All stay where they are, at points for which there is room: they had at least the slowest. */
static void adopt(struct world *world)
{
    double room_w = world->limits.cap_w - world->limits.idle_w;
    for (size_t i = 0; i < world->count; i++)
        room_w -= erg_placement_gpus(&world->jobs[i].actual) * point_w[POINTS - 1];
    for (size_t i = 0; i < world->count; i++) {
        struct erg_managed_job *job = &world->jobs[i];
        int gpus = erg_placement_gpus(&job->actual);
        erg_placement_assign(&job->intended, &job->actual);
        const int point = below(world, POINTS);
        const double more_w = gpus * (point_w[point] - point_w[POINTS - 1]);
        job->point = more_w <= room_w ? point : POINTS - 1;
        job->intended_w = gpus * point_w[job->point];
        room_w -= more_w <= room_w ? more_w : 0;
        if (is_over(job)) {
            job->intended.count = 0;
            job->intended_w = 0;
        }
    }
    world->fresh = false;
}

static void disturb(struct world *world)
{
    struct fake_engine *fake = world->fake;
    int job = below(world, (int)world->count), node = below(world, world->fleet.nodes);
    struct fake_job *of = &fake->jobs[job];
    switch (below(world, 23)) {
    case 0:
        fake_crash_trainer(fake, job);
        break;
    case 1:
        fake_preempt(fake, job);
        break;
    case 2:
        if (chance(world, 0.2))
            fake_user_cancel(fake, job);
        break;
    case 3:
        fake_user_release(fake, job);
        break;
    case 4:
        fake_user_hold(fake, job);
        break;
    case 5:
        fake_user_move(fake, job, node);
        break;
    case 6:
        fake_user_requeue(fake, job);
        break;
    case 7:
        fake_node_fail(fake, node, chance(world, 0.5));
        break;
    case 8:
        fake_node_drain(fake, node);
        break;
    case 9:
    case 10:
    case 11:
        fake_node_return(fake, node);
        break;
    case 12:
    case 13:
        fake->engine.calls->sleep(&fake->engine, node, NULL);
        break;
    case 14:
    case 15:
        fake_engine_submit(
            fake, NULL,
            &(struct fake_trainer){.iterations = 20 + below(world, 200), .iteration_s = 1}, node,
            1 + below(world, world->types[0].gpus_per_node));
        break;
    case 16:
        fake_manager_stop(fake, 20 * erg_rng_uniform(&world->rng), false);
        break;
    case 17:
        if (isinf(fake->settings.state_s) || !chance(world, 0.3))
            break;
        world->crashed = true;
        fake_manager_stop(fake, 5 * erg_rng_uniform(&world->rng), true);
        if (chance(world, 0.5)) /* an id may be given again */
            fake_engine_submit(fake, NULL,
                               &(struct fake_trainer){.iterations = 50, .iteration_s = 1}, node, 1);
        break;
    case 18:
        of->trainer.ignores_usr1 = !of->trainer.ignores_usr1;
        break;
    case 19:
        of->trainer.ignores_term = !of->trainer.ignores_term;
        break;
    case 20:
        of->trainer.dies_saving = true;
        break;
    case 22:
        fake_unknown(fake, job, 20 * erg_rng_uniform(&world->rng));
        break;
    case 21:
        if (chance(world, 0.2))
            of->trainer.silent = !of->trainer.silent;
        break;
    }
}

static void make_peace(struct world *world)
{
    world->chaos = 0;
    world->fake->faults = (struct fake_faults){0};
    for (int node = 0; node < world->fleet.nodes; node++)
        fake_node_return(world->fake, node);
    for (size_t i = 0; i < world->fake->jobs_count; i++) {
        struct fake_trainer *trainer = &world->fake->jobs[i].trainer;
        trainer->ignores_usr1 = trainer->ignores_term = trainer->silent = false;
        trainer->dies_saving = false;
        trainer->dies_at = trainer->bad_starts = 0;
        if (i >= world->count)
            fake_user_cancel(world->fake, (int)i);
    }
}

static void read_reports(struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        struct erg_report report;
        bool fresh = false;
        if (fake_engine_report(world->fake, world->jobs[i].token, &report, &fresh) && fresh)
            erg_reconcile_report(&world->jobs[i], &report, world->fake->now_s);
    }
}

/* Phases must say what is true. */
static void check_phases(struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        const struct fake_job *truth = &world->fake->jobs[i];
        enum erg_live_phase phase = world->jobs[i].phase;
        bool right = false;
        if (truth->lost)
            right = phase == ERG_PHASE_GONE || phase == ERG_PHASE_ENDED ||
                    phase == ERG_PHASE_CANCELLED || phase == ERG_PHASE_FAILED;
        else if (truth->seen_state == ERG_LIVE_UNKNOWN)
            right = phase == ERG_PHASE_UNKNOWN;
        else if (truth->state == ERG_LIVE_HELD)
            right = phase == ERG_PHASE_WAITING;
        else if (truth->state == ERG_LIVE_PENDING)
            right = phase == ERG_PHASE_STARTING || phase == ERG_PHASE_RETURNED;
        else if (truth->state == ERG_LIVE_RUNNING)
            right =
                phase == ERG_PHASE_STARTING || phase == ERG_PHASE_STOPPING ||
                (phase == ERG_PHASE_RUNNING && (truth->read_run == truth->runs || truth->confused));
        else if (truth->state == ERG_LIVE_COMPLETING)
            right = phase == ERG_PHASE_STOPPING || phase == ERG_PHASE_ENDING;
        else if (truth->state == ERG_LIVE_COMPLETED)
            right = phase == ERG_PHASE_ENDED;
        else if (truth->state == ERG_LIVE_FAILED)
            right = phase == ERG_PHASE_FAILED;
        else if (truth->state == ERG_LIVE_CANCELLED)
            right = phase == ERG_PHASE_CANCELLED;
        if (!right)
            NOTE(world, "job %u is %s, but its state is %d%s, run %d, of which was read %d",
                 truth->id, erg_live_phase_name(phase), (int)truth->state,
                 truth->lost ? ", lost" : "", truth->runs, truth->read_run);
    }
}

static void carry_out(struct world *world)
{
    struct erg_error err = {0};
    for (size_t i = 0; i < world->actions.count; i++) {
        const struct erg_action *action = &world->actions.items[i];
        struct erg_managed_job *job = &world->jobs[action->job];
        world->placements += action->verb == ERG_ACTION_PLACE;
        world->moves += action->verb == ERG_ACTION_STOP;
        world->kills += action->verb == ERG_ACTION_KILL;
        world->paces += action->verb == ERG_ACTION_PACE;
        enum erg_engine_answer answer = ERG_ENGINE_DONE;
        if (action->verb == ERG_ACTION_PACE || action->verb == ERG_ACTION_PLACE) {
            if (chance(world, 0.02 * world->chaos))
                answer = ERG_ENGINE_BROKEN;
            else
                fake_engine_plan(world->fake, job->token, job->plan + 1, job->point,
                                 job->intended_w);
        }
        if (answer == ERG_ENGINE_DONE)
            answer = erg_reconcile_act(&world->fake->engine, world->jobs, action, &err);
        if (chance(world, 0.01 * world->chaos)) { /* it comes twice */
            world->fake->lenient = true;
            erg_reconcile_act(&world->fake->engine, world->jobs, action, &err);
            world->fake->lenient = false;
        }
        if (chance(world, 0.002 * world->chaos)) { /* the controller dies: before the answer */
            if (chance(world, 0.5)) {
                forget_records(world);
                return;
            }
            struct fake_job *truth = fake_engine_job(world->fake, job->token);
            if (action->verb == ERG_ACTION_STOP) { /* it believes so */
                truth->stopped_run = truth->seen_run;
                truth->stopped_s = world->fake->now_s;
            }
            find_plan(world, action->job);
            erg_reconcile_doubt(job, action, &world->limits, world->fake->now_s);
            return;
        }
        erg_reconcile_answer(job, action, answer, &world->limits, world->fake->now_s);
    }
}

static bool pass(struct world *world)
{
    struct erg_error err = {0};
    struct erg_live_engine *engine = &world->fake->engine;
    if (engine->calls->snapshot(engine, &world->snapshot, &err) != ERG_ENGINE_DONE)
        return false;
    double now_s = world->fake->now_s;
    read_reports(world);
    erg_reconcile_see(world->jobs, world->count, &world->snapshot, &world->limits, now_s);
    check_phases(world);
    if (world->fresh)
        adopt(world);
    for (size_t i = 0; i < world->count; i++)
        world->attention += world->jobs[i].needs_attention;
    drop_intents(world, 0.02 * world->chaos);
    if (chance(world, 0.15 * world->chaos))
        change_intent(world, (size_t)below(world, (int)world->count));
    erg_reconcile_next(world->jobs, world->count, &world->snapshot, &world->fleet, &world->limits,
                       now_s, &world->actions);
    carry_out(world);
    if (world->fake->wrong[0])
        NOTE(world, "%s", world->fake->wrong);
    if (world->fake->broken[0])
        NOTE(world, "%s", world->fake->broken);
    return true;
}

static bool is_reached(const struct erg_managed_job *job)
{
    if (is_over(job))
        return true;
    if (job->intended.count == 0)
        return job->phase == ERG_PHASE_WAITING && job->held_by_administrator;
    return job->phase == ERG_PHASE_RUNNING && job->told_point == job->point &&
           erg_placement_gpus(&job->actual) == erg_placement_gpus(&job->intended);
}

/* Until all intents are reached, or all jobs are over. */
static void await(struct world *world, bool end, double most_s)
{
    double until_s = world->fake->now_s + most_s;
    while (!world->wrong[0]) {
        pass(world);
        size_t left = 0;
        for (size_t i = 0; i < world->count; i++)
            left += end ? !is_over(&world->jobs[i]) : !is_reached(&world->jobs[i]);
        if (left == 0)
            return;
        if (world->fake->now_s > until_s)
            for (size_t i = 0; i < world->count; i++)
                if (end ? !is_over(&world->jobs[i]) : !is_reached(&world->jobs[i]))
                    NOTE(world, "job %u is %s after %.0f s of peace: %s", world->jobs[i].id,
                         erg_live_phase_name(world->jobs[i].phase), most_s,
                         world->jobs[i].waits_for ? world->jobs[i].waits_for : "?");
        fake_engine_advance(world->fake, world->fake->now_s + 3);
        for (size_t i = 0; end && i < world->count; i++)
            if (world->jobs[i].intended.count == 0)
                change_intent(world, i);
        drop_intents(world, 0);
    }
}

static const char *run_history(uint64_t seed, long *counts)
{
    static char wrong[300];
    struct world *world = world_of(seed);
    double share = erg_rng_uniform(&world->rng) < 0.3 ? 0 : 0.1;
    world->fake->faults = (struct fake_faults){share, share / 3, share, share, share, share};
    double chaos_s = 100 + 500 * erg_rng_uniform(&world->rng);
    double disturbed = 0.2 * erg_rng_uniform(&world->rng);
    while (world->fake->now_s < chaos_s && !world->wrong[0]) {
        pass(world);
        fake_engine_advance(world->fake,
                            world->fake->now_s + 0.5 + 3.5 * erg_rng_uniform(&world->rng));
        if (chance(world, disturbed))
            disturb(world);
    }
    make_peace(world);
    await(world, false, 700 + 3 * world->limits.silence_s);
    for (size_t i = 0; i < world->count && !world->wrong[0]; i++)
        change_intent(world, i);
    await(world, false, 700 + 3 * world->limits.silence_s);
    await(world, true, 40000);
    for (size_t i = 0; i < world->count; i++) {
        const struct fake_job *job = &world->fake->jobs[i];
        /* Nobody can take a failed job back that was forgotten too soon. */
        bool crashed = job->lost && (world->crashed || (job->state == ERG_LIVE_FAILED &&
                                                        world->fake->settings.forget_s < 100));
        if (job->completed + job->cancelled != 1 && !world->jobs[i].given_up && !crashed)
            NOTE(world, "I4: job %u ended %d times", job->id, job->completed);
    }
    if (world->fake->early_signals > 0)
        NOTE(world, "a trainer was signalled before it could take it");
    counts[0] += world->placements;
    counts[1] += world->moves;
    counts[2] += world->kills;
    counts[3] += world->paces;
    snprintf(wrong, sizeof wrong, "%s", world->wrong);
    end_world(world);
    return wrong[0] ? wrong : NULL;
}

static void random_histories_keep_the_invariants(void **state)
{
    (void)state;
    const char *asked = getenv("ERGON_TEST_HISTORIES"), *from = getenv("ERGON_TEST_SEED");
    long histories = asked ? atol(asked) : 400;
    uint64_t seed = from ? strtoull(from, NULL, 10) : 1;
    long counts[4] = {0}, failed = 0;
    for (long i = 0; i < histories; i++) {
        const char *wrong = run_history(seed + (uint64_t)i, counts);
        if (wrong && failed++ < 10)
            print_message("ERGON_TEST_SEED=%llu ERGON_TEST_HISTORIES=1: %s\n",
                          (unsigned long long)seed + (unsigned long long)i, wrong);
    }
    print_message("%ld histories from seed %llu: %ld placements, %ld stops, %ld kills, %ld paces\n",
                  histories, (unsigned long long)seed, counts[0], counts[1], counts[2], counts[3]);
    assert_int_equal(failed, 0);
    if (histories >= 100)
        for (int i = 0; i < 4; i++)
            assert_true(counts[i] > histories);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_keep_the_invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
