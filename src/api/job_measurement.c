/* Measures a live job on one GPU of each type before it is submitted. */
#include "api/job_measurement.h"

#include "api/live_layout.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cluster/live/slurm_command.h"
#include "cluster/live/slurm_submit.h"
#include "io/file.h"
#include "io/json.h"
#include "io/subprocess.h"
#include "io/yaml.h"
#include "layout/exchange/profile_rows.h"
#include "train/log/run_row.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENOUGH_STEPS = 20 };

static const double cancel_patience_s = 10;
static const double enough_s = 2;         /* of measured steps */
static const int64_t look_ns = 500000000; /* between two looks */

/* ---- what a run has measured ---- */

struct measured_steps {
    long steps;             /* 0: too few */
    double time_s, power_w; /* power NAN: not known */
};

static struct measured_steps read_steps(const char *run)
{
    struct erg_fit_rows rows = {0};
    struct measured_steps measured = {0};
    struct erg_error ignored;
    if (erg_run_row_add_training(&rows, run, &ignored) == 0) {
        const struct erg_fit_row *row = &rows.items[0];
        const bool is_gpu = row->device && strcmp(row->device, "host") != 0;
        measured.steps = row->run->steps;
        measured.time_s = row->time_s;
        measured.power_w = is_gpu ? row->run->energy_j / row->time_s : (double)NAN;
    }
    erg_fit_rows_release(&rows);
    return measured;
}

/* ---- runs ---- */

struct type_run {
    const struct erg_gpu_type *type;
    bool active;
    bool lost; /* Slurm may have its job, or may get it yet */
    char *folder;
    char comment[ERG_TOKEN_LENGTH + 16]; /* of its job */
    uint32_t id;                         /* of its job; 0: none, or not known */
    double planned_s, planned_w;         /* of what runs, on one GPU */
    long layers;                         /* of what runs; 0: all */
};

/* FOLDER/measured.TYPE, and with an end. To be freed. */
static char *path_of(const char *folder, const struct erg_gpu_type *type, const char *end)
{
    struct erg_text name = {0};
    erg_text_printf(&name, "measured.%s%s", type->name, end);
    for (char *at = name.data; *at; at++)
        *at = *at == '/' ? '_' : *at;
    char *path = erg_file_path(folder, name.data);
    erg_text_release(&name);
    return path;
}

static void warn(const struct type_run *run, const char *why)
{
    erg_log(ERG_LOG_WARNING, "measuring on %s: %s; the planner's estimate stays", run->type->name,
            why);
}

static int set_key(struct erg_text *job, const char *path, const char *key, const char *value,
                   struct erg_error *err)
{
    struct erg_text changed = {0};
    struct erg_yaml *yaml;
    if (erg_yaml_open_text(&yaml, path, job->data, job->count, err) != 0)
        return -1;
    const int result = erg_yaml_set(&changed, yaml, key, value, err);
    erg_yaml_close(yaml);
    erg_text_release(job);
    *job = changed;
    return result;
}

/* ---- jobs that need more than one GPU ---- */

/* The model with fewer layers, in a folder: measured.TYPE.model. */
static int write_model(const char *folder, const struct erg_model *model, long layers,
                       struct erg_error *err)
{
    static const char *const keys[] = {"num_hidden_layers", "n_layer"};
    char *path = erg_file_path(folder, "config.json");
    json_t *config;
    int result = erg_dir_make(folder, err) ||
                 erg_json_parse(&config, model->name, model->config, model->config_length, err);
    if (result == 0) {
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            if (json_object_get(config, keys[i]))
                json_object_set_new(config, keys[i], json_integer(layers));
        char *text = erg_json_text(config);
        result = erg_file_write(path, text, strlen(text), err);
        free(text);
        json_decref(config);
    }
    free(path);
    return result ? -1 : 0;
}

