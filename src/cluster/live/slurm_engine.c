/* The engine over Slurm's commands: each verb checks its job first, then runs scontrol or
 * scancel. */
#include "cluster/live/live_engine.h"

#include "cluster/live/host_list.h"
#include "cluster/live/slurm_command.h"
#include "cluster/live/slurm_read.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double patience_s = 15;       /* slurmctld answers in milliseconds, or is down */
static const double signal_patience_s = 5; /* scancel retries for 95 s if the job is gone */

/* Most jobs of a snapshot that are queried one by one; further ambiguous ones stay UNKNOWN. */
enum { ALONE_MOST = 64 };

struct slurm_engine {
    struct erg_live_engine base;
    const struct erg_fleet *fleet;
    char **names; /* by node */
    char *partition;
    struct erg_slurm_nodes nodes;
    struct erg_text config; /* slurmctld's slurm.conf; "": not read since the last snapshot */
};

struct slurm_jobs {
    struct erg_slurm_job *items;
    size_t count, capacity;
};

static struct slurm_engine *of(struct erg_live_engine *engine)
{
    return (struct slurm_engine *)engine;
}

static double now_s(struct erg_live_engine *engine)
{
    (void)engine;
    return 1e-9 * (double)erg_now_ns();
}

static const struct erg_gpu_type *type_of(const struct erg_fleet *fleet, int node)
{
    unsigned type = 0;
    while (node >= fleet->types[type].first_node + fleet->types[type].nodes)
        type++;
    return &fleet->types[type];
}

/* ---- one job, queried alone ---- */

static enum erg_engine_answer run(const char *const *words, double limit_s, struct erg_error *err)
{
    return erg_slurm_command(words, limit_s, NULL, err);
}

static enum erg_engine_answer answer_with(enum erg_engine_answer answer, struct erg_error *err,
                                          uint32_t id, const char *what)
{
    erg_fail(err, ERG_FAILED, "job %u %s", id, what);
    return answer;
}

/* Reads a job of any user. The output contains only this job, with any number of lines. */
static enum erg_engine_answer look_at(struct slurm_engine *engine, uint32_t id,
                                      struct erg_slurm_job *job, struct erg_arena *arena,
                                      struct erg_error *err)
{
    char number[16];
    snprintf(number, sizeof number, "%u", id);
    const char *words[] = {"scontrol", "-a", "-d", "-o", "show", "job", number, NULL};
    struct erg_text text = {0};
    *job = (struct erg_slurm_job){0};
    enum erg_engine_answer answer = erg_slurm_command(words, patience_s, &text, err);
    if (answer == ERG_ENGINE_DONE && (!erg_slurm_read_job(job, &engine->nodes, engine->partition,
                                                          text.data, text.count, arena) ||
                                      job->job.id != id)) {
        erg_placement_release(&job->job.placement);
        answer = answer_with(ERG_ENGINE_GONE, err, id, "is unknown to Slurm");
    }
    erg_text_release(&text);
    return answer;
}

/* The job of a verb. Release the placement if the result is DONE. */
static enum erg_engine_answer look(struct erg_live_engine *base, uint32_t id, const char *token,
                                   struct erg_slurm_job *job, struct erg_arena *arena,
                                   struct erg_error *err)
{
    enum erg_engine_answer answer = look_at(of(base), id, job, arena, err);
    if (answer != ERG_ENGINE_DONE)
        return answer;
    if (job->doubtful)
        answer = answer_with(ERG_ENGINE_REFUSED, err, id, "has ambiguous output in Slurm");
    else if (!job->job.token[0] || strcmp(job->job.token, token) != 0)
        answer = answer_with(ERG_ENGINE_GONE, err, id, "is another job now");
    else if (!job->job.single)
        answer =
            answer_with(ERG_ENGINE_REFUSED, err, id, "belongs to an array or a heterogeneous job");
    else if (!job->job.in_partition)
        answer = answer_with(ERG_ENGINE_REFUSED, err, id, "is in another partition");
    if (answer != ERG_ENGINE_DONE)
        erg_placement_release(&job->job.placement);
    return answer;
}

