/* Measures a live job on one GPU of each type before it is submitted. */
#include "api/job_measuring.h"

#include "api/live_layout.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "io/file.h"
#include "io/json.h"
#include "io/subprocess.h"
#include "io/yaml.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLURM_S = 60,  /* for a command of Slurm */
    CANCEL_S = 10, /* to end a job */
    ENOUGH_STEPS = 20,
    METRICS_BYTES = 64 << 20,
};

static const double enough_s = 2;         /* of measured steps */
static const int64_t look_ns = 500000000; /* between two looks */

/* ---- rows ---- */

struct profile_line {
    size_t length, head; /* of the line with its end; up to the time */
    long nodes, gpus;
    double time_s, power_w;
    bool is_type;
};

/* The last five fields of a line are type, nodes, GPUs, time and power. */
static bool read_row(struct profile_line *row, const char *line, const char *type)
{
    const size_t length = strcspn(line, "\n");
    size_t field[5], count = 0;
    for (size_t i = length; i > 0 && count < 5; i--)
        if (line[i - 1] == ',')
            field[count++] = i;
    if (count < 5)
        return false;
    const size_t type_length = field[3] - field[4] - 1;
    *row = (struct profile_line){
        .length = length + (line[length] == '\n'),
        .head = field[1],
        .nodes = strtol(line + field[3], NULL, 10),
        .gpus = strtol(line + field[2], NULL, 10),
        .time_s = strtod(line + field[1], NULL),
        .power_w = field[0] < length ? strtod(line + field[0], NULL) : (double)NAN,
        .is_type = strlen(type) == type_length && strncmp(line + field[4], type, type_length) == 0};
    return true;
}

/* The fastest row of one GPU of a type; false: there is none on which the job runs. */
static bool find_one(struct profile_line *found, const char *rows, const char *type)
{
    struct profile_line row;
    found->time_s = INFINITY;
    for (const char *line = rows; *line && read_row(&row, line, type); line += row.length)
        if (row.is_type && row.nodes == 1 && row.gpus == 1 && row.time_s > 0 &&
            row.time_s < found->time_s)
            *found = row;
    return isfinite(found->time_s);
}

void erg_job_measured(struct erg_text *rows, const char *type, double times, double powers)
{
    struct erg_text out = {0};
    struct profile_line row;
    for (const char *line = rows->data; *line && read_row(&row, line, type); line += row.length) {
        if (!row.is_type || !(row.time_s > 0)) {
            erg_text_add_bytes(&out, line, row.length);
            continue;
        }
        erg_text_add_bytes(&out, line, row.head);
        erg_text_printf(&out, "%.6g,", row.time_s * times);
        if (!isnan(row.power_w))
            erg_text_printf(&out, "%.6g", row.power_w * powers);
        erg_text_add(&out, "\n");
    }
    erg_text_release(rows);
    *rows = out;
}

/* ---- what a run has measured ---- */

struct measured_steps {
    double steps, steps_s, time_s, energy_j; /* of lines with steps that show the speed */
};

static struct measured_steps read_metrics(const char *run)
{
    struct measured_steps sum = {0};
    char *text, *path = erg_file_path(run, "metrics.jsonl");
    if (erg_file_read(path, METRICS_BYTES, &text, NULL, NULL) == 0) {
        for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
            json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
            const json_t *some = json_object_get(object, "undisturbed");
            const double steps = json_number_value(json_object_get(some, "steps"));
            const json_t *energy = json_object_get(object, "energy_j");
            const bool is_gpu = json_is_number(json_object_get(object, "tokens_per_s_gpu"));
            if (steps > 0) {
                sum.steps += steps;
                sum.steps_s += 1e-3 * steps * json_number_value(json_object_get(some, "ms"));
                sum.time_s +=
                    1e-3 * json_number_value(json_object_get(object, "window_steps")) *
                    json_number_value(json_object_get(json_object_get(object, "step_ms"), "mean"));
                sum.energy_j +=
                    is_gpu && json_is_number(energy) ? json_number_value(energy) : (double)NAN;
            }
            json_decref(object);
        }
        free(text);
    }
    free(path);
    return sum;
}

/* ---- runs ---- */

struct type_run {
    const struct erg_gpu_type *type;
    bool active;
    char *folder;
    unsigned long id;            /* of Slurm */
    char state[32];              /* as Slurm had it last; "": nothing is known yet */
    struct profile_line planned; /* of what runs, on one GPU */
    long layers;                 /* of what runs; 0: all */
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
    erg_log(ERG_LOG_WARNING, "measuring on %s: %s; what the planner says of it stays",
            run->type->name, why);
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
                   const struct erg_job_measuring *measuring, long layers, struct erg_error *err)
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

