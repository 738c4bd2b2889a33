/* A run that searches for the best way to train: its layout, its plan, and trials on its steps. */
#include "train/run/session_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "device/backend.h"
#include "io/file.h"
#include "io/json.h"
#include "layout/memory/stage_memory.h"
#include "train/run/run_layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- from rank 0 to all ---- */

/* Prints a line at rank 0, like those of the log. */
static void tell(const struct erg_train *train, const char *text)
{
    if (erg_train_tells(train) && train->options.line)
        train->options.line(train->options.context, text);
}

static char *path_of(const struct erg_train *train, const char *name)
{
    return erg_file_path(train->options.folder, name);
}

/* World call: replaces a text of rank 0 by a copy on every rank. */
static int share_text(struct erg_rendezvous *rendezvous, char **text, struct erg_error *err)
{
    enum { PART = 1 << 20 };
    uint64_t length = *text ? strlen(*text) : 0;
    if (erg_rendezvous_broadcast(rendezvous, 0, &length, sizeof length, ERG_RENDEZVOUS_PATIENCE_S,
                                 err) != 0)
        return -1;
    char *all = erg_xcalloc(length + 1, 1);
    int result = 0;
    if (*text)
        memcpy(all, *text, length);
    for (uint64_t at = 0; at < length && result == 0; at += PART)
        result = erg_rendezvous_broadcast(rendezvous, 0, all + at,
                                          (size_t)(length - at < PART ? length - at : PART),
                                          ERG_RENDEZVOUS_PATIENCE_S, err);
    free(*text);
    *text = all;
    return result;
}

/* ---- the layout ---- */

/*
 * World call: the part of its device's free memory that each rank may use: the ranks of a machine
 * may share its memory.
 */
static int find_room(const struct erg_train *train, double *room_bytes, struct erg_error *err)
{
    struct {
        size_t free_bytes;
        char machine[ERG_LAUNCH_MACHINE_BYTES];
    } own = {0}, *all = erg_xcalloc((size_t)train->env.world, sizeof *all);
    struct erg_backend *backend = train->backend;
    erg_launch_machine(own.machine);
    int result = backend->table->memory_free(backend, &own.free_bytes, err);
    result = erg_rendezvous_agree(train->rendezvous, result, err);
    if (result == 0)
        result = erg_rendezvous_all_gather(train->rendezvous, &own, sizeof own, all,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    *room_bytes = INFINITY;
    for (int i = 0; i < train->env.world && result == 0; i++) {
        int sharing = 0;
        for (int k = 0; k < train->env.world; k++)
            sharing +=
                k == i || (backend->shares_memory && strcmp(all[i].machine, all[k].machine) == 0);
        *room_bytes =
            fmin(*room_bytes, ERG_MEMORY_USABLE_SHARE * (double)all[i].free_bytes / sharing);
    }
    free(all);
    return result;
}

/*
 * *before: the job that an earlier run has left in the folder; NULL: none. Fails if the folder has
 * another job, or a plan without a job, since they belong to another run.
 */
static int find_before(struct erg_job **before, const struct erg_train *train, const char *path,
                       struct erg_error *err)
{
    static const char *const kept[] = {"job.yaml", "plan.json", NULL};
    const size_t head = strlen(erg_run_layout_head);
    char *text = NULL;
    *before = NULL;
    const bool own = erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, NULL, NULL) == 0 &&
                     strncmp(text, erg_run_layout_head, head) == 0;
    if (own && !train->options.fresh)
        (void)erg_job_parse(before, path, text, strlen(text), NULL, NULL);
    free(text);
    return own ? 0
               : erg_dir_refuse_files(train->options.folder, kept,
                                      "not of a run with --auto; expected a folder without it",
                                      err);
}