/* A job of it on one GPU, measured.TYPE.cut.yaml, and the planner's rows. */
static int cut_job(struct erg_text *rows, const struct type_run *run,
                   const struct erg_job_measurement *measuring, long layers, struct erg_error *err)
{
    const struct erg_layout *own = &measuring->job->layout;
    const struct erg_layout one = {.tensor = 1,
                                   .context = 1,
                                   .pipeline = 1,
                                   .virtual_stages = 1,
                                   .data = 1,
                                   .microbatch = 1,
                                   .microbatches = erg_layout_batch(own),
                                   .sequence = own->sequence,
                                   .recompute = own->recompute};
    char *folder = path_of(measuring->folder, run->type, ".model");
    char *path = path_of(measuring->folder, run->type, ".cut.yaml");
    struct erg_text text = {0}, model = {0};
    struct erg_job *job = NULL;
    erg_live_layout_write(&text, measuring->job, &one, NULL);
    erg_yaml_add_string(&model, folder);
    const int result = write_model(folder, measuring->job->model, layers, err) ||
                               set_key(&text, path, "model", model.data, err) ||
                               set_key(&text, path, "train.init", "random", err) ||
                               erg_file_write(path, text.data, text.count, err) ||
                               erg_job_parse(&job, path, text.data, text.count, NULL, err) ||
                               erg_live_layout_rows(rows, job, run->type->name, 1, 1, "1", err)
                           ? -1
                           : 0;
    erg_job_free(job);
    erg_text_release(&model);
    erg_text_release(&text);
    free(folder);
    free(path);
    return result;
}

static int find_planned(struct type_run *run, const struct erg_text *rows, struct erg_error *err)
{
    return erg_profile_rows_one_gpu(&run->planned_s, &run->planned_w, rows, run->type->name, err);
}

/* Chooses what runs on one GPU: the job, or as much of it as fits. */
static int plan_one(struct type_run *run, const struct erg_job_measurement *measuring,
                    struct erg_error *err)
{
    if (find_planned(run, measuring->planned, err) != 0)
        return -1;
    for (long layers = measuring->job->model->layers / 2; isinf(run->planned_s) && layers > 0;
         layers /= 2) {
        struct erg_text cut = {0};
        const int result = erg_interrupt_check(err) || cut_job(&cut, run, measuring, layers, err) ||
                                   find_planned(run, &cut, err)
                               ? -1
                               : 0;
        erg_text_release(&cut);
        run->layers = layers;
        if (result != 0)
            return -1;
    }
    return isinf(run->planned_s)
               ? erg_fail(err, ERG_INFEASIBLE, "no layer of the job fits into one GPU")
               : 0;
}

/* ---- Slurm ---- */

/* The job on one GPU: every step is logged, and no checkpoint is written. */
static int write_job(const struct type_run *run, const struct erg_job_measurement *measuring,
                     struct erg_error *err)
{
    const struct erg_live_plan plan = {.type = run->type->name};
    char *from = run->layers ? path_of(measuring->folder, run->type, ".cut.yaml")
                             : erg_file_path(measuring->folder, "job.yaml");
    char *path = path_of(measuring->folder, run->type, ".yaml");
    const struct erg_live_layout_request request = {
        .path = from, .plan = &plan, .nodes = 1, .gpus_per_node = 1, .plans = measuring->plans};
    struct erg_live_layout chosen;
    const int result = erg_live_layout_choose(&chosen, &request, err) ||
                               set_key(&chosen.job, path, "train.log_every", "1", err) ||
                               set_key(&chosen.job, path, "train.checkpoint", "{keep: 0}", err) ||
                               erg_file_write(path, chosen.job.data, chosen.job.count, err)
                           ? -1
                           : 0;
    erg_live_layout_release(&chosen);
    free(from);
    free(path);
    return result;
}

/* "ergon train" as a command of the shell. */
static void add_command(struct erg_text *out, const struct type_run *run,
                        const struct erg_job_measurement *measuring)
{
    char *job = path_of(measuring->folder, run->type, ".yaml");
    erg_text_add(out, "--wrap=exec ");
    erg_subprocess_quote(out, measuring->program);
    erg_text_add(out, " train ");
    erg_subprocess_quote(out, job);
    erg_text_add(out, " --output ");
    erg_subprocess_quote(out, run->folder);
    for (size_t i = 0; i < measuring->option_count; i++) {
        erg_text_add(out, " ");
        erg_subprocess_quote(out, measuring->options[i]);
    }
    free(job);
}

/* The nodes of all other types. */
static void add_others(struct erg_text *out, const struct type_run *run,
                       const struct erg_fleet *fleet)
{
    for (unsigned t = 0; t < fleet->types_count; t++)
        if (&fleet->types[t] != run->type)
            erg_text_printf(out, "%s%s", out->count ? "," : "--exclude=", fleet->types[t].hosts);
}

