/* The plan of a managed job: its options, its copy, and the GPUs that can follow it. */
#include "api/managed_plan.h"

#include "api/live_layout.h"
#include "base/option_value.h"
#include "io/file.h"
#include "plan/plan_pace.h"
#include "train/run/run_plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- options ---- */

struct plan_option {
    const char *name;
    char letter; /* 0: none */
    bool has_value;
};

static const struct plan_option plan_options[] = {
    {"--plan", 'p', true},          {"--method", 'm', true},        {"--point", 0, true},
    {"--deadline", 'D', true},      {"--energy-budget", 'E', true}, {"--lock-clocks", 0, false},
    {"--require-clocks", 0, false}, {"--force", 0, false},
};

/* The option that a word begins with, and its value in the same word (NULL: none); or NULL. */
static const struct plan_option *find_option(const char **value, const char *word)
{
    for (size_t i = 0; i < sizeof plan_options / sizeof *plan_options; i++) {
        const struct plan_option *option = &plan_options[i];
        const size_t length = strlen(option->name);
        *value = NULL;
        if (strncmp(word, option->name, length) == 0 && (!word[length] || word[length] == '=')) {
            *value = word[length] ? word + length + 1 : NULL;
            return option;
        }
        if (option->letter && word[0] == '-' && word[1] == option->letter) {
            *value = word[2] ? word + 2 : NULL;
            return option;
        }
    }
    return NULL;
}

void erg_managed_options_split(struct erg_managed_options *options, const char *const *words,
                               size_t count, struct erg_arena *arena)
{
    *options = (struct erg_managed_options){
        .with = erg_arena_alloc(arena, (count + 1) * sizeof *options->with),
        .without = erg_arena_alloc(arena, (count + 1) * sizeof *options->without)};
    for (size_t i = 0; i < count; i++) {
        const char *value;
        const struct plan_option *option = find_option(&value, words[i]);
        const bool next = option && option->has_value && !value && i + 1 < count;
        if (!option)
            options->without[options->without_count++] = words[i];
        else if (option == &plan_options[0])
            options->plan = next ? words[i + 1] : value;
        else {
            options->with[options->with_count++] = words[i];
            if (next)
                options->with[options->with_count++] = words[i + 1];
        }
        i += next;
    }
}

static int read_value(struct erg_train_options *train, const char *name, const char *text,
                      struct erg_error *err)
{
    const char *option = name + strlen("--");
    long number;
    if (strcmp(option, "point") == 0) {
        if (erg_option_long(&number, option, text, ERG_POINT_RANGE, err) != 0)
            return -1;
        train->point = (size_t)number;
        return 0;
    }
    if (strcmp(option, "deadline") == 0)
        return erg_option_double(&train->deadline_s, option, text, ERG_POINT_TIME_RANGE, err);
    if (strcmp(option, "energy-budget") == 0)
        return erg_option_double(&train->energy_budget_j, option, text, ERG_POINT_ENERGY_RANGE,
                                 err);
    assert(strcmp(option, "method") == 0);
    train->method = text;
    return 0;
}

int erg_managed_options_read(struct erg_train_options *train,
                             const struct erg_managed_options *options, struct erg_error *err)
{
    *train = (struct erg_train_options){.size = sizeof *train};
    for (size_t i = 0; i < options->with_count; i++) {
        const char *value;
        const struct plan_option *option = find_option(&value, options->with[i]);
        if (!option->has_value)
            continue;
        if (!value && ++i == options->with_count)
            return erg_fail(err, ERG_USAGE, "%s needs a value", option->name);
        if (read_value(train, option->name, value ? value : options->with[i], err) != 0)
            return -1;
    }
    return erg_option_check_points(
        (train->point > 0) + (train->deadline_s > 0) + (train->energy_budget_j > 0), err);
}

/* ---- the plan ---- */

char *erg_managed_plan_path(const char *folder)
{
    return erg_file_path(folder, "job.plan.json");
}

struct erg_layout erg_managed_plan_layout(const struct erg_plan *plan, long batch)
{
    struct erg_layout layout = plan->layout;
    const long each = layout.microbatch * layout.microbatches;
    layout.data = batch % each ? 0 : batch / each;
    return layout;
}