static enum erg_engine_answer refuse_state(const struct erg_slurm_job *job, const char *expected,
                                           struct erg_error *err)
{
    erg_fail(err, ERG_FAILED, "job %u is %s (%s), expected %s", job->job.id, job->job.state_text,
             job->job.reason, expected);
    return ERG_ENGINE_REFUSED;
}

static enum erg_engine_answer scontrol(const char *verb, uint32_t id, struct erg_error *err)
{
    char number[16];
    snprintf(number, sizeof number, "%u", id);
    const char *words[] = {"scontrol", verb, number, NULL};
    return run(words, patience_s, err);
}

/* ---- placing ---- */

static void add_node_names(struct erg_text *list, const struct slurm_engine *engine,
                           const struct erg_placement *placement)
{
    for (int i = 0; i < placement->count; i++)
        erg_text_printf(list, "%s%s", i ? "," : "", engine->names[placement->slices[i].node]);
}

/* The number of GPUs per node; 0 if nodes differ in it or repeat. */
static int gpus_each(const struct slurm_engine *engine, const struct erg_placement *placement)
{
    int each = 0;
    for (int i = 0; i < placement->count; i++) {
        int gpus = __builtin_popcountll(placement->slices[i].gpus);
        int node = placement->slices[i].node;
        if (node < 0 || node >= engine->fleet->nodes || gpus == 0 || (each && gpus != each))
            return 0;
        for (int j = 0; j < i; j++)
            if (placement->slices[j].node == node)
                return 0;
        each = gpus;
    }
    return each;
}

/* Returns true if a placement has these nodes and this number of GPUs on each; Slurm chooses which
 * GPUs. */
static bool has_shape(const struct erg_placement *a, const struct erg_placement *b)
{
    int same = 0;
    if (a->count != b->count)
        return false;
    for (int i = 0; i < a->count; i++)
        for (int j = 0; j < b->count; j++)
            same +=
                a->slices[i].node == b->slices[j].node &&
                __builtin_popcountll(a->slices[i].gpus) == __builtin_popcountll(b->slices[j].gpus);
    return same == a->count;
}

/* Returns true if a list of Slurm's contains exactly these nodes. */
static bool names_nodes(const struct slurm_engine *engine, const char *list,
                        const struct erg_placement *placement)
{
    struct erg_host_list hosts = {0};
    bool same =
        erg_host_list_add(&hosts, list, NULL) == 0 && hosts.count == (size_t)placement->count;
    for (size_t i = 0; same && i < hosts.count; i++) {
        int node = erg_slurm_nodes_find(&engine->nodes, hosts.items[i]), found = 0;
        for (int j = 0; j < placement->count; j++)
            found |= placement->slices[j].node == node;
        same = found;
    }
    erg_host_list_release(&hosts);
    return same;
}

/*
 * All values that must change together, as one request. It includes tasks and CPUs; otherwise a job
 * that shrinks requests more than its nodes may give (BadConstraints). It omits the GPU type, since
 * a request with a type is added to the former one. It contains `Gres=`, because every release of
 * Slurm writes TresPerNode differently.
 */
static enum erg_engine_answer ask_for(const struct erg_slurm_job *job, int nodes, const char *list,
                                      int gpus, const char *start, struct erg_error *err)
{
    struct erg_text parts[7] = {0};
    const char *words[10] = {"scontrol", "update"};
    erg_text_printf(&parts[0], "JobId=%u", job->job.id);
    erg_text_printf(&parts[1], "NumNodes=%d-%d", nodes, nodes);
    erg_text_printf(&parts[2], "NumTasks=%d", nodes);
    erg_text_printf(&parts[3], "NumCPUs=%d", nodes * job->cpus_per_task);
    erg_text_printf(&parts[4], "ReqNodeList=%s", list);
    erg_text_printf(&parts[5], "Gres=gpu:%d", gpus);
    erg_text_printf(&parts[6], "StartTime=%s", start);
    for (int i = 0; i < 7; i++)
        words[2 + i] = parts[i].data;
    enum erg_engine_answer answer = run(words, patience_s, err);
    for (int i = 0; i < 7; i++)
        erg_text_release(&parts[i]);
    return answer;
}