/* At rank 0: chooses, and writes the job with the layout into the run's folder. */
static int choose_layout(struct erg_train *train, const char *path, double room_bytes, char **text,
                         struct erg_error *err)
{
    struct erg_job *before, *job = NULL;
    if (find_before(&before, train, path, err) != 0)
        return -1;
    const struct erg_run_layout_request request = {.job = train->job,
                                                   .backend = train->backend,
                                                   .init = train->options.init,
                                                   .world = train->env.world,
                                                   .room_bytes = room_bytes,
                                                   .before = before};
    struct erg_run_layout chosen;
    int result = erg_run_layout_choose(&chosen, &request, err);
    if (result == 0)
        result = erg_job_parse(&job, path, chosen.job.data, chosen.job.count, NULL, err) ||
                         erg_run_log_check(train->options.folder, job, train->options.fresh,
                                           train->options.allow_change, err) ||
                         erg_dir_make(train->options.folder, err) ||
                         erg_file_write(path, chosen.job.data, chosen.job.count, err)
                     ? -1
                     : 0;
    if (result == 0) {
        *text = erg_xstrdup(chosen.job.data);
        train->tuning.layout = erg_xstrdup(chosen.why.data);
    }
    erg_run_layout_release(&chosen);
    erg_job_free(before);
    erg_job_free(job);
    return result;
}

int erg_train_tune_layout(struct erg_train *train, const char *job, struct erg_error *err)
{
    double room_bytes;
    char *text = NULL;
    if (!train->job->training)
        return erg_fail(err, ERG_FAILED,
                        "%s: key 'train': the key is missing; expected the data, the number of "
                        "updates and the learning rate of the run",
                        job);
    if (!train->options.folder)
        return erg_fail(err, ERG_USAGE,
                        "a run that searches for the best way to train needs a folder for its job "
                        "and its plan; expected one in its options");
    if (find_room(train, &room_bytes, err) != 0)
        return -1;
    char *path = path_of(train, "job.yaml");
    int result = erg_train_tells(train) ? choose_layout(train, path, room_bytes, &text, err) : 0;
    result = erg_rendezvous_agree(train->rendezvous, result, err);
    if (result == 0)
        result = share_text(train->rendezvous, &text, err);
    if (result == 0) {
        erg_job_free(train->job);
        train->job = NULL;
        result = erg_job_parse(&train->job, path, text, strlen(text), NULL, err);
        result = erg_rendezvous_agree(train->rendezvous, result, err);
    }
    free(path);
    free(text);
    return result;
}

/* ---- the plan ---- */

const char *erg_train_auto_sequential(const struct erg_job *job)
{
    return job->layout.tensor * job->layout.context == 1
               ? "its layers have no communication to hide"
           : !job->even_microbatch   ? "its microbatches cannot be halved"
           : job->layout.offload > 0 ? "its layout offloads activations"
           : job->training && job->training->deterministic
               ? "train.deterministic requires the same bits, which nanobatches do not give"
           : erg_job_splits_stream(job) && job->layout.recompute == ERG_RECOMPUTE_FULL
               ? "it recomputes all under sequence parallelism"
               : NULL;
}

/* The plan from earlier trials of this run, or NULL. */
static char *find_plan(const struct erg_train *train, const char *path)
{
    struct erg_plan *plan;
    char *text;
    size_t length;
    if (train->options.fresh || erg_file_read(path, 0, &text, &length, NULL) != 0)
        return NULL;
    bool found = false;
    if (erg_plan_parse(&plan, path, text, length, NULL) == 0) {
        found = erg_plan_check_job(plan, train->job, NULL) == 0 &&
                plan->methods[ERG_METHOD_SEQUENTIAL].point_count > 0 &&
                strcmp(plan->selected.rule, erg_run_ways_rule) == 0;
        erg_plan_free(plan);
    }
    if (found)
        return text;
    free(text);
    return NULL;
}

/* At rank 0: makes the plan. */
static int make_plan(struct erg_train *train, const char *path, char **text, struct erg_error *err)
{
    const struct erg_train_auto *asked = &train->tuning.asked;
    const bool sequential = erg_train_auto_sequential(train->job) != NULL;
    struct erg_plan *plan;
    *text = find_plan(train, path);
    if (*text)
        return 0;
    if (asked->plan(asked->context, train->job, sequential, &plan, err) != 0)
        return erg_fail_context(err, "planning %s", train->job->path);
    int result = erg_plan_write(plan, path, err);
    erg_plan_free(plan);
    return result || erg_file_read(path, 0, text, NULL, err) ? -1 : 0;
}