/* Chooses what runs on one GPU: the job, or as much of it as fits. */
static int plan_one(struct type_run *run, const struct erg_text *rows,
                    const struct erg_job_measuring *measuring, struct erg_error *err)
{
    if (find_one(&run->planned, rows->data, run->type->name))
        return 0;
    for (long layers = measuring->job->model->layers / 2; layers > 0; layers /= 2) {
        struct erg_text cut = {0};
        const int result = cut_job(&cut, run, measuring, layers, err);
        const bool fits = result == 0 && find_one(&run->planned, cut.data, run->type->name);
        erg_text_release(&cut);
        run->layers = layers;
        if (result != 0 || fits || erg_interrupted())
            return result;
    }
    return erg_fail(err, ERG_INFEASIBLE, "no layer of the job fits into one GPU");
}

/* ---- Slurm ---- */

/* The job on one GPU: every step is logged, and no checkpoint is due. */
static int write_job(const struct type_run *run, const struct erg_job_measuring *measuring,
                     struct erg_error *err)
{
    const struct erg_live_plan plan = {.type = run->type->name};
    char *from = run->layers ? path_of(measuring->folder, run->type, ".cut.yaml")
                             : erg_file_path(measuring->folder, "job.yaml");
    char *path = path_of(measuring->folder, run->type, ".yaml");
    const struct erg_live_layout_request request = {
        .path = from, .plan = &plan, .nodes = 1, .gpus_per_node = 1, .plans = measuring->plans};
    struct erg_live_layout chosen;
    const int result =
        erg_live_layout_choose(&chosen, &request, err) ||
                set_key(&chosen.job, path, "train.log_every", "1", err) ||
                set_key(&chosen.job, path, "train.checkpoint", "{every: 0, minutes: 0}", err) ||
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
                        const struct erg_job_measuring *measuring)
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

static int start(struct type_run *run, const struct erg_job_measuring *measuring,
                 struct erg_error *err)
{
    struct erg_arena arena = {0};
    struct erg_text wrap = {0}, exclude = {0};
    struct erg_subprocess process;
    char *log = path_of(measuring->folder, run->type, ".log"), *end = NULL;
    if (write_job(run, measuring, err) != 0) {
        free(log);
        return -1;
    }
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
        erg_arena_printf(&arena, "--job-name=%s-measured", measuring->job->name),
        erg_arena_printf(&arena, "--output=%s", log),
        wrap.data,
        exclude.data, /* NULL: there is one type */
        NULL};
    int result = erg_subprocess_run(&process, words, NULL, SLURM_S, err);
    if (result == 0) {
        run->id = strtoul(process.out.data, &end, 10);
        if (process.late || process.status != 0 || end == process.out.data)
            result = erg_fail(err, ERG_FAILED, "Slurm refuses the job: %s",
                              process.late ? "no answer in time" : erg_subprocess_reason(&process));
        erg_subprocess_release(&process);
    }
    erg_text_release(&wrap);
    erg_text_release(&exclude);
    erg_arena_release(&arena);
    free(log);
    return result;
}

/* A trainer that is asked to end would save first: it is killed. */
static void cancel(const struct type_run *run)
{
    char id[24];
    struct erg_subprocess process;
    const bool runs = strcmp(run->state, "RUNNING") == 0;
    snprintf(id, sizeof id, "%lu", run->id);
    const char *const killing[] = {"scancel", "--full", "--signal=KILL", id, NULL};
    const char *const cancelling[] = {"scancel", id, NULL};
    if (erg_subprocess_run(&process, runs ? killing : cancelling, NULL, CANCEL_S, NULL) == 0)
        erg_subprocess_release(&process);
}

/* ---- looks ---- */

static bool has_node(const struct type_run *run, const struct erg_live_file *live, const char *name)
{
    bool has = false;
    for (int i = 0; i < run->type->nodes; i++)
        has |= strcmp(live->nodes.items[run->type->first_node + i], name) == 0;
    return has;
}

/* Asks Slurm; false: the job is over. `node`: on which it runs; "": none. */
static bool is_there(struct type_run *run, char node[80])
{
    static const char *const present[] = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING",
                                          "SUSPENDED"};
    char id[24];
    struct erg_subprocess process;
    snprintf(id, sizeof id, "%lu", run->id);
    const char *const words[] = {"squeue", "-h", "-t", "all", "-j", id, "-o", "%T %N", NULL};
    bool there = true; /* nothing else is known */
    node[0] = '\0';
    if (erg_subprocess_run(&process, words, NULL, SLURM_S, NULL) != 0)
        return there;
    if (!process.late && (process.status == 0 || strstr(process.err.data, "Invalid job id"))) {
        run->state[0] = '\0';
        if (sscanf(process.out.data, "%31s %79s", run->state, node) == 2 && node[0] == '(')
            node[0] = '\0'; /* "(null)" */
        there = false;
        for (size_t i = 0; i < sizeof present / sizeof *present; i++)
            there |= strcmp(run->state, present[i]) == 0;
    }
    erg_subprocess_release(&process);
    return there;
}

