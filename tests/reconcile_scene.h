/* A reconciler's jobs on a small cluster, on snapshots made by hand. */
#ifndef RECONCILE_SCENE_H
#define RECONCILE_SCENE_H

#include "check.h"

#include "cluster/live/reconcile.h"

enum { JOBS = 4, NODES = 4 };

static char type_names[2][2] = {"a", "h"};
static struct erg_gpu_type gpu_types[] = {
    {.name = type_names[0], .nodes = 2, .gpus_per_node = 4, .first_node = 0},
    {.name = type_names[1], .nodes = 2, .gpus_per_node = 4, .first_node = 2},
};
static const struct erg_fleet small_fleet = {
    .types = gpu_types, .types_count = 2, .nodes = NODES, .gpus = 16};

struct scene {
    struct erg_managed_job jobs[JOBS];
    size_t count;
    struct erg_live_job shown[JOBS];
    struct erg_live_node nodes[NODES];
    struct erg_live_snapshot snapshot;
    struct erg_reconcile_limits limits;
    struct erg_actions actions;
    double now_s;
};

static inline const char *token_of(int job)
{
    static char tokens[64][ERG_TOKEN_LENGTH + 1];
    snprintf(tokens[job], sizeof tokens[job], "%016x", 0xabc0u + (unsigned)job);
    return tokens[job];
}

static inline void set_placement(struct erg_placement *placement, int node, int gpus)
{
    placement->count = 0;
    if (gpus > 0)
        erg_placement_add(placement, node, (1ull << gpus) - 1);
}

/* Jobs 0 to count - 1 with ids from 1, all held by the administrator. */
static inline struct scene *scene_of(size_t count)
{
    static struct scene scene;
    for (size_t i = 0; i < JOBS; i++) {
        erg_managed_job_release(&scene.jobs[i]);
        erg_placement_release(&scene.shown[i].placement);
    }
    free(scene.actions.items);
    scene = (struct scene){.count = count, .now_s = 1000};
    erg_reconcile_limits_init(&scene.limits);
    for (size_t i = 0; i < count; i++) {
        erg_managed_job_init(&scene.jobs[i], (uint32_t)i + 1, token_of((int)i));
        scene.shown[i] = (struct erg_live_job){.id = (uint32_t)i + 1,
                                               .state = ERG_LIVE_HELD,
                                               .held_by_administrator = true,
                                               .exit_status = -1,
                                               .reason = "JobHeldAdmin"};
        memcpy(scene.shown[i].token, token_of((int)i), ERG_TOKEN_LENGTH + 1);
    }
    scene.snapshot = (struct erg_live_snapshot){
        .jobs = scene.shown, .jobs_count = count, .nodes = scene.nodes, .nodes_count = NODES};
    return &scene;
}

static inline void show(struct scene *scene, int job, enum erg_live_state state, int node, int gpus)
{
    scene->shown[job].state = state;
    set_placement(&scene->shown[job].placement, node, gpus);
}

static inline void intend(struct scene *scene, int job, int node, int gpus)
{
    set_placement(&scene->jobs[job].intended, node, gpus);
}

static inline void report(struct scene *scene, int job, long incarnation, enum erg_job_state state,
                          double checkpoint)
{
    struct erg_report said = {.incarnation = incarnation,
                              .state = state,
                              .iteration = checkpoint,
                              .checkpoint = checkpoint,
                              .save_s = NAN};
    erg_reconcile_report(&scene->jobs[job], &said, scene->now_s);
}

/* A job says which plan it follows. */
static inline void follow(struct scene *scene, int job, long plan)
{
    struct erg_report said = {.incarnation = scene->jobs[job].incarnation,
                              .state = ERG_JOB_TRAINING,
                              .save_s = NAN,
                              .plan = plan};
    erg_reconcile_report(&scene->jobs[job], &said, scene->now_s);
}

static inline void see(struct scene *scene)
{
    erg_reconcile_see(scene->jobs, scene->count, &scene->snapshot, &scene->limits, scene->now_s);
}

/* "stop 0, place 1": sees and asks what is next. */
static inline const char *next(struct scene *scene)
{
    static char text[400];
    see(scene);
    erg_reconcile_next(scene->jobs, scene->count, &scene->snapshot, &small_fleet, &scene->limits,
                       scene->now_s, &scene->actions);
    text[0] = '\0';
    for (size_t i = 0; i < scene->actions.count; i++) {
        const struct erg_action *action = &scene->actions.items[i];
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s %d", i ? ", " : "",
                 erg_action_verb_name(action->verb),
                 action->verb == ERG_ACTION_WAKE ? action->node : (int)action->job);
    }
    return text;
}

static inline void answer_all(struct scene *scene, enum erg_engine_answer answer)
{
    for (size_t i = 0; i < scene->actions.count; i++) {
        const struct erg_action *action = &scene->actions.items[i];
        erg_reconcile_answer(&scene->jobs[action->job], action, answer, &scene->limits,
                             scene->now_s);
    }
}

/* A job that was placed by us and runs, with a report. */
static inline void make_run(struct scene *scene, int job, int node, int gpus)
{
    intend(scene, job, node, gpus);
    next(scene);
    answer_all(scene, ERG_ENGINE_DONE);
    show(scene, job, ERG_LIVE_RUNNING, node, gpus);
    see(scene);
    report(scene, job, scene->jobs[job].incarnation + 1, ERG_JOB_TRAINING, 0);
    see(scene);
    assert_int_equal(scene->jobs[job].phase, ERG_PHASE_RUNNING);
}

#define assert_phase(scene, job, expected)                                                         \
    do {                                                                                           \
        see(scene);                                                                                \
        assert_string_equal(erg_live_phase_name((scene)->jobs[job].phase), expected);              \
    } while (0)

#endif
