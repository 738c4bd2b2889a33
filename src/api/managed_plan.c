/* The plan of a managed job: its options, its copy, and the GPUs that can follow it. */
#include "api/managed_plan.h"

#include "api/live_layout.h"
#include "io/file.h"

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

int erg_managed_plan_keep(const char *folder, const char *path, const struct erg_job *job,
                          struct erg_error *err)
{
    struct erg_plan *plan;
    struct erg_job *kept = NULL;
    if (erg_plan_load(&plan, path, err) != 0)
        return -1;
    char *to = erg_managed_plan_path(folder), *file = erg_file_path(folder, "job.yaml");
    int result = check_job(plan, job, err);
    if (result != 0)
        erg_fail_context(err, "%s", path);
    else
        result = erg_live_layout_load(&kept, file, err);
    if (result == 0) {
        plan->model = kept->model->name; /* the kept job has an absolute path */
        result = erg_plan_write(plan, to, err);
    }
    erg_plan_free(plan);
    erg_job_free(kept);
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
