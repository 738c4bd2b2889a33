/* Runs that look for the best way to train (ergon/train.h), and what a run would be (ergon/ask.h).
 */
#include "ergon/train.h"

#include "api/answer.h"
#include "base/sized.h"
#include "device/backend.h"
#include "io/print.h"
#include "launch/launch.h"
#include "layout/memory/stage_memory.h"
#include "optimize/optimize.h"
#include "train/files/model_file.h"
#include "train/run/run_layout.h"
#include "train/run/run_memory.h"
#include "train/run/session.h"
#include "train/run/train_preview.h"

#include <math.h>

/* On an emulated GPU: what it says orders the ways to be tried. */
static int plan_job(void *context, const struct erg_job *job, bool sequential,
                    struct erg_plan **plan, struct erg_error *err)
{
    struct erg_optimize_request request = {.job = job, .store_path = ":memory:"};
    (void)context;
    for (int method = 0; method < ERG_METHOD_COUNT; method++)
        request.methods[method] = !sequential || method == ERG_METHOD_SEQUENTIAL ||
                                  method == ERG_METHOD_SEQUENTIAL_CLOCKS;
    return erg_optimize(&request, plan, err);
}

static struct erg_goal goal_of(const struct erg_train_options *options)
{
    return (struct erg_goal){.objective = options->deadline_s > 0 ? ERG_LEAST_ENERGY : ERG_FASTEST,
                             .deadline_s = options->deadline_s,
                             .energy_j = options->energy_budget_j};
}

int erg_train_open_best(struct erg_train **train, const char *job,
                        const struct erg_train_options *options, double trial_s,
                        struct erg_error *err)
{
    struct erg_train_options own = {.size = sizeof own};
    if (erg_sized_take(&own, sizeof own, options, "erg_train_options", err) != 0)
        return -1;
    const struct erg_train_auto asked = {
        .budget_s = trial_s, .goal = goal_of(&own), .plan = plan_job};
    own.deadline_s = own.energy_budget_j = 0;
    return erg_train_open_auto(train, job, &own, &asked, err);
}

int erg_train_check_export(const char *folder, struct erg_error *err)
{
    if (erg_model_file_check_folder(folder, err) == 0)
        return 0;
    if (erg_launch_own_rank() != 0 && err)
        err->message[0] = 0; /* another rank says it */
    return -1;
}

/* ---- what would run ---- */

/* The question, with the options that the caller's struct has. */
struct previewing {
    struct erg_answer *answer;
    const char *job;
    struct erg_train_options options;
    bool best;
};

/* The rank that takes most, if it is more than there is. */
static int check_memory(const struct erg_run_preview *preview, struct erg_backend *backend,
                        struct erg_error *err)
{
    const long each = preview->ranks / preview->job->layout.pipeline;
    const struct erg_run_memory_request request = {preview->job, backend,
                                                   (int)((long)preview->most * each), 1, NULL};
    size_t most[ERG_RANK_ITEMS];
    return erg_run_memory_check(&request, most, err);
}

/* The choice of a run with this number of ranks, all like this one. */
static int choose_layout(struct erg_run_layout *chosen, const struct previewing *at,
                         const struct erg_job *job, int world, struct erg_backend *backend,
                         struct erg_error *err)
{
    size_t free_bytes;
    *chosen = (struct erg_run_layout){0};
    if (backend->table->memory_free(backend, &free_bytes, err) != 0)
        return -1;
    const int sharing = backend->shares_memory ? world : 1;
    const struct erg_run_layout_request request = {.job = job,
                                                   .backend = backend,
                                                   .init = at->options.init,
                                                   .world = world,
                                                   .room_bytes = ERG_MEMORY_USABLE_SHARE *
                                                                 (double)free_bytes / sharing};
    return erg_run_layout_choose(chosen, &request, err);
}

/* The plan that a run would train by, or whose ways it would try. */
static int open_plan(struct erg_plan **plan, struct erg_run_preview *preview,
                     const struct previewing *at, const struct erg_job *job,
                     struct erg_backend *backend, struct erg_error *err)
{
    const struct erg_goal goal = goal_of(&at->options);
    if (!at->best)
        return erg_run_plan_open(plan, NULL, &at->options, job, backend->name, 0, err);
    preview->sequential = erg_train_auto_sequential(job);
    if (plan_job(NULL, job, preview->sequential != NULL, plan, err) != 0)
        return -1;
    preview->way_count = erg_run_ways_list(preview->ways, *plan, at->options.lock_clocks, &goal);
    return 0;
}