static enum erg_engine_answer place(struct erg_live_engine *base, uint32_t id, const char *token,
                                    const struct erg_placement *placement, struct erg_error *err)
{
    struct slurm_engine *engine = of(base);
    struct erg_arena arena = {0};
    struct erg_slurm_job job;
    int each = gpus_each(engine, placement);
    if (each == 0)
        return answer_with(ERG_ENGINE_REFUSED, err, id,
                           "cannot be placed: expected equal numbers of GPUs on its nodes");
    enum erg_engine_answer answer = look(base, id, token, &job, &arena, err);
    if (answer == ERG_ENGINE_DONE) {
        const struct erg_placement *has = &job.job.placement;
        bool is_placed = job.job.state == ERG_LIVE_RUNNING
                             ? has_shape(has, placement)
                             : job.job.state == ERG_LIVE_PENDING && job.asked_gpus == each &&
                                   names_nodes(engine, job.asked_nodes, placement);
        if (job.job.state == ERG_LIVE_HELD) {
            struct erg_text list = {0};
            add_node_names(&list, engine, placement);
            /* Not at once: within the second of its kill, its node would fail the job. */
            answer = ask_for(&job, placement->count, list.data, each, "now+1", err);
            if (answer == ERG_ENGINE_DONE)
                answer = scontrol("release", id, err);
            erg_text_release(&list);
        } else if (!is_placed) {
            answer = refuse_state(&job, "a held job", err);
        }
        erg_placement_release(&job.job.placement);
    }
    erg_arena_release(&arena);
    return answer;
}

/* The number of nodes for the given number of GPUs, equally on each, on the fleet's largest
 * nodes. */
static int nodes_for(const struct erg_fleet *fleet, int gpus)
{
    int most = 1, nodes = 1;
    for (unsigned i = 0; i < fleet->types_count; i++)
        if (fleet->types[i].gpus_per_node > most)
            most = fleet->types[i].gpus_per_node;
    while (nodes < gpus && (gpus % nodes != 0 || gpus / nodes > most))
        nodes++;
    return nodes;
}

static enum erg_engine_answer hand_back(struct erg_live_engine *base, uint32_t id,
                                        const char *token, int gpus, struct erg_error *err)
{
    struct erg_arena arena = {0};
    struct erg_slurm_job job;
    if (gpus < 1)
        return answer_with(ERG_ENGINE_REFUSED, err, id, "cannot be returned without GPUs");
    enum erg_engine_answer answer = look(base, id, token, &job, &arena, err);
    if (answer == ERG_ENGINE_DONE) {
        int nodes = nodes_for(of(base)->fleet, gpus);
        bool is_back = job.job.state == ERG_LIVE_PENDING && !job.asked_nodes[0] &&
                       job.asked_gpus == gpus / nodes;
        if (job.job.state != ERG_LIVE_HELD && job.job.state != ERG_LIVE_PENDING)
            answer = refuse_state(&job, "a waiting job", err);
        else if (!is_back)
            answer = ask_for(&job, nodes, "", gpus / nodes, "now+1", err);
        if (answer == ERG_ENGINE_DONE && job.job.state == ERG_LIVE_HELD)
            answer = scontrol("release", id, err);
        erg_placement_release(&job.job.placement);
    }
    erg_arena_release(&arena);
    return answer;
}

/* ---- holding, stopping, killing ---- */

static enum erg_engine_answer hold(struct erg_live_engine *base, uint32_t id, const char *token,
                                   struct erg_error *err)
{
    struct erg_arena arena = {0};
    struct erg_slurm_job job;
    enum erg_engine_answer answer = look(base, id, token, &job, &arena, err);
    if (answer == ERG_ENGINE_DONE) {
        if (job.job.state != ERG_LIVE_HELD && job.job.state != ERG_LIVE_PENDING)
            answer = refuse_state(&job, "a waiting job", err);
        else if (!job.job.held_by_administrator)
            answer = scontrol("hold", id, err);
        erg_placement_release(&job.job.placement);
    }
    erg_arena_release(&arena);
    return answer;
}

