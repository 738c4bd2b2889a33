/* The sentence about a layout that does not fit, and what would help. */
#include "api/memory_query.h"

#include "base/text.h"
#include "layout/document/layouts.h"

#include <math.h>

static double gib(double bytes)
{
    return bytes / 0x1p30;
}

/* How many layers are on other stages than before. */
static long count_moved(const struct erg_layout *layout, const struct erg_layout *changed,
                        long layers)
{
    long sum = 0;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        long more = erg_layout_stage_layers(changed, layers, stage) -
                    erg_layout_stage_layers(layout, layers, stage);
        sum += more > 0 ? more : 0;
    }
    return sum;
}

/* The job's key with the layers of all chunks. */
static void say_layers(struct erg_text *out, const struct erg_memory_answer *answer)
{
    const struct erg_layout *layout = answer->request.layout, *changed = &answer->change->layout;
    const long moved = count_moved(layout, changed, answer->request.model->layers);
    for (long i = 0; i < changed->pipeline * changed->virtual_stages; i++)
        erg_text_printf(out, "%s%ld", i ? ", " : " layers: [", changed->chunk_layers[i]);
    erg_text_printf(out, "] in the job, which moves %ld layer%s to %s", moved,
                    erg_plural((size_t)moved), moved == 1 ? "another stage" : "other stages");
}

/* The options that make the layout that was asked about another. */
static void say_options(struct erg_text *out, const struct erg_memory_answer *answer,
                        const char *dash)
{
    const struct erg_layout *layout = answer->request.layout, *changed = &answer->change->layout;
    if (changed->tensor != layout->tensor || changed->context != layout->context ||
        changed->pipeline != layout->pipeline || changed->microbatch != layout->microbatch) {
        erg_text_printf(out, " %slayout ", dash);
        erg_layout_name(out, changed, answer->job->model->layers);
    }
    if (changed->recompute != layout->recompute)
        erg_text_printf(out, " %srecompute %s", dash, erg_recompute_name(changed->recompute));
    if (changed->offload != layout->offload || answer->solve)
        erg_text_printf(out, " %soffload %.3g", dash, changed->offload);
    if (erg_layout_gpus(changed) != erg_layout_gpus(layout))
        erg_text_printf(out, " %sgpus %ld", dash, erg_layout_gpus(changed));
    if (answer->change->chunk_layers)
        say_layers(out, answer);
}

/* The change that would help. */
static void say_change(struct erg_text *out, const struct erg_memory_answer *answer,
                       const char *dash)
{
    const struct erg_memory_change *change = answer->change;
    const bool mixed = erg_memory_answer_is_mixed(answer), one_kind = answer->job->kind_count == 1;
    struct erg_text said = {0};
    say_options(&said, answer, dash);
    if (change->found)
        erg_text_printf(out, "it would with%s", said.count ? said.data : "");
    else
        erg_text_printf(
            out,
            "no %s that was tried is enough; it would fit "
            "with %.2f GiB %sa GPU%s%s",
            answer->request.accounting == ERG_MEMORY_STATIC
                ? (one_kind ? "smaller microbatch or larger degree" : "smaller microbatch")
            : one_kind ? "recomputation, offloading or larger degree"
                       : "recomputation or offloading",
            ceil(100 * gib(mixed ? change->excess_bytes : change->least_bytes)) / 100,
            mixed ? "more " : "", said.count ? " and" : "", said.count ? said.data : "");
    erg_text_release(&said);
}

/* A layout that is too large for its GPUs. */
static void say_too_large(const struct erg_memory_answer *answer, const char *dash,
                          const char *hint, struct erg_error *err)
{
    const struct erg_memory_stage *worst = &answer->result->stages[answer->binding];
    const double budget = answer->rooms[answer->binding].gpu_bytes;
    const enum erg_memory_item largest = erg_memory_largest(worst);
    const struct erg_gpu *gpu = erg_memory_answer_gpu(answer, answer->binding);
    struct erg_text has = {0};
    if (budget == ERG_MEMORY_USABLE_SHARE * gpu->memory_bytes)
        erg_text_printf(&has, "that each %s has for it", gpu->name);
    else
        erg_text_printf(&has, "of %ssolve-offload", dash);
    erg_fail(err, ERG_INFEASIBLE,
             "stage %ld needs %.2f GiB, %.2f GiB more than the %.2f GiB %s, most of it %s%s; %s",
             answer->binding, gib(worst->peak_bytes), gib(worst->peak_bytes - budget), gib(budget),
             has.data, erg_memory_item_name(largest), erg_memory_unsharded(largest), hint);
    erg_text_release(&has);
}

/* One whose offloaded activations are too large for the host. */
static void say_host_too_small(const struct erg_memory_answer *answer, const char *hint,
                               struct erg_error *err)
{
    const long stage = answer->host_binding;
    const struct erg_memory_room *room = &answer->rooms[stage];
    const bool mixed = erg_memory_answer_is_mixed(answer);
    erg_fail(err, ERG_INFEASIBLE,
             "offloading needs up to %.0f GiB of a node's host memory for its %ld %s, more "
             "than the %.0f GiB that it has; %s",
             gib(erg_memory_answer_host_bytes(answer, stage)), room->node_gpus,
             mixed ? erg_memory_answer_gpu(answer, stage)->name : "GPUs", gib(room->host_bytes),
             hint);
}

int erg_memory_say_unfit(const struct erg_memory_answer *answer, bool dashes, struct erg_error *err)
{
    const char *dash = dashes ? "--" : "";
    struct erg_text hint = {0};
    if (answer->fits && answer->host_fits)
        return 0;
    say_change(&hint, answer, dash);
    if (!answer->fits)
        say_too_large(answer, dash, hint.data, err);
    else
        say_host_too_small(answer, hint.data, err);
    erg_text_release(&hint);
    return -1;
}