static int start(struct type_run *run, const struct erg_job_measurement *measuring,
                 struct erg_error *err)
{
    struct erg_arena arena = {0};
    struct erg_text wrap = {0}, exclude = {0};
    char token[ERG_TOKEN_LENGTH + 1];
    if (write_job(run, measuring, err) != 0 || erg_job_folder_token(token, err) != 0)
        return -1;
    char *log = path_of(measuring->folder, run->type, ".log");
    snprintf(run->comment, sizeof run->comment, "ergon:measure:%s", token);
    add_command(&wrap, run, measuring);
    add_others(&exclude, run, &measuring->live->fleet);
    const char *const words[] = {
        "sbatch",
        "--parsable",
        "--no-requeue",
        "--nodes=1",
        "--ntasks=1",
        "--gres=gpu:1",
        erg_arena_printf(&arena, "--partition=%s", measuring->live->slurm.partition),
        erg_arena_printf(&arena, "--time=%.0f", ceil(measuring->limit_s / 60)),
        erg_arena_printf(&arena, "--comment=%s", run->comment),
        erg_arena_printf(&arena, "--job-name=%s-measured", measuring->job->name),
        erg_arena_printf(&arena, "--output=%s", log),
        wrap.data,
        exclude.data, /* NULL: there is one type */
        NULL};
    struct erg_error why = {0};
    const enum erg_engine_answer answer = erg_slurm_submit(&run->id, words, run->comment, &why);
    run->lost = answer == ERG_ENGINE_LATER;
    erg_text_release(&wrap);
    erg_text_release(&exclude);
    erg_arena_release(&arena);
    free(log);
    return answer == ERG_ENGINE_DONE
               ? 0
               : erg_fail(err, ERG_FAILED, "%s: %s",
                          run->lost ? "Slurm does not answer" : "Slurm refuses the job",
                          why.message);
}

/* A trainer that is asked to end would save first: it is killed. A job whose node is being
 * prepared has none yet. */
static enum erg_engine_answer cancel(const struct erg_slurm_found *job, struct erg_error *err)
{
    char id[16];
    snprintf(id, sizeof id, "%u", job->id);
    const char *const killing[] = {"scancel", "--full", "--signal=KILL", id, NULL};
    const char *const cancelling[] = {"scancel", id, NULL};
    return erg_slurm_command(strcmp(job->state_text, "RUNNING") == 0 ? killing : cancelling,
                             cancel_patience_s, NULL, err);
}

/* No job of the run stays, also none that Slurm got without an answer. */
static void leave(const struct type_run *run, const struct erg_job_measurement *measuring)
{
    struct erg_slurm_found job;
    struct erg_error why = {0};
    if (run->lost) { /* a job that begins later finds no file, and ends */
        char *path = path_of(measuring->folder, run->type, ".yaml");
        unlink(path);
        free(path);
    }
    enum erg_engine_answer answer = ERG_ENGINE_REFUSED;
    for (int i = 0; i < 2 && answer == ERG_ENGINE_REFUSED; i++) { /* it may end just then */
        answer = erg_slurm_find(&job, run->comment, &why);
        if (answer == ERG_ENGINE_DONE && !erg_slurm_is_over(&job) &&
            job.state != ERG_LIVE_COMPLETING)
            answer = cancel(&job, &why);
    }
    if (answer != ERG_ENGINE_DONE && answer != ERG_ENGINE_GONE)
        erg_log(ERG_LOG_WARNING,
                "measuring on %s: a job with the comment %s may still be in Slurm: %s; cancel it "
                "by scancel",
                run->type->name, run->comment, why.message);
}

/* ---- looks ---- */

static bool has_node(const struct type_run *run, const struct erg_live_file *live, const char *name)
{
    bool has = false;
    for (int i = 0; i < run->type->nodes; i++)
        has |= strcmp(live->nodes.items[run->type->first_node + i], name) == 0;
    return has;
}