static enum erg_engine_answer stop(struct erg_live_engine *base, uint32_t id, const char *token,
                                   struct erg_error *err)
{
    struct erg_arena arena = {0};
    struct erg_slurm_job job;
    enum erg_engine_answer answer = look(base, id, token, &job, &arena, err);
    if (answer == ERG_ENGINE_DONE) {
        char number[16];
        snprintf(number, sizeof number, "%u", id);
        const char *words[] = {"scancel", "--batch", "--signal=USR1", number, NULL};
        if (job.is_started)
            answer = run(words, signal_patience_s, err);
        else if (job.job.state != ERG_LIVE_HELD && job.job.state != ERG_LIVE_COMPLETING)
            answer = refuse_state(&job, "a running job", err);
        erg_placement_release(&job.job.placement);
    }
    erg_arena_release(&arena);
    return answer;
}

static enum erg_engine_answer kill_job(struct erg_live_engine *base, uint32_t id, const char *token,
                                       struct erg_error *err)
{
    struct erg_arena arena = {0};
    struct erg_slurm_job job;
    enum erg_engine_answer answer = look(base, id, token, &job, &arena, err);
    if (answer == ERG_ENGINE_DONE) {
        bool taken = job.job.state == ERG_LIVE_RUNNING || job.job.state == ERG_LIVE_FAILED;
        /* A completing job may have been cancelled by its user; this would revive it. */
        if (!taken && job.job.state != ERG_LIVE_HELD)
            answer = refuse_state(&job, "a running or failed job", err);
        else if (taken)
            answer = scontrol("requeuehold", id, err);
        if (answer == ERG_ENGINE_DONE && !job.job.held_by_administrator)
            answer = scontrol("hold", id, err);
        erg_placement_release(&job.job.placement);
    }
    erg_arena_release(&arena);
    return answer;
}

/* ---- nodes ---- */

/* Returns DONE if slurm.conf lets a node be switched off. */
static enum erg_engine_answer may_sleep(struct slurm_engine *engine,
                                        const struct erg_slurm_node *node, struct erg_error *err)
{
    static const char *const words[] = {"scontrol", "show", "config", NULL};
    enum erg_engine_answer answer = ERG_ENGINE_DONE;
    if (engine->config.count == 0)
        answer = erg_slurm_command(words, patience_s, &engine->config, err);
    if (answer != ERG_ENGINE_DONE) {
        erg_text_release(&engine->config);
        return answer;
    }
    return erg_slurm_may_sleep(node, engine->config.data, err) == 0 ? ERG_ENGINE_DONE
                                                                    : ERG_ENGINE_REFUSED;
}

static enum erg_engine_answer switch_node(struct erg_live_engine *base, int node, bool on,
                                          struct erg_error *err)
{
    struct slurm_engine *engine = of(base);
    struct erg_arena arena = {0};
    struct erg_text text = {0};
    struct erg_slurm_node now;
    const char *show[] = {"scontrol", "-a", "-d", "-o", "show", "node", engine->names[node], NULL};
    enum erg_engine_answer answer = erg_slurm_command(show, patience_s, &text, err);
    if (answer == ERG_ENGINE_DONE) {
        const char *rest = text.data;
        bool known = erg_slurm_next_node(&rest, &now, &engine->nodes, &arena) && now.node == node;
        enum erg_live_node_state state = known ? now.live.state : ERG_NODE_UNKNOWN;
        bool rises =
            known && (strstr(now.state_text, "POWERING_UP") || strstr(now.state_text, "POWER_UP"));
        bool needed = on ? state == ERG_NODE_OFF || (state == ERG_NODE_CHANGES && !rises)
                         : state == ERG_NODE_UP || state == ERG_NODE_DRAINS;
        if (needed) {
            const char *name = erg_arena_printf(&arena, "NodeName=%s", engine->names[node]);
            const char *words[] = {"scontrol", "update", name,
                                   on ? "State=POWER_UP" : "State=POWER_DOWN", NULL};
            if (!on)
                answer = may_sleep(engine, &now, err);
            if (answer == ERG_ENGINE_DONE)
                answer = run(words, patience_s, err);
        } else if (state == ERG_NODE_DOWN || state == ERG_NODE_UNKNOWN || (!on && rises)) {
            erg_fail(err, ERG_FAILED, "node %s is %s, expected a node that is %s",
                     engine->names[node], known ? now.state_text : "unknown to Slurm",
                     on ? "off" : "on");
            answer = ERG_ENGINE_REFUSED;
        }
    }
    erg_text_release(&text);
    erg_arena_release(&arena);
    return answer;
}

