/* A run in a few lines for people: its model and layout, and its results. */
#include "train/run/session.h"
#include "train/run/session_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void add_plan(struct erg_text *text, const struct erg_run_expected *expected)
{
    if (expected->plan)
        erg_text_printf(text, "by %s: %s, point %zu of %zu (%s), %.3g s and %.4g J an iteration\n",
                        expected->plan, expected->method, expected->point, expected->points,
                        expected->rule, expected->time_s, expected->energy_j);
    if (!isnan(expected->step_s))
        erg_text_printf(text, "a step with sums of gradients and optimizer: %.3g s and %.4g J\n",
                        expected->step_s, expected->step_j);
}

/* Adds the run's layout, or the plan that it follows. */
static void add_choice(struct erg_text *text, const struct erg_train *train)
{
    const char *layout = erg_train_auto_layout(train);
    if (layout)
        erg_text_printf(text, "%s\n", layout);
    else
        add_plan(text, erg_train_expected(train));
}

const char *erg_train_about(struct erg_train *train)
{
    const struct erg_train_stats *stats = &train->stats;
    const struct erg_job *job = erg_train_job(train);
    const struct erg_layout *layout = &job->layout;
    const char *device = erg_train_device_name(train);
    struct erg_text *text = &train->said;
    text->count = 0;
    erg_text_printf(text,
                    "%s: %.4g million parameters in %s on %s, %.3g GiB of memory\n"
                    "%" PRIu64 " step%s of %ld sequences of %ld tokens, %ld at a time\n",
                    job->model->name, 1e-6 * erg_model_trained_parameters(job->model),
                    erg_train_type_names[train->options.type],
                    strcmp(device, "host") ? device : "the host",
                    (double)stats->memory_bytes / 0x1p30, stats->steps, erg_plural(stats->steps),
                    erg_layout_batch(layout), layout->sequence, layout->microbatch);
    add_choice(text, train);
    return text->data;
}

const char *erg_train_result(struct erg_train *train)
{
    const struct erg_train_stats *stats = &train->stats;
    struct erg_text *text = &train->said, found = {0};
    text->count = 0;
    erg_train_auto_found(&found, train);
    erg_text_printf(text, "trained %" PRIu64 " step%s", stats->step, erg_plural(stats->step));
    if (isfinite(stats->loss))
        erg_text_printf(text, ", loss %.4f", stats->loss);
    erg_text_add(text, "\n");
    if (found.count)
        erg_text_printf(text, "%s\n", found.data);
    erg_text_release(&found);
    return text->data;
}