static void select_way(struct erg_train *train, size_t way, const char *rule)
{
    const struct erg_run_way *chosen = &train->tuning.ways[way];
    train->plan->selected = (struct erg_plan_selection){chosen->method, chosen->point, rule, 0};
}

/* Fills the ways of the plan. If an earlier start selected one for another goal, that one is
 * added. */
static void list_ways(struct erg_train *train, bool clocks)
{
    struct erg_way_search *tuning = &train->tuning;
    const struct erg_plan *plan = train->plan;
    tuning->count = erg_run_ways_list(tuning->ways, plan, clocks, &tuning->asked.goal);
    tuning->best = tuning->kept ? erg_run_ways_find(tuning->ways, tuning->count, plan, clocks) : 0;
    if (tuning->best == tuning->count && tuning->count < ERG_TRIALS_WAYS)
        tuning->count++;
    if (tuning->best == ERG_TRIALS_WAYS)
        tuning->best--;
    if (tuning->kept)
        tuning->ways[tuning->best] =
            (struct erg_run_way){plan->selected.method, plan->selected.point, NAN, NAN};
}

int erg_train_tune_plan(struct erg_train *train, long stage, struct erg_error *err)
{
    struct erg_way_search *tuning = &train->tuning;
    char *path = path_of(train, "plan.json"), *text = NULL;
    int result = erg_train_tells(train) ? make_plan(train, path, &text, err) : 0;
    train->options.plan = train->plan_file = path;
    if (erg_rendezvous_agree(train->rendezvous, result, err) != 0 ||
        share_text(train->rendezvous, &text, err) != 0) {
        free(text);
        return -1;
    }
    train->plan_text = text;
    if (erg_run_plan_parse(&train->plan, path, text, strlen(text), &train->options, train->job,
                           train->backend->name, stage, err) != 0)
        return -1;
    const struct erg_plan_kind *kind = erg_plan_stage_kind(train->plan, (size_t)stage);
    tuning->kept = strcmp(train->plan->selected.rule, erg_run_ways_rule) == 0;
    list_ways(train, train->options.lock_clocks && isnan(kind->mean_clock_mhz));
    if (!tuning->kept)
        select_way(train, 0, "to be tried");
    if (tuning->count >= 2)
        return 0;
    /* Then nothing depends on the plan, and the run gives the same bits as a plain one. */
    erg_plan_free(train->plan);
    free(train->plan_text);
    train->plan = NULL;
    train->plan_text = NULL;
    train->options.plan = NULL;
    return 0;
}

/* ---- trials ---- */

static void add_name(struct erg_text *out, const struct erg_train *train, size_t way)
{
    erg_run_way_name(out, &train->tuning.ways[way], train->plan);
}

static void tell_ways(const struct erg_train *train)
{
    const struct erg_trials *trials = &train->tuning.trials;
    const char *why = erg_train_auto_sequential(train->job);
    struct erg_text text = {0};
    if (train->tuning.count < 2) {
        erg_text_printf(&text, "auto: the job's passes run sequentially, as %s",
                        why ? why : "its plan has only one way");
    } else if (!trials->trying) {
        erg_text_add(&text, "auto: continues with ");
        add_name(&text, train, trials->best);
        erg_text_add(&text, ", which the run has found before");
    } else {
        erg_text_add(&text, "auto: tries ");
        for (size_t way = 0; way < trials->options.ways; way++) {
            erg_text_add(&text, way ? ", " : "");
            add_name(&text, train, way);
        }
        if (trials->options.budget_s > 0)
            erg_text_printf(&text, " for %.3g s", trials->options.budget_s);
    }
    tell(train, text.data);
    erg_text_release(&text);
}