/* The values that are equal in all layouts of the job. */
static int check_job(const struct erg_plan *plan, const struct erg_job *job, struct erg_error *err)
{
    const long batch = erg_layout_batch(&job->layout);
    if (plan->model && strcmp(plan->model, job->model->name) != 0)
        return erg_fail(err, ERG_USAGE, "it is a plan for the model %s, expected %s", plan->model,
                        job->model->name);
    if (plan->stack && strcmp(plan->stack, job->stack->name) != 0)
        return erg_fail(err, ERG_USAGE, "it is a plan for the stack %s, expected %s", plan->stack,
                        job->stack->name);
    if (plan->layout.sequence != job->layout.sequence)
        return erg_fail(err, ERG_USAGE, "it is a plan for sequences of %ld tokens, expected %ld",
                        plan->layout.sequence, job->layout.sequence);
    if (erg_managed_plan_layout(plan, batch).data == 0)
        return erg_fail(err, ERG_USAGE,
                        "it is a plan for %ld microbatches of %ld, which do not divide the job's "
                        "batch of %ld",
                        plan->layout.microbatches, plan->layout.microbatch, batch);
    return 0;
}

int erg_managed_plan_open(struct erg_plan **plan, struct erg_plan_selection *own,
                          const struct erg_managed_options *options, const struct erg_job *job,
                          struct erg_error *err)
{
    struct erg_train_options train;
    *plan = NULL;
    if (erg_managed_options_read(&train, options, err) != 0 ||
        erg_plan_load(plan, options->plan, err) != 0)
        return -1;
    if (check_job(*plan, job, err) == 0 && erg_run_plan_find(*plan, &train, own, err) == 0)
        return 0;
    erg_plan_free(*plan);
    *plan = NULL;
    return erg_fail_context(err, "%s", options->plan);
}

int erg_managed_plan_keep(const char *folder, struct erg_plan *plan, struct erg_error *err)
{
    struct erg_job *kept;
    char *to = erg_managed_plan_path(folder), *file = erg_file_path(folder, "job.yaml");
    int result = erg_live_layout_load(&kept, file, err);
    if (result == 0) {
        plan->model = erg_arena_strdup(&plan->arena, kept->model->name);
        result = erg_plan_write(plan, to, err);
        erg_job_free(kept);
    }
    free(file);
    free(to);
    return result;
}

/* Whether two names mean the same GPU of the catalogue. */
static bool is_same_gpu(const char *a, const char *b)
{
    char *first = erg_data_find("gpus", a), *second = erg_data_find("gpus", b);
    const bool same = first && second ? strcmp(first, second) == 0 : strcasecmp(a, b) == 0;
    free(first);
    free(second);
    return same;
}

int erg_managed_plan_check_type(const struct erg_plan *plan, const char *type, bool any_type,
                                struct erg_error *err)
{
    for (size_t k = 0; type && !any_type && k < plan->kind_count; k++)
        if (plan->kinds[k].gpu && !is_same_gpu(plan->kinds[k].gpu, type))
            return erg_fail(err, ERG_USAGE, "the plan is one for %s, expected %s",
                            plan->kinds[k].gpu, type);
    return 0;
}

bool erg_managed_plan_any_type(const char *const *words, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        const bool alone = strcmp(words[i], "--device") == 0 || strcmp(words[i], "-d") == 0;
        const char *device = alone && i + 1 < count                      ? words[i + 1]
                             : strncmp(words[i], "--device=", 9) == 0    ? words[i] + 9
                             : strncmp(words[i], "-d", 2) == 0 && !alone ? words[i] + 2
                                                                         : "";
        any |= strcmp(device, "host") == 0 || strcmp(words[i], "--force") == 0;
    }
    return any;
}

int erg_managed_plan_check_job(const struct erg_plan *plan, const char *path,
                               const struct erg_text *text, struct erg_error *err)
{
    struct erg_job *job;
    if (erg_job_parse(&job, path, text->data, text->count, NULL, err) != 0)
        return -1;
    const int result = erg_plan_check_job(plan, job, err);
    erg_job_free(job);
    return result;
}

/* ---- the frontier of a profile ---- */

bool erg_managed_plan_is_measured(const struct erg_plan *plan)
{
    bool emulated = false;
    for (size_t k = 0; k < plan->kind_count; k++)
        emulated |= plan->kinds[k].emulated;
    return !emulated;
}

int erg_managed_plan_rows(struct erg_text *rows, const struct erg_profile_shape *shape,
                          const struct erg_plan *plan, const struct erg_plan_selection *own,
                          struct erg_error *err)
{
    struct erg_frontier steps = {0};
    erg_plan_pace_steps(&steps, plan, own);
    const double copies = (double)erg_managed_plan_layout(plan, shape->batch).data;
    for (size_t i = 0; i < steps.count; i++)
        steps.points[i].energy_j *= copies;
    const int result = erg_profile_rows_replace(rows, shape, &steps, err);
    erg_frontier_release(&steps);
    return result;
}