static enum erg_engine_answer wake(struct erg_live_engine *engine, int node, struct erg_error *err)
{
    return switch_node(engine, node, true, err);
}

static enum erg_engine_answer put_to_sleep(struct erg_live_engine *engine, int node,
                                           struct erg_error *err)
{
    return switch_node(engine, node, false, err);
}

/* ---- the snapshot ---- */

static int by_id(const void *a, const void *b)
{
    uint32_t left = ((const struct erg_slurm_job *)a)->job.id;
    uint32_t right = ((const struct erg_slurm_job *)b)->job.id;
    return (left > right) - (left < right);
}

static void release_jobs(struct slurm_jobs *jobs)
{
    for (size_t i = 0; i < jobs->count; i++)
        erg_placement_release(&jobs->items[i].job.placement);
    free(jobs->items);
    *jobs = (struct slurm_jobs){0};
}

/* Ids with several texts, or with ambiguous text, are queried one by one: a user can forge lines
 * for other jobs, but not in the answer to that query. */
static enum erg_engine_answer resolve(struct slurm_engine *engine, struct slurm_jobs *jobs,
                                      struct erg_arena *arena, struct erg_error *err)
{
    size_t kept = 0;
    int asked = 0;
    if (jobs->count)
        qsort(jobs->items, jobs->count, sizeof *jobs->items, by_id);
    for (size_t i = 0, next; i < jobs->count; i = next) {
        struct erg_slurm_job job = jobs->items[i];
        for (next = i + 1; next < jobs->count && jobs->items[next].job.id == job.job.id; next++) {
            erg_placement_release(&jobs->items[next].job.placement);
            jobs->items[next].job.placement = (struct erg_placement){0};
            job.doubtful = true;
        }
        jobs->items[i].job.placement = (struct erg_placement){0};
        if (job.doubtful) {
            erg_placement_release(&job.job.placement);
            job.job.placement = (struct erg_placement){0};
            if (asked++ < ALONE_MOST) {
                struct erg_slurm_job alone;
                enum erg_engine_answer answer = look_at(engine, job.job.id, &alone, arena, err);
                if (answer == ERG_ENGINE_LATER || answer == ERG_ENGINE_BROKEN)
                    return answer;
                if (answer != ERG_ENGINE_DONE)
                    continue;
                job = alone;
            }
        }
        if (job.doubtful) {
            job.job.state = ERG_LIVE_UNKNOWN;
            job.job.token[0] = '\0';
            job.job.in_partition = true; /* so that it is visible */
        }
        jobs->items[kept++] = job;
    }
    jobs->count = kept;
    return ERG_ENGINE_DONE;
}

static enum erg_engine_answer read_jobs(struct slurm_engine *engine, struct slurm_jobs *jobs,
                                        struct erg_arena *arena, struct erg_error *err)
{
    static const char *const words[] = {"scontrol", "-a", "-d", "-o", "show", "job", NULL};
    struct erg_text text = {0};
    enum erg_engine_answer answer = erg_slurm_command(words, patience_s, &text, err);
    if (answer == ERG_ENGINE_DONE) {
        const char *rest = text.data, *record;
        size_t length;
        while (erg_slurm_next_job(&rest, &record, &length)) {
            struct erg_slurm_job job;
            if (erg_slurm_read_job(&job, &engine->nodes, engine->partition, record, length, arena))
                ERG_PUSH(jobs, items, job);
        }
        answer = resolve(engine, jobs, arena, err);
    }
    erg_text_release(&text);
    return answer;
}

/* The GPUs in use, as nodes report them. */
struct in_use {
    uint64_t *gpus; /* by node */
    bool *known;    /* by node: Slurm reports which */
    uint64_t *explained;
};