/* World call: whether every rank sets clocks. */
static int agree_on_clocks(const struct erg_train *train, bool *set, struct erg_error *err)
{
    struct erg_clock_numbers numbers;
    const int32_t own = erg_trainer_clocks(train->trainer, &numbers) && !numbers.refused;
    int32_t *all = erg_xcalloc((size_t)train->env.world, sizeof *all);
    int result = erg_rendezvous_all_gather(train->rendezvous, &own, sizeof own, all,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    *set = true;
    for (int i = 0; i < train->env.world; i++)
        *set &= all[i] != 0;
    free(all);
    return result;
}

int erg_train_tune_begin(struct erg_train *train, struct erg_error *err)
{
    struct erg_way_search *tuning = &train->tuning;
    bool clocks;
    if (train->plan) {
        if (agree_on_clocks(train, &clocks, err) != 0)
            return -1;
        list_ways(train, clocks);
    }
    const struct erg_trials_options options = {.ways = tuning->count,
                                               .budget_s = tuning->asked.budget_s,
                                               .steps =
                                                   train->end - erg_trainer_steps(train->trainer),
                                               .goal = tuning->asked.goal};
    erg_trials_init(&tuning->trials, &options);
    if (tuning->kept)
        erg_trials_keep(&tuning->trials, tuning->best);
    else if (tuning->count >= 2)
        erg_trainer_choose(train->trainer, false, train->plan_text);
    tell_ways(train);
    return 0;
}

void erg_train_put_into_force(struct erg_train *train, bool follows)
{
    erg_trainer_choose(train->trainer, follows, train->plan_text);
    erg_run_plan_expect(&train->expected, train->plan, train->options.plan, train->job);
    if (erg_train_tells(train))
        train->log.about.expected = train->expected;
}

/* From now on the folder and checkpoints get the plan with the results of trials. */
static void keep_plan(struct erg_train *train)
{
    struct erg_error err;
    char *text;
    if (erg_plan_write(train->plan, train->options.plan, &err) == 0 &&
        erg_file_read(train->options.plan, 0, &text, NULL, &err) == 0) {
        ERG_PUSH(&train->tuning.texts, items,
                 train->plan_text); /* a checkpoint may still write it */
        train->plan_text = text;
    } else {
        erg_log(ERG_LOG_WARNING, "%s; the next start of the run tries again", err.message);
    }
}

static void tell_end(struct erg_train *train)
{
    struct erg_way_search *tuning = &train->tuning;
    const struct erg_trials *trials = &tuning->trials;
    const struct erg_goal *goal = &trials->options.goal;
    struct erg_text text = {0};
    json_decref(tuning->news);
    tuning->news = erg_run_ways_document(tuning->ways, trials, train->plan);
    erg_text_add(&text, "auto: ");
    erg_run_ways_say(&text, tuning->news);
    if (trials->unmet && goal->deadline_s > 0)
        erg_text_printf(&text, "; no tried way takes at most %.4g s", goal->deadline_s);
    else if (trials->unmet)
        erg_text_printf(&text, "; no tried way is known to need at most %.4g J", goal->energy_j);
    else if (!(trials->power.count > 0))
        erg_text_add(&text, "; energy is unknown, so time decided");
    tell(train, text.data);
    erg_text_release(&text);
}

static void tell_change(struct erg_train *train)
{
    struct erg_text text = {0};
    erg_text_printf(
        &text, "auto: the %s of a step differs from its trials for %d blocks in a row: tries again",
        train->tuning.trials.why, ERG_TRIALS_PATIENCE);
    tell(train, text.data);
    erg_text_release(&text);
}

/* Numbers of one rank and block; plain data, which ranks send each other. */
struct rank_block {
    double step_s, spent_s;
    double energy_j, uncertainty_j;
    int32_t energy; /* enum erg_rank_energy */
    int32_t disturbed;
};

/* World call: time and energy of the ended block on all ranks. */
static int gather_block(struct erg_train *train, struct erg_trial_block *all, struct erg_error *err)
{
    struct erg_way_search *tuning = &train->tuning;
    struct rank_block *blocks = erg_xcalloc((size_t)train->env.world, sizeof *blocks);
    struct erg_rank_numbers numbers;
    const double steps = (double)tuning->trials.steps;
    erg_rank_meter_end(&train->meter, &tuning->mark, &numbers);
    const struct rank_block own = {.step_s = tuning->sum_s / steps,
                                   .spent_s = erg_train_seconds_since(tuning->begin_ns),
                                   .energy_j = numbers.energy_j,
                                   .uncertainty_j = numbers.uncertainty_j,
                                   .energy = numbers.energy,
                                   .disturbed = tuning->disturbed};
    int result = erg_rendezvous_all_gather(train->rendezvous, &own, sizeof own, blocks,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    *all = (struct erg_trial_block){0};
    for (int i = 0; i < train->env.world && result == 0; i++) {
        const struct rank_block *one = &blocks[i];
        all->step_s = fmax(all->step_s, one->step_s);
        all->spent_s = fmax(all->spent_s, one->spent_s);
        all->disturbed |= one->disturbed != 0;
        if (one->energy == ERG_RANK_ENERGY_ELSEWHERE)
            continue;
        const bool known = one->energy == ERG_RANK_ENERGY_OWN;
        all->step_j += known ? one->energy_j / steps : (double)NAN;
        all->uncertainty_j += known ? one->uncertainty_j / steps : (double)NAN;
    }
    free(blocks);
    return result;
}

/* World call. */
static int end_block(struct erg_train *train, struct erg_error *err)
{
    struct erg_way_search *tuning = &train->tuning;
    struct erg_trials *trials = &tuning->trials;
    struct erg_trial_block block;
    const size_t before = trials->way;
    tuning->done = 0;
    if (gather_block(train, &block, err) != 0)
        return -1;
    const enum erg_trials_event event = erg_trials_add(trials, &block);
    if (event == ERG_TRIALS_ENDED) {
        select_way(train, trials->way, erg_run_ways_rule);
        if (erg_train_tells(train)) {
            keep_plan(train);
            tell_end(train);
        }
    } else if (event == ERG_TRIALS_BEGAN) {
        select_way(train, trials->way, "to be tried");
        tell_change(train);
    } else if (trials->way != before) {
        select_way(train, trials->way, "to be tried");
    }
    if (event != ERG_TRIALS_GO_ON || trials->way != before)
        erg_train_put_into_force(train, !trials->trying);
    return 0;
}

int erg_train_tune_step(struct erg_train *train, bool disturbed, struct erg_error *err)
{
    struct erg_way_search *tuning = &train->tuning;
    if (tuning->count < 2 || (tuning->done == 0 && disturbed))
        return 0;
    if (tuning->done == 0) { /* this step has settled: measure from now on */
        tuning->sum_s = 0;
        tuning->begin_ns = erg_now_ns() - (int64_t)(1e9 * train->stats.step_s);
        tuning->disturbed = false;
        erg_rank_meter_begin(&train->meter, &tuning->mark);
    } else {
        tuning->sum_s += train->stats.step_s;
        tuning->disturbed |= disturbed;
    }
    return tuning->done++ == tuning->trials.steps ? end_block(train, err) : 0;
}

void erg_train_tune_release(struct erg_train *train)
{
    struct erg_way_search *tuning = &train->tuning;
    struct erg_rank_numbers ignored;
    if (tuning->done > 0)
        erg_rank_meter_end(&train->meter, &tuning->mark, &ignored);
    json_decref(tuning->news);
    free(tuning->layout);
    for (size_t i = 0; i < tuning->texts.count; i++)
        free(tuning->texts.items[i]);
    free(tuning->texts.items);
    *tuning = (struct erg_way_search){0};
}

/* ---- messages ---- */

const char *erg_train_auto_layout(const struct erg_train *train)
{
    return train->tuning.layout;
}

void erg_train_auto_found(struct erg_text *out, const struct erg_train *train)
{
    const json_t *found = train->tuning.news ? train->tuning.news : train->log.history.trials;
    if (found)
        erg_run_ways_say(out, found);
}