/* The run is over: what it has measured goes into the rows. */
static int end_run(struct type_run *run, struct erg_text *rows,
                   const struct measured_steps *measured, const char *why, struct erg_error *err)
{
    run->active = false;
    if (measured->steps == 0) {
        warn(run, why);
        return 0;
    }
    const double powers = measured->power_w / run->planned_w;
    erg_log(ERG_LOG_INFO, "measured on %s: %.4g s an iteration, planned %.4g s", run->type->name,
            measured->time_s, run->planned_s);
    return erg_profile_rows_scale(rows, run->type->name, measured->time_s / run->planned_s,
                                  isnan(powers) ? 1 : powers, err);
}

static int look(struct type_run *run, struct erg_text *rows,
                const struct erg_job_measurement *measuring, bool late, struct erg_error *err)
{
    char why[400] = "";
    struct erg_slurm_found job;
    const bool known = erg_slurm_find(&job, run->comment, NULL) == ERG_ENGINE_DONE;
    const bool there = !known || !erg_slurm_is_over(&job);
    const bool foreign = known && job.nodes[0] && !has_node(run, measuring->live, job.nodes);
    struct measured_steps measured = read_steps(run->folder);
    const bool enough =
        measured.steps >= ENOUGH_STEPS && (double)measured.steps * measured.time_s >= enough_s;
    if (there && !enough && !late && !foreign)
        return 0;
    if (there)
        leave(run, measuring);
    if (foreign) {
        measured.steps = 0;
        snprintf(why, sizeof why, "job %u ran on node %s, which has other GPUs by the live file",
                 run->id, job.nodes);
    } else if (!there)
        snprintf(why, sizeof why, "job %u ended%s%s before %d steps were measured, see %s.log",
                 run->id, job.state_text[0] ? " as " : "", job.state_text, ERG_RUN_ROW_LEAST_STEPS,
                 run->folder);
    else if (known && job.state == ERG_LIVE_PENDING)
        snprintf(why, sizeof why, "job %u got no GPU within %g s", run->id, measuring->limit_s);
    else
        snprintf(why, sizeof why, "job %u measured fewer than %d steps within %g s", run->id,
                 ERG_RUN_ROW_LEAST_STEPS, measuring->limit_s);
    return end_run(run, rows, &measured, why, err);
}

/* Fails only when interrupted. */
static int start_all(struct type_run *runs, const struct erg_job_measurement *measuring,
                     struct erg_error *err)
{
    const struct erg_fleet *fleet = &measuring->live->fleet;
    for (unsigned t = 0; t < fleet->types_count; t++) {
        struct type_run *run = &runs[t];
        struct erg_error why = {0};
        run->type = &fleet->types[t];
        run->folder = path_of(measuring->folder, run->type, "");
        int result = plan_one(run, measuring, &why);
        if (erg_interrupt_check(err) != 0)
            return -1;
        if (result == 0 && isnan(run->planned_s))
            continue; /* the profile has nothing of the type */
        if (result == 0)
            result = start(run, measuring, &why);
        if (result != 0) {
            warn(run, why.message);
        } else {
            run->active = true;
            erg_log(ERG_LOG_INFO, "measuring %ld layers on %s: job %u",
                    run->layers ? run->layers : measuring->job->model->layers, run->type->name,
                    run->id);
        }
    }
    return 0;
}

int erg_job_measure(struct erg_text *rows, const struct erg_job_measurement *measuring,
                    struct erg_error *err)
{
    const size_t count = measuring->live->fleet.types_count;
    const int64_t start_ns = erg_now_ns();
    struct type_run *runs = erg_xcalloc(count, sizeof *runs);
    assert(rows->count > 0 && measuring->planned->count > 0 && measuring->limit_s > 0);
    int result = start_all(runs, measuring, err);
    for (size_t active = count; active > 0 && result == 0;) {
        const bool late = 1e-9 * (double)(erg_now_ns() - start_ns) >= measuring->limit_s;
        active = 0;
        for (size_t t = 0; t < count && result == 0; t++) {
            if (runs[t].active)
                result = look(&runs[t], rows, measuring, late, err);
            active += runs[t].active;
        }
        if (result == 0)
            result = erg_interrupt_check(err);
        if (active > 0 && result == 0)
            erg_sleep_ns(look_ns);
    }
    for (size_t t = 0; t < count; t++) {
        if (runs[t].active || runs[t].lost)
            leave(&runs[t], measuring);
        free(runs[t].folder);
    }
    free(runs);
    return result;
}