static int preview(const struct previewing *at, const struct erg_job *job, const char *layout,
                   struct erg_backend *backend, struct erg_error *err)
{
    const uint64_t updates = job->training ? job->training->updates : 0;
    uint64_t steps = at->options.steps ? at->options.steps : updates;
    struct erg_run_preview preview;
    struct erg_plan *plan = NULL;
    int result = erg_run_preview_init(&preview, job, backend, at->options.init,
                                      erg_train_type_names[at->options.type],
                                      steps < updates ? steps : updates, err);
    if (result == 0)
        result = open_plan(&plan, &preview, at, job, backend, err);
    preview.plan = plan;
    preview.layout = layout;
    erg_run_plan_expect(&preview.planned, plan, at->options.plan, job);
    if (result == 0) {
        erg_train_preview_print(at->answer->files[ERG_ANSWER_TEXT], &preview);
        erg_print_json(at->answer->files[ERG_ANSWER_JSON], erg_run_preview_document(&preview));
        at->answer->checked = check_memory(&preview, backend, &at->answer->reason);
    }
    erg_run_preview_release(&preview);
    erg_plan_free(plan);
    return result;
}

/* The layout that a run would choose. Where no ranks were started, a rank for each GPU of the
 * cluster is assumed. */
static int preview_choice(const struct previewing *at, const struct erg_job *job, int world,
                          struct erg_backend *backend, struct erg_error *err)
{
    struct erg_run_layout chosen;
    struct erg_job *own = NULL;
    if (!job->training)
        return erg_fail(err, ERG_FAILED, "%s: key 'train': the key is missing", job->path);
    if (world == 1)
        world = (int)erg_cluster_gpus(&job->cluster);
    int result = choose_layout(&chosen, at, job, world, backend, err);
    if (result == 0)
        result = erg_job_parse(&own, job->path, chosen.job.data, chosen.job.count, NULL, err) ||
                         preview(at, own, chosen.why.data, backend, err)
                     ? -1
                     : 0;
    erg_run_layout_release(&chosen);
    erg_job_free(own);
    return result;
}

/* One rank says it for all, on a device of its own. */
static int run_dry(const struct previewing *at, const struct erg_launch_environment *env,
                   struct erg_error *err)
{
    struct erg_job *job;
    struct erg_backend *backend;
    const struct erg_job_overrides any = {.any_layout = at->best};
    if (erg_job_load(&job, at->job, &any, err) != 0)
        return -1;
    const struct erg_backend_options wanted = {
        .kind = (enum erg_backend_kind)at->options.device,
        .float32 = at->options.type == ERG_TRAIN_FLOAT32,
        .deterministic = job->training && job->training->deterministic,
        .local_rank = env->local_rank,
    };
    int result = erg_backend_open(&backend, &wanted, err);
    if (result == 0) {
        result = any.any_layout ? preview_choice(at, job, env->world, backend, err)
                                : preview(at, job, NULL, backend, err);
        backend->table->close(backend);
    }
    erg_job_free(job);
    return result;
}

static int ask_train(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_train *question = at->question;
    struct previewing own = {
        .answer = at->answer, .job = question->job, .best = question->best != 0};
    struct erg_launch_environment env;
    if (!question->job)
        return erg_fail(err, ERG_USAGE, "a run: expected a job");
    if (erg_sized_take(&own.options, sizeof own.options, question->options, "erg_train_options",
                       err) != 0 ||
        erg_launch_environment_read(&env, err) != 0)
        return -1;
    if (env.rank != 0) {
        at->answer = NULL;
        return 0;
    }
    return erg_answer_pens(at->answer, err) ? run_dry(&own, &env, err) : -1;
}

int erg_ask_train(struct erg_answer **answer, const struct erg_ask_train *question,
                  struct erg_error *err)
{
    struct erg_ask_train own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_train", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_train, &own, own.watch, err);
}