static enum erg_engine_answer read_nodes(struct slurm_engine *engine,
                                         struct erg_live_snapshot *snapshot, struct in_use *use,
                                         struct erg_error *err)
{
    static const char *const words[] = {"scontrol", "-a", "-d", "-o", "show", "node", NULL};
    struct erg_text text = {0};
    struct erg_slurm_node node;
    enum erg_engine_answer answer = erg_slurm_command(words, patience_s, &text, err);
    if (answer == ERG_ENGINE_DONE) {
        snapshot->nodes_count = (size_t)engine->fleet->nodes;
        snapshot->nodes = erg_xcalloc(snapshot->nodes_count, sizeof *snapshot->nodes);
        for (size_t i = 0; i < snapshot->nodes_count; i++)
            snapshot->nodes[i] = (struct erg_live_node){ERG_NODE_DOWN, "Slurm does not list it"};
        const char *rest = text.data;
        while (erg_slurm_next_node(&rest, &node, &engine->nodes, &snapshot->strings))
            if (node.node >= 0) {
                snapshot->nodes[node.node] = node.live;
                use->gpus[node.node] = node.used.gpus;
                use->known[node.node] = node.is_used_known;
            }
    }
    erg_text_release(&text);
    return answer;
}

static void add_job(struct erg_live_snapshot *snapshot, const struct erg_live_job *job)
{
    if (snapshot->jobs_count == snapshot->jobs_capacity) {
        snapshot->jobs_capacity =
            erg_grow_capacity(snapshot->jobs_capacity, snapshot->jobs_count + 1);
        snapshot->jobs =
            erg_xrealloc(snapshot->jobs, snapshot->jobs_capacity, sizeof *snapshot->jobs);
    }
    snapshot->jobs[snapshot->jobs_count++] = *job;
}

/* The GPUs of a foreign job that its nodes confirm: the job may have ended in between. */
static void confirm(struct erg_placement *placement, const struct in_use *use)
{
    int kept = 0;
    for (int i = 0; i < placement->count; i++) {
        struct erg_slice slice = placement->slices[i];
        if (use->known[slice.node])
            slice.gpus &= use->gpus[slice.node];
        if (slice.gpus)
            placement->slices[kept++] = slice;
    }
    placement->count = kept;
}

/* A completing job still has its GPUs, which its node already counts as free: it gets this number
 * of the free ones. */
static void choose(const struct slurm_engine *engine, struct erg_placement *placement,
                   const struct in_use *use)
{
    for (int i = 0; i < placement->count; i++) {
        struct erg_slice *slice = &placement->slices[i];
        int gpus = type_of(engine->fleet, slice->node)->gpus_per_node;
        int wanted = __builtin_popcountll(slice->gpus);
        uint64_t all = gpus == ERG_NODE_GPUS_MOST ? ~UINT64_C(0) : (UINT64_C(1) << gpus) - 1;
        uint64_t free = all & ~use->gpus[slice->node] & ~use->explained[slice->node];
        if (__builtin_popcountll(free) >= wanted)
            slice->gpus = erg_gpus_lowest(free, wanted);
    }
}

/* GPUs in use that no listed job has belong to jobs that are hidden, ambiguous, or newer than the
 * list. In the last case, if a released job waits for the node, they are most likely its GPUs. */
static void add_unexplained(const struct slurm_engine *engine, const struct slurm_jobs *jobs,
                            struct erg_live_snapshot *snapshot, const struct in_use *use)
{
    struct erg_live_job rest = {.state = ERG_LIVE_UNKNOWN,
                                .user = "",
                                .account = "",
                                .name = "",
                                .state_text = "",
                                .reason = "GPUs in use by jobs that Slurm does not list",
                                .exit_status = -1,
                                .uid = (uid_t)-1,
                                .submitted_unix_s = NAN};
    for (size_t i = 0; i < jobs->count; i++) {
        const struct erg_slurm_job *job = &jobs->items[i];
        struct erg_host_list hosts = {0};
        if (job->job.state == ERG_LIVE_PENDING && job->job.token[0] && job->job.in_partition &&
            job->asked_nodes[0])
            erg_host_list_add(&hosts, job->asked_nodes, NULL);
        for (size_t h = 0; h < hosts.count; h++) {
            int node = erg_slurm_nodes_find(&engine->nodes, hosts.items[h]);
            if (node >= 0)
                use->explained[node] = ~UINT64_C(0);
        }
        erg_host_list_release(&hosts);
    }
    for (int i = 0; i < engine->fleet->nodes; i++)
        if (use->known[i] && use->gpus[i] & ~use->explained[i])
            erg_placement_add(&rest.placement, i, use->gpus[i] & ~use->explained[i]);
    if (rest.placement.count)
        add_job(snapshot, &rest);
}

