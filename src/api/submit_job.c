/* Submits live jobs. */
#define _GNU_SOURCE /* strptime, realpath */

#include "api/submit_job.h"
#include "base/quantity.h"

#include "api/job_measurement.h"
#include "api/live_layout.h"
#include "api/managed_plan.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cluster/live/slurm_submit.h"
#include "cluster/speed_table.h"
#include "io/file.h"
#include "io/subprocess.h"
#include "layout/exchange/profile_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_SCRIPT_BYTES = 16 << 20,
    PLANNED = 8, /* times the GPUs asked for, that speeds are worked out for at most */
};

struct job_submission {
    const struct erg_live_file *live;
    const struct erg_submit_input *input;
    struct erg_submitted *out;
    struct erg_arena arena;
    struct erg_live_request request;
    struct erg_job *job;           /* of input->job */
    struct erg_plan *plan;         /* for it; NULL: none */
    struct erg_plan_selection own; /* the plan's point that its options ask for */
    struct erg_text profile;       /* profile.csv */
    struct erg_text types;         /* of the GPUs in it */
    char *script;                  /* text of a script, to be copied */
    size_t script_length;
};

int erg_submit_read_deadline(double *unix_s, const char *text, struct erg_error *err)
{
    static const char *const formats[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"};
    double from_now_s;
    if (erg_parse_duration(text, &from_now_s)) {
        *unix_s = (double)time(NULL) + from_now_s;
        return 0;
    }
    for (size_t i = 0; i < 2; i++) {
        struct tm parts = {.tm_isdst = -1};
        const char *end = strptime(text, formats[i], &parts);
        if (end && !*end) {
            *unix_s = (double)mktime(&parts);
            return 0;
        }
    }
    return erg_fail(err, ERG_USAGE,
                    "--deadline got \"%.80s\", expected hours, minutes and seconds from now on as "
                    "11:30:00, or a time as 2026-01-31T12:00",
                    text);
}

/* ---- common to all jobs ---- */

static int fill_request(struct job_submission *at, struct erg_error *err)
{
    const struct erg_submit_input *input = at->input;
    const struct erg_fleet *fleet = &at->live->fleet;
    struct erg_live_request *request = &at->request;
    char *directory = realpath(".", NULL);
    request->submitted_unix_s = (double)time(NULL);
    request->deadline_unix_s = isnan(input->deadline_unix_s) ? INFINITY : input->deadline_unix_s;
    request->weight = isnan(input->weight) ? 1 : input->weight;
    request->uid = geteuid();
    request->type = input->type;
    request->per_node = input->per_node;
    request->directory = directory ? erg_arena_strdup(&at->arena, directory) : NULL;
    if (input->gpus != ERG_NOT_GIVEN)
        request->gpus = (int)input->gpus;
    request->gpus_most = input->gpus_most != ERG_NOT_GIVEN ? (int)input->gpus_most
                         : request->trains && request->gpus < fleet->gpus / PLANNED
                             ? PLANNED * request->gpus
                             : fleet->gpus;
    free(directory);
    if (input->gpus_most == ERG_NOT_GIVEN && request->gpus > fleet->gpus)
        return erg_fail(err, ERG_INFEASIBLE, "%d GPUs were asked for, and the cluster has %d",
                        request->gpus, fleet->gpus);
    if (request->gpus > request->gpus_most && input->gpus == ERG_NOT_GIVEN)
        request->gpus = request->gpus_most; /* as the job's file was for more */
    if (request->gpus > request->gpus_most)
        return erg_fail(err, ERG_USAGE, "--gpus %d are more than --at-most %d", request->gpus,
                        request->gpus_most);
    if (input->type && erg_fleet_type(fleet, input->type) < 0)
        return erg_fail(err, ERG_USAGE, "the cluster has no GPUs of the type '%s', expected %s",
                        input->type, erg_fleet_type_names(fleet, &at->arena));
    return 0;
}

static int type_of(const struct job_submission *at)
{
    return at->input->type ? erg_fleet_type(&at->live->fleet, at->input->type) : -1;
}

/* Whether the published profiles have the workload on a type that may be used. */
static int look_into_profiles(struct job_submission *at, bool *found, struct erg_error *err)
{
    const struct erg_fleet *fleet = &at->live->fleet;
    struct erg_trace_workload workload = {.family =
                                              erg_arena_strdup(&at->arena, at->request.family),
                                          .size = erg_arena_strdup(&at->arena, at->request.size),
                                          .batch = at->request.batch};
    const struct erg_job_trace trace = {.workloads = &workload, .workloads_count = 1};
    struct erg_speeds *speeds;
    *found = false;
    if (!at->live->profiles)
        return 0;
    if (erg_speeds_load(&speeds, at->live->profiles, fleet, &trace, err) != 0)
        return -1;
    for (unsigned t = 0; t < fleet->types_count; t++)
        if ((type_of(at) < 0 || type_of(at) == (int)t) && erg_speeds_runnable(speeds, 0, (int)t)) {
            erg_text_printf(&at->types, "%s%s", *found ? ", " : "", fleet->types[t].name);
            *found = true;
        }
    erg_speeds_free(speeds);
    return 0;
}

/* ---- programs ---- */

static int read_like(struct job_submission *at, struct erg_error *err)
{
    const char *like = at->input->like, *colon = strchr(like, ':');
    const char *second = colon ? strchr(colon + 1, ':') : NULL;
    const char *dash = NULL;
    long batch, iterations;
    for (const char *c = like; second && c < colon; c++)
        dash = *c == '-' ? c : dash;
    if (!dash || dash == like || dash + 1 == colon ||
        !erg_parse_long(erg_arena_printf(&at->arena, "%.*s", (int)(second - colon - 1), colon + 1),
                        &batch) ||
        batch < 1 || batch > 1000000000 || !erg_parse_long(second + 1, &iterations) ||
        iterations < 1)
        return erg_fail(err, ERG_USAGE,
                        "--like got \"%.100s\", expected MODEL:BATCH:ITERATIONS as "
                        "bert-2.6B:128:5000",
                        like);
    at->request.family = erg_arena_printf(&at->arena, "%.*s", (int)(dash - like), like);
    at->request.size = erg_arena_printf(&at->arena, "%.*s", (int)(colon - dash - 1), dash + 1);
    at->request.batch = batch;
    at->request.iterations = (double)iterations;
    return 0;
}

/* A script is copied, since users change theirs; of other programs the path stays. */
static int read_program(struct job_submission *at, struct erg_error *err)
{
    const char *name = at->input->arguments[0];
    struct stat info;
    char head[2] = "", *path = realpath(name, NULL);
    if (!path || stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        free(path);
        return erg_fail(err, ERG_FAILED, "reading '%s': %s", name,
                        path ? "not a file, expected a program" : strerror(errno));
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = file < 0 ? -1 : read(file, head, 2);
    if (file >= 0)
        close(file);
    int result = 0;
    if (count == 2 && head[0] == '#' && head[1] == '!')
        result = erg_file_read(path, MOST_SCRIPT_BYTES, &at->script, &at->script_length, err);
    else if (access(path, X_OK) != 0)
        result = erg_fail(err, ERG_FAILED,
                          "'%s' is not an executable program; expected a script to begin with #! "
                          "and its interpreter",
                          name);
    const char *base = strrchr(path, '/') + 1;
    const char **command = erg_arena_alloc(&at->arena, at->input->argument_count * sizeof *command);
    for (size_t i = 0; i < at->input->argument_count; i++)
        command[i] = at->input->arguments[i];
    command[0] = erg_arena_strdup(&at->arena, path);
    at->request.name = erg_arena_strdup(&at->arena, base);
    at->request.command = command;
    at->request.command_count = at->input->argument_count;
    free(path);
    return result;
}

static int prepare_program(struct job_submission *at, struct erg_error *err)
{
    bool found;
    at->request.gpus = 1;
    if (read_like(at, err) != 0 || read_program(at, err) != 0 || fill_request(at, err) != 0)
        return -1;
    if (!at->live->profiles)
        return erg_fail(err, ERG_FAILED,
                        "the live file has no profiles, which contain the speeds of models; "
                        "expected its key 'profiles'");
    if (look_into_profiles(at, &found, err) != 0)
        return -1;
    return found ? 0
                 : erg_fail(
                       err, ERG_INFEASIBLE,
                       "the profiles in '%s' have no GPUs of %s that run %s-%s with a batch of %ld",
                       at->live->profiles,
                       at->input->type ? at->input->type
                                       : erg_fleet_type_names(&at->live->fleet, &at->arena),
                       at->request.family, at->request.size, at->request.batch);
}

/* ---- jobs of ergon train ---- */

/* Powers of two of a node that share it evenly, then of whole nodes: "1,2,4,8,16". */
static const char *counts_of(struct job_submission *at, const struct erg_gpu_type *type)
{
    const long most = at->request.gpus_most;
    const char *list = "1";
    for (long count = 2; count < type->gpus_per_node && count <= most; count *= 2)
        if (type->gpus_per_node % count == 0)
            list = erg_arena_printf(&at->arena, "%s,%ld", list, count);
    for (long nodes = 1; nodes <= type->nodes; nodes *= 2)
        if (nodes * type->gpus_per_node > 1 && nodes * type->gpus_per_node <= most)
            list = erg_arena_printf(&at->arena, "%s,%ld", list, nodes * type->gpus_per_node);
    return list;
}

static int add_profile(struct job_submission *at, const struct erg_gpu_type *type,
                       struct erg_error *err)
{
    struct erg_text rows = {0};
    const int result = erg_live_layout_rows(&rows, at->job, type->name, type->nodes,
                                            type->gpus_per_node, counts_of(at, type), err);
    if (result == 0) { /* one header for all */
        const char *line = strchr(rows.data, '\n') + 1;
        erg_text_add(&at->profile, at->profile.count ? line : rows.data);
        erg_text_printf(&at->types, "%s%s", at->types.count ? ", " : "", type->name);
    }
    erg_text_release(&rows);
    return result;
}

/* Times and powers on all types in the catalogue; if there are none, those of the live file's
 * profiles. */
static int make_profile(struct job_submission *at, struct erg_error *err)
{
    const struct erg_fleet *fleet = &at->live->fleet;
    struct erg_error why = {0};
    struct erg_text unknown = {0};
    int result = 0;
    for (unsigned t = 0; t < fleet->types_count && result == 0; t++) {
        const char *name = fleet->types[t].name;
        if (type_of(at) >= 0 && type_of(at) != (int)t)
            continue;
        char *known = erg_data_find("gpus", name);
        if (!known)
            erg_fail(&why, ERG_FAILED, "the catalogue has no GPU '%s' (data/gpus)", name);
        if (!known || add_profile(at, &fleet->types[t], &why) != 0)
            erg_text_printf(&unknown, "%s%s: %s", unknown.count ? "; " : "no speeds on ", name,
                            why.message);
        free(known);
        result = erg_interrupt_check(err);
    }
    bool found = at->profile.count > 0;
    at->request.has_profile = found;
    if (found && unknown.count)
        erg_log(ERG_LOG_WARNING, "%s", unknown.data);
    if (result == 0 && !found)
        result = look_into_profiles(at, &found, err);
    if (result == 0 && !found)
        result = erg_fail(err, ERG_INFEASIBLE,
                          "the speed of %s on the GPUs of the cluster is unknown: %s%s",
                          at->input->job, unknown.data,
                          at->live->profiles ? "; the live file's profiles lack it, too" : "");
    erg_text_release(&unknown);
    return result;
}

/* The options of ergon train; the place of the plan's copy follows when there is a folder. */
static int set_options(struct job_submission *at, struct erg_error *err)
{
    struct erg_live_request *request = &at->request;
    struct erg_managed_options options;
    erg_managed_options_split(&options, at->input->arguments, at->input->argument_count,
                              &at->arena);
    if (options.with_count && !options.plan)
        return erg_fail(err, ERG_USAGE, "%s needs --plan", options.with[0]);
    if (options.plan && erg_managed_plan_open(&at->plan, &at->own, &options, at->job, err) != 0)
        return -1;
    request->command =
        erg_arena_alloc(&at->arena, (at->input->argument_count + 2) * sizeof *request->command);
    for (size_t i = 0; i < options.without_count; i++)
        request->command[request->command_count++] = options.without[i];
    for (size_t i = 0; i < options.with_count; i++)
        request->command[request->command_count++] = options.with[i];
    return 0;
}

static int prepare_training(struct job_submission *at, struct erg_error *err)
{
    struct erg_live_request *request = &at->request;
    char family[80], size[32];
    if (erg_live_layout_load(&at->job, at->input->job, err) != 0)
        return -1;
    const struct erg_job *job = at->job;
    if (!job->training)
        return erg_fail(err, ERG_FAILED, "%s: key 'train': the key is missing", job->path);
    if (job->kind_count > 1)
        return erg_fail(
            err, ERG_FAILED,
            "%s: key 'cluster.more_nodes': a managed job has GPUs of one kind at a time",
            job->path);
    for (size_t i = 0; i < at->input->argument_count; i++) {
        const char *option = at->input->arguments[i];
        static const char *const own[] = {"--auto", "--output", "-o", "--fresh"};
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            if (strncmp(option, own[k], strlen(own[k])) == 0)
                return erg_fail(err, ERG_USAGE,
                                "%s is not for a managed job: its layout follows from the GPUs "
                                "that it gets, and its run is in its folder",
                                own[k]);
    }
    erg_profile_rows_size(job->model, size);
    erg_profile_rows_family(job->model, family);
    request->name = job->name;
    request->family = erg_arena_strdup(&at->arena, family);
    request->size = erg_arena_strdup(&at->arena, size);
    request->batch = erg_layout_batch(&job->layout);
    request->iterations = (double)job->training->updates;
    request->gpus = (int)erg_cluster_gpus(&job->cluster);
    request->trains = true;
    if (set_options(at, err) != 0 || fill_request(at, err) != 0)
        return -1;
    return make_profile(at, err);
}

/* ---- the folder ---- */

static int write_file(struct job_submission *at, const char *name, const char *text, size_t length,
                      struct erg_error *err)
{
    char *path = erg_file_path(at->out->folder, name);
    int result = erg_file_write(path, text, length, err);
    free(path);
    return result;
}

static int write_job(struct job_submission *at, struct erg_error *err)
{
    struct erg_text job = {0};
    if (!at->job)
        return 0;
    erg_live_layout_write(&job, at->job, &at->job->layout, NULL);
    int result = write_file(at, "job.yaml", job.data, job.count, err);
    erg_text_release(&job);
    if (result == 0 && at->plan)
        result = erg_managed_plan_keep(at->out->folder, at->plan, err);
    return result;
}

static void add_plan(struct job_submission *at)
{
    char *path = erg_managed_plan_path(at->out->folder);
    at->request.command[at->request.command_count++] = "--plan";
    at->request.command[at->request.command_count++] = erg_arena_strdup(&at->arena, path);
    free(path);
}

/* Whether the job runs by its plan on a number of GPUs of a type. */
static bool follows(const struct job_submission *at, const char *type, int nodes, int node_gpus,
                    struct erg_error *why)
{
    const struct erg_live_request *job = &at->request;
    const struct erg_live_plan there = {.type = type};
    const struct erg_layout layout = erg_managed_plan_layout(at->plan, job->batch);
    const bool any_type = erg_managed_plan_any_type(job->command, job->command_count);
    char *path = erg_file_path(at->out->folder, "job.yaml");
    const struct erg_live_layout_request request = {
        .path = path, .plan = &there, .nodes = nodes, .gpus_per_node = node_gpus, .other = &layout};
    struct erg_live_layout chosen = {0};
    const bool result = erg_managed_plan_check_type(at->plan, type, any_type, why) == 0 &&
                        erg_live_layout_choose(&chosen, &request, why) == 0 &&
                        erg_managed_plan_check_job(at->plan, path, &chosen.job, why) == 0;
    erg_live_layout_release(&chosen);
    free(path);
    return result;
}

/* The plan's frontier on the GPUs of a type, if its layout fits on them and the planner knows it.
 */
static int add_plan_of(struct job_submission *at, const struct erg_gpu_type *type, bool *found,
                       struct erg_error *err)
{
    const struct erg_layout layout = erg_managed_plan_layout(at->plan, at->request.batch);
    const long gpus = erg_layout_gpus(&layout), each = type->gpus_per_node;
    const struct erg_profile_shape shape = {.model = at->job->model,
                                            .gpu = type->name,
                                            .batch = at->request.batch,
                                            .nodes = gpus > each ? gpus / each : 1,
                                            .node_gpus = gpus > each ? each : gpus};
    struct erg_error why = {0};
    double time_s, power_w;
    if (erg_profile_rows_one_gpu(&time_s, &power_w, &at->profile, type->name, err) != 0)
        return -1;
    if (isnan(time_s) || gpus > at->request.gpus_most || shape.nodes > type->nodes ||
        shape.nodes * shape.node_gpus != gpus)
        return 0;
    if (!follows(at, type->name, (int)shape.nodes, (int)shape.node_gpus, &why)) {
        erg_log(ERG_LOG_INFO, "on %ld GPUs of %s the job cannot run by its plan: %s", gpus,
                type->name, why.message);
        return 0;
    }
    *found = true;
    return erg_managed_plan_rows(&at->profile, &shape, at->plan, &at->own, err);
}

static int add_plan_rows(struct job_submission *at, struct erg_error *err)
{
    const struct erg_fleet *fleet = &at->live->fleet;
    bool found = false;
    int result = 0;
    if (!at->plan || !at->profile.count)
        return 0;
    for (unsigned t = 0; t < fleet->types_count && result == 0; t++)
        result = add_plan_of(at, &fleet->types[t], &found, err);
    if (result == 0 && !found)
        erg_log(ERG_LOG_WARNING, "no GPUs that the job may get can run it by its plan");
    return result;
}

/* The planner's speeds become measured ones, where that is asked for. A plan that was emulated is
 * corrected as the planner is, one that was measured stays. */
static int measure(struct job_submission *at, const struct erg_text *planned, struct erg_error *err)
{
    struct erg_managed_options options;
    erg_managed_options_split(&options, at->request.command, at->request.command_count, &at->arena);
    const struct erg_job_measurement measuring = {.live = at->live,
                                                  .folder = at->out->folder,
                                                  .job = at->job,
                                                  .planned = planned,
                                                  .program = at->input->program,
                                                  .options = options.without,
                                                  .option_count = options.without_count,
                                                  .plans = erg_live_layout_plans(&at->request),
                                                  .limit_s = at->input->measure_s};
    if (!(at->input->measure_s > 0))
        return 0;
    if (at->profile.count)
        return erg_job_measure(&at->profile, &measuring, err);
    erg_log(ERG_LOG_WARNING,
            "nothing is measured: the planner knows none of the cluster's GPUs, and "
            "the live file's profiles give the job's speed");
    return 0;
}

/* The planner's rows, those of the job's plan, and what is measured. */
static int finish_profile(struct job_submission *at, struct erg_error *err)
{
    const bool last = at->plan && erg_managed_plan_is_measured(at->plan);
    struct erg_text planned = {0};
    if (at->profile.count)
        erg_text_add(&planned, at->profile.data);
    int result = last ? 0 : add_plan_rows(at, err);
    if (result == 0)
        result = measure(at, &planned, err);
    if (result == 0 && last)
        result = add_plan_rows(at, err);
    erg_text_release(&planned);
    return result;
}

static int write_folder(struct job_submission *at, struct erg_error *err)
{
    int result = write_job(at, err);
    if (result == 0)
        result = finish_profile(at, err);
    if (result == 0 && at->plan)
        add_plan(at);
    if (result == 0 && at->profile.count)
        result = write_file(at, "profile.csv", at->profile.data, at->profile.count, err);
    if (result == 0 && at->script) {
        at->request.command[0] = erg_arena_printf(&at->arena, "%s/script", at->out->folder);
        result = write_file(at, "script", at->script, at->script_length, err);
        if (result == 0 && chmod(at->request.command[0], 0755) != 0)
            result = erg_fail(err, ERG_FAILED, "writing '%s': %s", at->request.command[0],
                              strerror(errno));
    }
    return result ? result : erg_job_folder_write_request(at->out->folder, &at->request, err);
}

/* ---- Slurm ---- */

static const char *comment_of(struct job_submission *at)
{
    return erg_arena_printf(&at->arena, "ergon:1:%s", at->out->token);
}

/* `late`: Slurm may have the job, or may get it yet. */
static int call_sbatch(struct job_submission *at, bool *late, struct erg_error *err)
{
    const struct erg_live_request *request = &at->request;
    struct erg_arena *arena = &at->arena;
    struct erg_text wrap = {0};
    struct erg_error why = {0};
    uint32_t id;
    const char *comment = comment_of(at);
    erg_text_add(&wrap, "--wrap=exec ");
    erg_subprocess_quote(&wrap, at->input->program);
    erg_text_add(&wrap, " run-job ");
    erg_subprocess_quote(&wrap, at->out->folder);
    const char *const words[] = {
        "sbatch",
        "--parsable",
        "--hold",
        "--requeue",
        "--open-mode=append",
        "--nodes=1",
        "--ntasks-per-node=1",
        "--gres=gpu:1",
        "--signal=B:USR1@120",
        erg_arena_printf(arena, "--partition=%s", at->live->slurm.partition),
        erg_arena_printf(arena, "--comment=%s", comment),
        erg_arena_printf(arena, "--job-name=%s", request->name),
        erg_arena_printf(arena, "--output=%s/log", at->out->folder),
        erg_arena_printf(arena, "--chdir=%s", request->directory ? request->directory : "."),
        wrap.data,
        NULL};
    const enum erg_engine_answer answer = erg_slurm_submit(&id, words, comment, &why);
    erg_text_release(&wrap);
    *late = answer == ERG_ENGINE_LATER;
    at->out->id = id;
    if (*late)
        return erg_fail(err, ERG_FAILED,
                        "sbatch got no answer from Slurm (%s); the job may have been submitted, "
                        "with the folder '%s'",
                        why.message, at->out->folder);
    if (answer == ERG_ENGINE_BROKEN)
        return erg_fail(err, why.status, "%s", why.message);
    return answer == ERG_ENGINE_DONE
               ? 0
               : erg_fail(err, ERG_FAILED, "Slurm rejected the job: %s", why.message);
}

/* ---- all of it ---- */

static int submit_new(struct job_submission *at, struct erg_error *err)
{
    bool late;
    struct erg_submitted *out = at->out;
    if ((at->input->job ? prepare_training(at, err) : prepare_program(at, err)) != 0 ||
        erg_job_folder_token(out->token, err) != 0 ||
        erg_job_folder_make(&out->folder, at->live->slurm.spool, out->token, err) != 0)
        return -1;
    int result = write_folder(at, err);
    late = false;
    if (result == 0)
        result = call_sbatch(at, &late, err);
    if (result != 0 && !late)
        erg_subprocess_remove(out->folder);
    return result;
}

/* A job that Slurm still has is not to run twice. */
static int check_gone(struct job_submission *at, struct erg_error *err)
{
    struct erg_slurm_found found;
    struct erg_error why = {0};
    if (erg_slurm_find(&found, comment_of(at), &why) != ERG_ENGINE_DONE)
        return erg_fail(err, ERG_FAILED, "asking Slurm for its jobs: %s", why.message);
    return erg_slurm_is_over(&found)
               ? 0
               : erg_fail(err, ERG_FAILED, "Slurm still has the job, as number %u", found.id);
}

static int submit_again(struct job_submission *at, struct erg_error *err)
{
    bool late;
    struct erg_submitted *out = at->out;
    char *path = realpath(at->input->resume, NULL), *spool = realpath(at->live->slurm.spool, NULL);
    const char *name = path ? strrchr(path, '/') : NULL;
    int result = 0;
    if (!name || !spool || strlen(name + 1) != ERG_TOKEN_LENGTH ||
        strncmp(path, spool, (size_t)(name - path)) != 0 || spool[name - path])
        result = erg_fail(err, ERG_FAILED, "'%s' is not a job's folder in the spool '%s'",
                          at->input->resume, at->live->slurm.spool);
    if (result == 0) {
        snprintf(out->token, sizeof out->token, "%s", name + 1);
        out->folder = erg_file_path(at->live->slurm.spool, out->token);
        result = erg_job_folder_request(&at->request, at->live->slurm.spool, out->token, geteuid(),
                                        &at->arena, err) ||
                         check_gone(at, err) || call_sbatch(at, &late, err)
                     ? -1
                     : 0;
    }
    free(path);
    free(spool);
    return result;
}

int erg_submit(struct erg_submitted *submitted, const struct erg_live_file *live,
               const struct erg_submit_input *input, struct erg_error *err)
{
    struct job_submission at = {.live = live, .input = input, .out = submitted};
    *submitted = (struct erg_submitted){0};
    int result = input->resume ? submit_again(&at, err) : submit_new(&at, err);
    submitted->types = at.types.data;
    erg_arena_release(&at.arena);
    erg_text_release(&at.profile);
    erg_plan_free(at.plan);
    erg_job_free(at.job);
    free(at.script);
    return result;
}

void erg_submitted_release(struct erg_submitted *submitted)
{
    free(submitted->folder);
    free(submitted->types);
    *submitted = (struct erg_submitted){0};
}