/* The run is over: what it has measured goes into the rows. */
static void end_run(struct type_run *run, struct erg_text *rows,
                    const struct measured_steps *measured, const char *why)
{
    run->active = false;
    if (measured->steps < 1) {
        warn(run, why);
        return;
    }
    const double time_s = measured->steps_s / measured->steps;
    const double powers = measured->energy_j / measured->time_s / run->planned.power_w;
    erg_log(ERG_LOG_INFO, "measured on %s: %.4g s an iteration, planned %.4g s", run->type->name,
            time_s, run->planned.time_s);
    erg_job_measured(rows, run->type->name, time_s / run->planned.time_s,
                     isnan(powers) ? 1 : powers);
}

static void look(struct type_run *run, struct erg_text *rows,
                 const struct erg_job_measuring *measuring, bool late)
{
    char node[80], why[400] = "";
    const bool there = is_there(run, node);
    const bool foreign = node[0] && !has_node(run, measuring->live, node);
    struct measured_steps measured = read_metrics(run->folder);
    const bool enough = measured.steps >= ENOUGH_STEPS && measured.steps_s >= enough_s;
    if (there && !enough && !late && !foreign)
        return;
    if (there)
        cancel(run);
    if (foreign) {
        measured.steps = 0;
        snprintf(why, sizeof why, "job %lu ran on node %s, which has other GPUs by the live file",
                 run->id, node);
    } else if (!there)
        snprintf(why, sizeof why, "job %lu ended%s%s before a step was measured, see %s.log",
                 run->id, run->state[0] ? " as " : "", run->state, run->folder);
    else if (strcmp(run->state, "PENDING") == 0)
        snprintf(why, sizeof why, "job %lu got no GPU within %g s", run->id, measuring->limit_s);
    else
        snprintf(why, sizeof why, "job %lu measured no step within %g s", run->id,
                 measuring->limit_s);
    end_run(run, rows, &measured, why);
}

static void start_all(struct type_run *runs, const struct erg_text *rows,
                      const struct erg_job_measuring *measuring)
{
    const struct erg_fleet *fleet = &measuring->live->fleet;
    for (unsigned t = 0; t < fleet->types_count; t++) {
        struct profile_line row;
        struct erg_error why = {0};
        bool known = false;
        runs[t] = (struct type_run){.type = &fleet->types[t],
                                    .folder = path_of(measuring->folder, &fleet->types[t], "")};
        for (const char *line = rows->data; *line && read_row(&row, line, runs[t].type->name);
             line += row.length)
            known |= row.is_type;
        if (!known)
            continue;
        if (plan_one(&runs[t], rows, measuring, &why) != 0 ||
            start(&runs[t], measuring, &why) != 0) {
            warn(&runs[t], why.message);
        } else {
            runs[t].active = true;
            erg_log(ERG_LOG_INFO, "measuring %ld layers on %s: job %lu",
                    runs[t].layers ? runs[t].layers : measuring->job->model->layers,
                    runs[t].type->name, runs[t].id);
        }
    }
}

int erg_job_measure(struct erg_text *rows, const struct erg_job_measuring *measuring,
                    struct erg_error *err)
{
    const size_t count = measuring->live->fleet.types_count;
    const int64_t start_ns = erg_now_ns();
    struct type_run *runs = erg_xcalloc(count, sizeof *runs);
    int result = 0;
    assert(rows->count > 0 && measuring->limit_s > 0);
    start_all(runs, rows, measuring);
    for (size_t active = count; active > 0 && result == 0;) {
        const bool late = 1e-9 * (double)(erg_now_ns() - start_ns) >= measuring->limit_s;
        active = 0;
        for (size_t t = 0; t < count; t++) {
            if (runs[t].active)
                look(&runs[t], rows, measuring, late);
            active += runs[t].active;
        }
        result = erg_interrupt_check(err);
        if (active > 0 && result == 0)
            erg_sleep_ns(look_ns);
    }
    for (size_t t = 0; t < count; t++) {
        if (runs[t].active)
            cancel(&runs[t]);
        free(runs[t].folder);
    }
    free(runs);
    return result;
}