/* Moves a job into the snapshot. */
static void take_job(const struct slurm_engine *engine, struct erg_live_job *job, bool unknown,
                     struct erg_live_snapshot *snapshot, const struct in_use *use)
{
    if (unknown)
        choose(engine, &job->placement, use);
    else if (!job->token[0] || !job->in_partition)
        confirm(&job->placement, use);
    for (int i = 0; i < job->placement.count; i++)
        use->explained[job->placement.slices[i].node] |= job->placement.slices[i].gpus;
    if (!job->in_partition && job->placement.count == 0)
        return;
    add_job(snapshot, job);
    job->placement = (struct erg_placement){0};
}

static enum erg_engine_answer take_snapshot(struct erg_live_engine *base,
                                            struct erg_live_snapshot *snapshot,
                                            struct erg_error *err)
{
    struct slurm_engine *engine = of(base);
    size_t nodes = (size_t)engine->fleet->nodes;
    struct in_use use = {erg_xcalloc(nodes, sizeof *use.gpus),
                         erg_xcalloc(nodes, sizeof *use.known),
                         erg_xcalloc(nodes, sizeof *use.explained)};
    struct slurm_jobs jobs = {0};
    erg_live_snapshot_release(snapshot);
    erg_text_release(&engine->config);
    snapshot->at_s = now_s(base);
    /* Jobs first: nodes show jobs that start between the two queries. */
    enum erg_engine_answer answer = read_jobs(engine, &jobs, &snapshot->strings, err);
    if (answer == ERG_ENGINE_DONE)
        answer = read_nodes(engine, snapshot, &use, err);
    for (int unknown = 0; answer == ERG_ENGINE_DONE && unknown < 2; unknown++)
        for (size_t i = 0; i < jobs.count; i++)
            if (jobs.items[i].which_unknown == unknown)
                take_job(engine, &jobs.items[i].job, unknown, snapshot, &use);
    if (answer == ERG_ENGINE_DONE)
        add_unexplained(engine, &jobs, snapshot, &use);
    else
        erg_live_snapshot_release(snapshot);
    release_jobs(&jobs);
    free(use.gpus);
    free(use.known);
    free(use.explained);
    return answer;
}

/* ---- opening ---- */

static void close_engine(struct erg_live_engine *base)
{
    struct slurm_engine *engine = of(base);
    erg_slurm_nodes_release(&engine->nodes);
    erg_text_release(&engine->config);
    for (int i = 0; engine->names && i < engine->fleet->nodes; i++)
        free(engine->names[i]);
    free(engine->names);
    free(engine->partition);
    free(engine);
}

/* Marks the fleet's nodes of the partition. */
static int check_partition(struct slurm_engine *engine, bool *is_in, struct erg_error *err)
{
    const char *words[] = {"scontrol", "-a", "-o", "show", "partition", engine->partition, NULL};
    struct erg_text text = {0};
    struct erg_arena arena = {0};
    struct erg_host_list hosts = {0};
    enum erg_engine_answer answer = erg_slurm_command(words, patience_s, &text, err);
    int result = answer == ERG_ENGINE_DONE ? 0 : -1;
    if (answer == ERG_ENGINE_REFUSED)
        erg_fail(err, ERG_FAILED, "Slurm has no partition '%s', expected that of managed jobs",
                 engine->partition);
    if (result == 0) {
        const char *nodes = erg_slurm_value(text.data, "Nodes", &arena);
        result = erg_host_list_add(&hosts, nodes ? nodes : "", err);
        if (result != 0)
            erg_fail_context(err, "nodes of Slurm's partition '%s'", engine->partition);
    }
    for (size_t i = 0; i < hosts.count; i++) {
        int node = erg_slurm_nodes_find(&engine->nodes, hosts.items[i]);
        if (node >= 0)
            is_in[node] = true;
    }
    erg_host_list_release(&hosts);
    erg_arena_release(&arena);
    erg_text_release(&text);
    return result;
}

/* `kinds`: Slurm's name of the GPUs, by type of the fleet. */
static int check_node(const struct slurm_engine *engine, const struct erg_slurm_node *node,
                      const char **kinds, struct erg_arena *arena, struct erg_error *err)
{
    const struct erg_gpu_type *type = type_of(engine->fleet, node->node);
    const char **kind = &kinds[type - engine->fleet->types];
    if (node->has.count != type->gpus_per_node)
        return erg_fail(err, ERG_FAILED,
                        "node %s has %d GPUs in Slurm (Gres), expected %d, as type '%s' has",
                        node->name, node->has.count, type->gpus_per_node, type->name);
    if (node->has.mixed)
        return erg_fail(err, ERG_FAILED,
                        "node %s has GPUs of several types in Slurm (Gres), expected one",
                        node->name);
    if (!*kind)
        *kind = erg_arena_strdup(arena, node->has.type);
    else if (strcmp(*kind, node->has.type) != 0)
        return erg_fail(err, ERG_FAILED,
                        "node %s has GPUs of the type '%s' in Slurm (Gres), expected '%s', as on "
                        "the first node of type '%s'",
                        node->name, node->has.type, *kind, type->name);
    return 0;
}

static int check_nodes(struct slurm_engine *engine, struct erg_error *err)
{
    static const char *const words[] = {"scontrol", "-a", "-d", "-o", "show", "node", NULL};
    size_t nodes = (size_t)engine->fleet->nodes;
    bool *is_in = erg_xcalloc(nodes, sizeof *is_in), *is_seen = erg_xcalloc(nodes, sizeof *is_seen);
    const char **kinds = erg_xcalloc(engine->fleet->types_count, sizeof *kinds);
    struct erg_text text = {0};
    struct erg_arena arena = {0};
    struct erg_slurm_node node;
    int result = check_partition(engine, is_in, err);
    if (result == 0 && erg_slurm_command(words, patience_s, &text, err) != ERG_ENGINE_DONE)
        result = -1;
    const char *rest = result == 0 ? text.data : "";
    while (result == 0 && erg_slurm_next_node(&rest, &node, &engine->nodes, &arena))
        if (node.node >= 0) {
            is_seen[node.node] = true;
            result = check_node(engine, &node, kinds, &arena, err);
        }
    for (size_t i = 0; result == 0 && i < nodes; i++) {
        if (!is_seen[i])
            result =
                erg_fail(err, ERG_FAILED, "Slurm has no node '%s', expected all nodes of type '%s'",
                         engine->names[i], type_of(engine->fleet, (int)i)->name);
        else if (!is_in[i])
            result = erg_fail(
                err, ERG_FAILED,
                "node %s is not in Slurm's partition '%s', expected all nodes of the fleet there",
                engine->names[i], engine->partition);
    }
    erg_arena_release(&arena);
    erg_text_release(&text);
    free(kinds);
    free(is_in);
    free(is_seen);
    return result;
}

int erg_slurm_engine_open(struct erg_live_engine **opened, const struct erg_fleet *fleet,
                          const char *const *node_names, const char *partition,
                          struct erg_error *err)
{
    static const struct erg_live_engine_calls calls = {
        .now_s = now_s,
        .snapshot = take_snapshot,
        .place = place,
        .hold = hold,
        .stop = stop,
        .kill = kill_job,
        .hand_back = hand_back,
        .wake = wake,
        .sleep = put_to_sleep,
        .close = close_engine,
    };
    struct slurm_engine *engine = erg_xcalloc(1, sizeof *engine);
    engine->base.calls = &calls;
    engine->fleet = fleet;
    engine->partition = erg_xstrdup(partition);
    engine->names = erg_xcalloc((size_t)fleet->nodes, sizeof *engine->names);
    for (int i = 0; i < fleet->nodes; i++)
        engine->names[i] = erg_xstrdup(node_names[i]);
    erg_slurm_nodes_make(&engine->nodes, fleet, (const char *const *)engine->names);
    if (check_nodes(engine, err) != 0) {
        close_engine(&engine->base);
        return -1;
    }
    *opened = &engine->base;
    return 0;
}
